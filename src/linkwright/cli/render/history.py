"""The screen of ``linkwright history``: newest last, as in a log."""

from __future__ import annotations

from collections.abc import Sequence

from linkwright.model.records import HistoryEntry

from .status import person
from .table import Column, lay_out
from .text import Line, Span, line, printable
from .times import clock

COLUMNS = (Column("WHEN", 0), Column("WHO", 2, 8), Column("WHAT", 1, 20), Column("WHY", 3, 10))


def history_lines(entries: Sequence[HistoryEntry], now: float, width: int | None) -> list[Line]:
    """``entries`` in any order; ``now`` in seconds since the epoch."""
    if not entries:
        return [line("Nothing was changed yet.")]
    rows: list[Sequence[Sequence[Span]]] = []
    for entry in sorted(entries, key=lambda each: each.at):
        what = entry.what
        if (entry.before or entry.after) and not entry.after.startswith("{"):  # whole documents: -o json
            what += f": {entry.before or '–'} → {entry.after or '–'}"
        rows.append(
            [
                [(clock(entry.at, now), "dim")],
                [(printable(person(entry.who)), "")],
                [(printable(what), "")],
                [(printable(entry.why) or "–", "" if entry.why else "dim")],
            ]
        )
    return lay_out(COLUMNS, rows, width).lines
