"""Documents from files (or standard input) for plan, apply and delete, each with the place it came from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linkwright.model import load
from linkwright.model.documents import HostConfig, LinkPolicy, Target
from linkwright.model.errors import InvalidInput

Wanted = tuple[LinkPolicy | Target, str]  # the document and its ``file:line``


def read_files(files: Sequence[str]) -> list[Wanted]:
    """LinkPolicies and Targets of all files, ``-`` is standard input; raises InvalidInput with file and line."""
    located = load.load_documents(sys.stdin.read(), "standard input") if "-" in files else []
    try:
        located += load.load_files(Path(name) for name in files if name != "-")
    except FileNotFoundError as error:
        raise InvalidInput("there is no such file", code="unreadable", where=str(error.filename)) from error
    wanted: list[Wanted] = []
    for each in located:
        where = f"{each.source}:{each.line}"
        if isinstance(each.document, HostConfig):
            raise InvalidInput(
                "a HostConfig is not applied: it belongs to the host itself",
                code="host-config-not-applied",
                where=where,
                next_step="Put it into /etc/linkwright/host.yaml; the agent reads it at every look.",
            )
        wanted.append((each.document, where))
    if not wanted:
        raise InvalidInput("there is no document in it", code="no-document", where=", ".join(files))
    return wanted


def kind_of(document: LinkPolicy | Target) -> str:
    return type(document).__name__


def subject_of(document: LinkPolicy | Target) -> str:
    """As problems name it: ``policy training``, ``target trainer-0``."""
    return f"{'policy' if isinstance(document, LinkPolicy) else 'target'} {document.name}"


def as_json(wanted: Sequence[Wanted]) -> list[Any]:
    """For the agent: what POST /v1/plan and /v1/apply take."""
    return [load.to_builtins(document) for document, _ in wanted]
