"""Tables that never wrap into soup: columns shrink or drop by importance, long values end in an ellipsis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .text import Line, Span, cut, pad, text_width, width_of

GAP = 2


@dataclass(frozen=True)
class Column:
    """``importance``: 0 stays longest. ``least``: the fewest cells it is of use with; None: its full width."""

    title: str
    importance: int
    least: int | None = None


@dataclass(frozen=True)
class Table:
    """Laid out lines, and the titles of the columns that found no room."""

    lines: list[Line]
    dropped: tuple[str, ...]


def lay_out(columns: Sequence[Column], rows: Sequence[Sequence[Sequence[Span]]], width: int | None) -> Table:
    """Columns and rows (each cell a sequence of spans) in at most ``width`` terminal cells; None: no limit."""
    natural = [
        max([text_width(column.title), *(width_of(row[i]) for row in rows)]) for i, column in enumerate(columns)
    ]
    least = [min(natural[i], max(c.least or natural[i], text_width(c.title))) for i, c in enumerate(columns)]
    shown = list(range(len(columns)))
    if width is not None:
        while len(shown) > 1 and _total([least[i] for i in shown]) > width:
            shown.remove(max(shown, key=lambda i: (columns[i].importance, i)))
    sizes = _share(columns, shown, natural, least, width)
    titles: list[Sequence[Span]] = [((column.title, "head"),) for column in columns]
    lines = [_row(cells, shown, sizes) for cells in [titles, *rows]]
    return Table(lines, tuple(column.title for i, column in enumerate(columns) if i not in shown))


def _total(sizes: Sequence[int]) -> int:
    return sum(sizes) + GAP * (len(sizes) - 1)


def _share(
    columns: Sequence[Column],
    shown: Sequence[int],
    natural: Sequence[int],
    least: Sequence[int],
    width: int | None,
) -> dict[int, int]:
    """Cells for each shown column: the least for all, then whole columns as long as there is room: those that
    lack little first, so that one long value does not shorten all others."""
    if width is None:
        return {i: natural[i] for i in shown}
    sizes = {i: least[i] for i in shown}
    if len(shown) == 1:
        sizes[shown[0]] = min(natural[shown[0]], width)
        return sizes
    spare = width - _total(list(sizes.values()))
    for i in sorted(shown, key=lambda i: (natural[i] - sizes[i], columns[i].importance)):
        more = min(spare, natural[i] - sizes[i])
        sizes[i] += more
        spare -= more
    return sizes


def _row(cells: Sequence[Sequence[Span]], shown: Sequence[int], sizes: dict[int, int]) -> Line:
    out: list[Span] = []
    for position, i in enumerate(shown):
        if position:
            out.append((" " * GAP, ""))
        out += pad(cut(cells[i], sizes[i]), sizes[i])
    return tuple(out)
