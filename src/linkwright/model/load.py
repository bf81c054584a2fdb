"""Reading documents: files and JSON objects become LinkPolicy, Target and HostConfig values, or one clear error.

Strict on purpose: a field that is not understood is an error, because a misspelt ``linkMode`` that is ignored
restarts hosts for nothing. All problems of a text are found in one reading.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as inspect
from msgspec import Struct

from .documents import Document, HostConfig, LinkPolicy, Target
from .errors import InvalidInput
from .fields import Problems, builtins_of
from .validate import check
from .yamltree import Mapping, Node, Scalar, from_json, read_yaml

KINDS: dict[str, type[LinkPolicy] | type[Target] | type[HostConfig]] = {
    "LinkPolicy": LinkPolicy,
    "Target": Target,
    "HostConfig": HostConfig,
}


class Located(Struct, frozen=True):
    """A document and where it stands: ``line`` is its first line, ``index`` counts the documents from 0."""

    document: Document
    source: str
    line: int
    index: int


def load_documents(text: str, source: str) -> list[Located]:
    """Every document of a YAML (or JSON) text. Raises InvalidInput with all problems of the text."""
    found: list[Located] = []
    problems: list[InvalidInput] = []
    for index, node in enumerate(read_yaml(text, source)):
        document = _document(node, Problems(source), problems)
        if document is not None:
            found.append(Located(document, source, node.line, index))
    problems += _twins(found)
    _raise(problems)
    return found


def load_files(paths: Iterable[Path]) -> list[Located]:
    """Every document of several files; raises InvalidInput with the problems of all of them."""
    found: list[Located] = []
    problems: list[InvalidInput] = []
    for path in paths:
        try:
            found += load_documents(_read(path), str(path))
        except InvalidInput as error:
            problems += error.problems or (error,)
    problems += _twins(found) if not problems else []
    _raise(problems)
    return found


def documents_from_json(objects: Sequence[Any]) -> list[Document]:
    """Documents given as JSON objects, by the same rules; ``where`` is ``document 2`` instead of a line."""
    found: list[Document] = []
    problems: list[InvalidInput] = []
    for number, value in enumerate(objects, 1):
        try:
            node = from_json(value)
        except InvalidInput as error:
            problems.append(InvalidInput(error.message, code=error.code, where=f"document {number}"))
            continue
        document = _document(node, Problems("", subject=f"document {number}"), problems)
        if document is not None:
            found.append(document)
    located = [Located(d, "", 0, n) for n, d in enumerate(found)]
    problems += _twins(located)
    _raise(problems)
    return found


def host_config(path: Path) -> HostConfig:
    """The host's own file. Missing: the defaults, which only observe. Raises InvalidInput."""
    try:
        text = _read(path)
    except FileNotFoundError:
        return HostConfig()
    found = load_documents(text, str(path))
    for located in found:
        if not isinstance(located.document, HostConfig):
            raise InvalidInput(
                f"kind: {type(located.document).__name__} does not belong into the host's own file.",
                code="unexpected-kind",
                where=f"{path}:{located.line}",
                field="kind",
                next_step="Give it to: linkwright apply -f FILE",
            )
    if len(found) > 1:
        raise InvalidInput(
            "a second HostConfig; a host has one.",
            code="duplicate",
            where=f"{path}:{found[1].line}",
            next_step="Join them.",
        )
    return found[0].document if found else HostConfig()  # type: ignore[return-value]


def to_builtins(document: Document) -> dict[str, Any]:
    """The document as JSON values, ``kind`` and ``apiVersion`` included; ``documents_from_json`` reads it back."""
    out: dict[str, Any] = msgspec.to_builtins(document)
    return out


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of one document, for editors and for checks outside this program."""
    return msgspec.json.schema(Document)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}.", code="unreadable", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise InvalidInput("is not UTF-8 text.", code="unreadable", where=str(path)) from error


def _document(node: Node, problems: Problems, out: list[InvalidInput]) -> Document | None:
    kind = _kind(node, problems)
    if kind is None:
        out += problems.found
        return None
    values = builtins_of(inspect.type_info(KINDS[kind]), node, problems)
    check(kind, values, problems)
    if problems.found:
        out += sorted(problems.found, key=lambda p: _line_of(p.where))
        return None
    return msgspec.convert(values, type=KINDS[kind])


def _line_of(where: str) -> int:
    number = where.rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def _kind(node: Node, problems: Problems) -> str | None:
    if not isinstance(node, Mapping):
        problems.add(
            "",
            "is not a document: it must begin with apiVersion, kind and metadata.",
            code="wrong-type",
            line=node.line,
        )
        return None
    kind = node.items.get("kind")
    if not isinstance(kind, Scalar) or kind.is_null:
        problems.add("kind", f"is missing; one of {', '.join(KINDS)}.", code="missing-field", line=node.line)
        return None
    if kind.value in KINDS:
        return str(kind.value)
    close = difflib.get_close_matches(str(kind.value), KINDS, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    problems.add(
        "kind",
        f'"{kind.value}" is not one of {", ".join(KINDS)}.{hint}',
        code="unknown-value",
        line=node.lines.get("kind", node.line),
    )
    return None


def _twins(found: Iterable[Located]) -> list[InvalidInput]:
    """A name given twice for one kind: the second would replace the first without a word."""
    seen: dict[tuple[str, str], Located] = {}
    out: list[InvalidInput] = []
    for each in found:
        key = (type(each.document).__name__, each.document.metadata.name)
        first = seen.setdefault(key, each)
        if first is not each:
            before = f"{first.source}:{first.line}" if first.line else f"document {first.index + 1}"
            out.append(
                InvalidInput(
                    f"metadata.name: {key[0]} {key[1]} is given twice; first at {before}.",
                    code="duplicate",
                    where=f"{each.source}:{each.line}" if each.line else f"document {each.index + 1}",
                    field="metadata.name",
                    next_step="Keep one of them, or rename one.",
                )
            )
    return out


def _raise(problems: Sequence[InvalidInput]) -> None:
    if not problems:
        return
    first = problems[0]
    more = len(problems) - 1
    if not more:
        raise InvalidInput(
            first.message,
            code=first.code,
            where=first.where,
            field=first.field,
            next_step=first.next_step,
            problems=(first,),
        )
    rest = [f"\n  {p.where + ': ' if p.where else ''}{p.message}" for p in problems[1:11]]
    if more > 10:
        rest.append(f"\n  … and {more - 10} more")
    raise InvalidInput(
        f"{first.message} And {more} more problem{'s' if more > 1 else ''}:{''.join(rest)}",
        code=first.code,
        where=first.where,
        field=first.field,
        next_step=first.next_step if more == 0 else "",
        problems=tuple(problems),
    )
