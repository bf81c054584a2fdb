"""YAML and JSON as one tree in which every scalar of YAML stays the text that was written, with its line.

Plain YAML readers make 180.0 of ``0000:03:00.0`` and a number of a MAC address, and forget where a value stood.
So only PyYAML's parser is used (events with their marks), and the tree is built here. What a scalar means is
decided by the field it stands in (fields.py). Tags are refused; aliases are copied within a bound, so that a
small file cannot become a huge one; a key given twice is an error (PyYAML keeps the last one silently).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
    StreamStartEvent,
)

from .errors import InvalidInput

MAX_BYTES = 1 << 20
MAX_NODES = 50_000
MAX_DEPTH = 40
NULLS = ("", "~", "null")


@dataclass(frozen=True)
class Scalar:
    """``value``: the text as written. From JSON it is the value itself: text, number, true, false or None.
    ``quoted``: written in quotes or as a block, so it can only be meant as text."""

    value: Any
    line: int = 0
    quoted: bool = False

    @property
    def is_null(self) -> bool:
        return self.value is None or (not self.quoted and self.value in NULLS)


@dataclass(frozen=True)
class Sequence:
    items: tuple[Node, ...]
    line: int = 0


@dataclass(frozen=True)
class Mapping:
    """``lines``: where each key stands."""

    items: dict[str, Node]
    line: int = 0
    lines: dict[str, int] = field(default_factory=dict)


Node = Scalar | Sequence | Mapping
Anchors = dict[str, tuple[Node, int]]
"""Name → the node and how many values it holds."""


def read_yaml(text: str, source: str) -> list[Node]:
    """The documents of a YAML text; an empty document is left out. Lines count from 1.

    Raises InvalidInput (``yaml-syntax``, ``duplicate-key``, ``too-large``) with ``source:line``.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _wrong(f"is larger than {MAX_BYTES >> 10} KiB", "too-large", source, 0)
    try:
        return [n for n in _Composer(source).documents(text) if not (isinstance(n, Scalar) and n.is_null)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise _wrong(f"is not valid YAML: {what}.", "yaml-syntax", source, mark.line + 1 if mark else 0) from None
    except yaml.YAMLError as error:  # a character that YAML does not allow; only a position in the text is known
        position = getattr(error, "position", 0)
        line = text.count("\n", 0, position if isinstance(position, int) else 0) + 1
        raise _wrong(f"is not valid YAML: {str(error).splitlines()[0]}.", "yaml-syntax", source, line) from None


def from_json(value: Any) -> Node:
    """The tree of an object as ``json.loads`` gives it; its scalars keep their JSON types. Raises InvalidInput."""
    return _from_json(value, 0)


def _from_json(value: Any, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise _wrong(f"is nested deeper than {MAX_DEPTH} levels", "too-large", "", 0)
    if isinstance(value, dict):
        return Mapping({str(k): _from_json(v, depth + 1) for k, v in value.items()})
    if isinstance(value, list | tuple):
        return Sequence(tuple(_from_json(v, depth + 1) for v in value))
    return Scalar(value, quoted=isinstance(value, str))


def _wrong(message: str, code: str, source: str, line: int, next_step: str = "") -> InvalidInput:
    where = f"{source}:{line}" if line and source else source
    return InvalidInput(message, code=code, where=where, next_step=next_step)


def _line(event: Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0


class _Composer:
    """Events to a tree. One per text; counts nodes over all documents."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._nodes = 0

    def documents(self, text: str) -> Iterator[Node]:
        events: Iterator[Event] = yaml.parse(text, Loader=yaml.SafeLoader)
        for event in events:
            if isinstance(event, DocumentStartEvent):
                yield self._node(next(events), events, {}, 0)
            elif isinstance(event, StreamStartEvent):
                continue

    def _node(self, event: Event, events: Iterator[Event], anchors: Anchors, depth: int) -> Node:
        line = _line(event)
        before = self._nodes
        self._count(1, line)
        if depth > MAX_DEPTH:
            raise _wrong(f"is nested deeper than {MAX_DEPTH} levels.", "too-large", self._source, line)
        if isinstance(event, AliasEvent):
            if event.anchor not in anchors:
                text = f"*{event.anchor} names an anchor that is not complete here."
                raise _wrong(text, "yaml-syntax", self._source, line)
            node, size = anchors[event.anchor]
            self._count(size, line)
            return node
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise _wrong(
                f"has the tag {tag}; no tags are used here.",
                "yaml-syntax",
                self._source,
                line,
                "Write the value without it: every value is read as its field needs it.",
            )
        node = self._content(event, events, anchors, depth, line)
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            anchors[anchor] = (node, self._nodes - before)
        return node

    def _content(
        self, event: Event, events: Iterator[Event], anchors: Anchors, depth: int, line: int
    ) -> Node:
        if isinstance(event, ScalarEvent):
            return Scalar(event.value, line, quoted=event.style is not None)
        if isinstance(event, SequenceStartEvent):
            items: list[Node] = []
            while not type(each := next(events)).__name__.endswith("EndEvent"):
                items.append(self._node(each, events, anchors, depth + 1))
            return Sequence(tuple(items), line)
        if isinstance(event, MappingStartEvent):
            found: dict[str, Node] = {}
            lines: dict[str, int] = {}
            while not type(each := next(events)).__name__.endswith("EndEvent"):
                key = self._node(each, events, anchors, depth + 1)
                if not isinstance(key, Scalar):
                    raise _wrong("a key must be a word.", "yaml-syntax", self._source, _line(each))
                if key.value in found:
                    raise _wrong(
                        f"{key.value} is given twice; first in line {lines[key.value]}.",
                        "duplicate-key",
                        self._source,
                        key.line,
                        "Keep one of them.",
                    )
                lines[key.value] = key.line
                found[key.value] = self._node(next(events), events, anchors, depth + 1)
            return Mapping(found, line, lines)
        raise AssertionError(f"no node begins with {event}")

    def _count(self, more: int, line: int) -> None:
        self._nodes += more
        if self._nodes > MAX_NODES:
            raise _wrong(f"has more than {MAX_NODES} values.", "too-large", self._source, line)
