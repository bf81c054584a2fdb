"""From a tree to the plain values of one of our structs: types, required and unknown fields, by their paths.

The structs of documents.py are the only schema: their types are read here (``msgspec.inspect``) to say in our
words what msgspec would say in its own, with the line, a suggestion for a misspelt field, and all problems of a
document at once instead of the first.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

import msgspec.inspect as inspect

from .errors import InvalidInput
from .yamltree import Mapping, Node, Scalar, Sequence

_INT = re.compile(r"[+-]?(0|[1-9][0-9]{0,18})")


class Problems:
    """Collects what is wrong with one document. ``lines``: field path → line, for problems found later."""

    def __init__(self, source: str, subject: str = "") -> None:
        self.source = source
        self.subject = subject
        self.found: list[InvalidInput] = []
        self.lines: dict[str, int] = {}

    def add(self, path: str, text: str, *, code: str, line: int | None = None, next_step: str = "") -> None:
        """``text`` follows the field's path in the message: ``spec.linkMode: "IB" is not one of …``."""
        number = line if line is not None else self._line(path)
        where = f"{self.source}:{number}" if number else self.source or self.subject
        message = f"{path}: {text}" if path else text
        self.found.append(InvalidInput(message, code=code, where=where, field=path, next_step=next_step))

    def _line(self, path: str) -> int:
        """The line of the field, else of the nearest field around it."""
        while path and path not in self.lines:
            path = re.sub(r"(\.?[^.\[\]]+|\[\d+\])$", "", path)
        return self.lines.get(path, 0)


def builtins_of(kind: inspect.Type, node: Node, problems: Problems, path: str = "") -> Any:
    """Plain values of the right types for ``kind``; what is wrong is added to ``problems`` and left out."""
    problems.lines.setdefault(path, node.line)
    match kind:
        case inspect.UnionType():
            if isinstance(node, Scalar) and node.is_null and any(_is_none(t) for t in kind.types):
                return None
            return builtins_of(next(t for t in kind.types if not _is_none(t)), node, problems, path)
        case inspect.StructType():
            return _struct(kind, node, problems, path)
        case inspect.VarTupleType():
            return _sequence(kind, node, problems, path)
        case inspect.DictType():
            return _dict(kind, node, problems, path)
        case inspect.AnyType():
            return _anything(node)
        case _:
            return _scalar(kind, node, problems, path)


def _is_none(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.NoneType)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _struct(kind: inspect.StructType, node: Node, problems: Problems, path: str) -> Any:
    fields = {f.encode_name: f for f in kind.fields}
    if isinstance(node, Scalar) and node.is_null and not any(f.required for f in fields.values()):
        return {}
    if not isinstance(node, Mapping):
        problems.add(path, f"must hold fields ({_some(fields)}), not {_said(node)}.", code="wrong-type")
        return {}
    out: dict[str, Any] = {}
    meant: set[str | None] = set()
    for name, value in node.items.items():
        here = _join(path, name)
        problems.lines[here] = node.lines.get(name, value.line)
        if name == kind.tag_field:
            out[name] = kind.tag
        elif name in fields:
            null = isinstance(value, Scalar) and value.is_null
            if null and not fields[name].required:
                continue  # a field without a value is a field not given
            out[name] = builtins_of(fields[name].type, value, problems, here)
        else:
            known = [*fields, *([kind.tag_field] if kind.tag_field else [])]
            close = _closest(name, known)
            meant.add(close)
            text = f"did you mean {close}?" if close else f"there are {_some(known)}."
            problems.add(here, f"no such field; {text}", code="unknown-field")
    for name, each in fields.items():
        if each.required and name not in node.items and name not in meant:
            problems.add(_join(path, name), "is missing.", code="missing-field", line=problems.lines.get(path))
    return out


def _closest(word: str, known: Iterable[str]) -> str | None:
    folded = {k.casefold(): k for k in known}
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def _some(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _sequence(kind: inspect.VarTupleType, node: Node, problems: Problems, path: str) -> Any:
    if not isinstance(node, Sequence):
        text = f"must be a list, not {_said(node)}."
        step = f"Write it in brackets: [{node.value}]" if isinstance(node, Scalar) and not node.is_null else ""
        problems.add(path, text, code="wrong-type", next_step=step)
        return []
    return [builtins_of(kind.item_type, item, problems, f"{path}[{i}]") for i, item in enumerate(node.items)]


def _dict(kind: inspect.DictType, node: Node, problems: Problems, path: str) -> Any:
    if not isinstance(node, Mapping):
        problems.add(path, f"must hold names with values, not {_said(node)}.", code="wrong-type")
        return {}
    for name, value in node.items.items():
        problems.lines[_join(path, name)] = node.lines.get(name, value.line)
    values = kind.value_type
    return {name: builtins_of(values, value, problems, _join(path, name)) for name, value in node.items.items()}


def _anything(node: Node) -> Any:
    if isinstance(node, Mapping):
        return {name: _anything(value) for name, value in node.items.items()}
    if isinstance(node, Sequence):
        return [_anything(value) for value in node.items]
    return None if node.is_null else node.value


def _scalar(kind: inspect.Type, node: Node, problems: Problems, path: str) -> Any:
    if not isinstance(node, Scalar) or node.is_null:
        problems.add(path, f"must be {_wanted(kind)}, not {_said(node)}.", code="wrong-type")
        return None
    value = node.value
    match kind:
        case inspect.StrType():
            if isinstance(value, str):
                return value
        case inspect.BoolType():
            if isinstance(value, bool):
                return value
            if not node.quoted and value in ("true", "false"):
                return value == "true"
        case inspect.IntType():
            if isinstance(value, int) and not isinstance(value, bool):
                return value
            if isinstance(value, str) and not node.quoted and _INT.fullmatch(value):
                return int(value)
        case inspect.LiteralType() | inspect.EnumType():
            choices = _choices(kind)
            if value in choices:
                return value
            close = _closest(str(value), choices)
            hint = f" Did you mean {close}?" if close else ""
            problems.add(path, f"{_said(node)} is not one of {', '.join(choices)}.{hint}", code="unknown-value")
            return None
    problems.add(path, f"must be {_wanted(kind)}, not {_said(node)}.", code="wrong-type")
    return None


def _choices(kind: inspect.LiteralType | inspect.EnumType) -> list[str]:
    if isinstance(kind, inspect.EnumType):
        return [str(member.value) for member in kind.cls]
    return [str(value) for value in kind.values]


def _wanted(kind: inspect.Type) -> str:
    match kind:
        case inspect.IntType():
            return "a whole number"
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType() | inspect.EnumType():
            return "one of " + ", ".join(_choices(kind))
        case _:
            return "text"


def _said(node: Node) -> str:
    """What was written, in words for a message; long values are cut."""
    if isinstance(node, Mapping):
        return "fields"
    if isinstance(node, Sequence):
        return "a list"
    if node.is_null:
        return "empty"
    if isinstance(node.value, str):
        return f'"{node.value[:60]}…"' if len(node.value) > 60 else f'"{node.value}"'
    return str(node.value).lower() if isinstance(node.value, bool) else str(node.value)
