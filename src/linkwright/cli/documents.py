"""Documents from files (or standard input) for plan, apply and delete, each with the place it came from."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from linkwright.model import load
from linkwright.model.documents import HostConfig, LinkPolicy, Target
from linkwright.model.errors import InvalidInput

from .output import jsonable

Wanted = tuple[LinkPolicy | Target, str]  # the document and its ``file:line``


def read_files(files: Iterable[str]) -> list[Wanted]:
    """LinkPolicies and Targets of all files, ``-`` is standard input; raises InvalidInput with file and line."""
    wanted: list[Wanted] = []
    for name in files:
        text, source = (sys.stdin.read(), "standard input") if name == "-" else (_text(name), name)
        for located in load.load_documents(text, source):
            where = f"{located.source}:{located.line}"
            if isinstance(located.document, HostConfig):
                raise InvalidInput(
                    "a HostConfig is not applied: it belongs to the host itself",
                    where=where,
                    next_step="Put it into /etc/linkwright/host.yaml; the agent reads it when it changes.",
                )
            wanted.append((located.document, where))
    if not wanted:
        raise InvalidInput("there is no document in it", where=", ".join(files))
    _no_twins(wanted)
    return wanted


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=name) from error
    except UnicodeDecodeError as error:
        raise InvalidInput("is not UTF-8 text", where=name) from error


def _no_twins(wanted: Sequence[Wanted]) -> None:
    seen: dict[tuple[type, str], str] = {}
    for document, where in wanted:
        key = (type(document), document.name)
        if key in seen:
            raise InvalidInput(
                f"{kind_of(document)} {document.name} stands here a second time (first: {seen[key]})",
                where=where,
                field="metadata.name",
            )
        seen[key] = where


def kind_of(document: LinkPolicy | Target) -> str:
    return type(document).__name__


def subject_of(document: LinkPolicy | Target) -> str:
    """As problems name it: ``policy training``, ``target trainer-0``."""
    return f"{'policy' if isinstance(document, LinkPolicy) else 'target'} {document.name}"


def as_json(wanted: Sequence[Wanted]) -> list[Any]:
    """For the agent: what POST /v1/plan and /v1/apply take."""
    return [jsonable(document) for document, _ in wanted]
