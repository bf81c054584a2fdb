"""The screen of ``linkwright history``: newest last, as in a log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from linkwright.model.records import HistoryEntry

from .status import person
from .table import Column, lay_out
from .text import Line, Span, line, port_labels, printable
from .times import clock

MOST_FIELDS = 4  # of a changed document on one line
COLUMNS = (Column("WHEN", 0), Column("WHO", 2, 8), Column("WHAT", 1, 20), Column("WHY", 3, 10))


def history_lines(entries: Sequence[HistoryEntry], now: float, width: int | None) -> list[Line]:
    """``entries`` in any order; ``now`` in seconds since the epoch."""
    if not entries:
        return [line("Nothing was changed yet.")]
    rows: list[Sequence[Sequence[Span]]] = []
    for entry in sorted(entries, key=lambda each: each.at):
        what = entry.what
        fields = changed_fields(entry.before, entry.after)
        if fields:
            what += f": {', '.join(fields)}"
        elif entry.after and not entry.after.startswith("{"):
            before = "" if entry.before.startswith("{") else f"{entry.before or '–'} → "
            what += f": {before}{entry.after}"
        elif entry.before and not (entry.before + entry.after).startswith("{"):
            what += f": {entry.before} → –"
        rows.append(
            [
                [(clock(entry.at, now), "dim")],
                [(printable(person(entry.who)), "")],
                [(printable(port_labels(what)), "")],
                [(printable(entry.why) or "–", "" if entry.why else "dim")],
            ]
        )
    return lay_out(COLUMNS, rows, width).lines


def changed_fields(before: str, after: str) -> list[str]:
    """What differs between two versions of a document, as ``linkMode InfiniBand → RoCE``."""
    if not (before.startswith("{") and after.startswith("{")):
        return []
    old, new = _flat(json.loads(before).get("spec")), _flat(json.loads(after).get("spec"))
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    said = [f"{name} {old.get(name, '–')} → {new.get(name, '–')}" for name in names]
    return said if len(said) <= MOST_FIELDS else [*said[:MOST_FIELDS], f"and {len(said) - MOST_FIELDS} more"]


def _flat(value: Any, path: str = "") -> dict[str, str]:
    if isinstance(value, dict):
        return {k: v for key, each in value.items() for k, v in _flat(each, f"{path}.{key}".strip(".")).items()}
    if isinstance(value, list):
        return {path: ", ".join(v if isinstance(v, str) else json.dumps(v) for v in value) or "none"}
    return {path: "none" if value is None else str(value)}
