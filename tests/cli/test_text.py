"""Cutting, wrapping and tables: nothing is ever wider than asked for, also with wide characters."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from linkwright.cli.render.table import Column, lay_out
from linkwright.cli.render.text import both_ends, cut, line, pad, paint, paragraph, width_of
from linkwright.cli.render.times import clock, span

WORDS = st.text(alphabet="ab é漢●\u0301", max_size=30)


@settings(deadline=None)
@given(st.lists(WORDS, max_size=4), st.integers(1, 40))
def test_cut_never_leaves_more_than_the_width(words: list[str], width: int) -> None:
    assert width_of(cut(line(*words), width)) <= width


@settings(deadline=None)
@given(st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=4), st.integers(12, 60))
def test_a_table_fits_and_keeps_its_most_important_column(rows: list[tuple[str, str, str]], width: int) -> None:
    columns = (Column("NAME", 0, 4), Column("KIND", 2), Column("STATE", 1, 6))
    table = lay_out(columns, [[[(cell, "")] for cell in row] for row in rows], width)
    assert all(width_of(each) <= width for each in table.lines)
    assert "NAME" not in table.dropped


def test_long_values_end_in_an_ellipsis() -> None:
    table = lay_out((Column("NAME", 0, 4), Column("WHY", 1, 6)), [[[("a", "")], [("because of it", "")]]], 14)
    assert paint(table.lines, colour=False) == "NAME  WHY\na     because…\n"


def test_without_a_width_nothing_is_cut() -> None:
    long = "x" * 500
    table = lay_out((Column("NAME", 0, 4),), [[[(long, "")]]], None)
    assert long in paint(table.lines, colour=False)


def test_paragraphs_keep_their_breaks_and_indent() -> None:
    lines = paragraph("one two three\nfour", 9, indent=2)
    assert paint(lines, colour=False) == "  one two\n  three\n  four\n"


def test_both_ends_take_two_lines_when_they_do_not_fit() -> None:
    assert len(both_ends(line("left"), line("right"), 20)) == 1
    assert len(both_ends(line("left"), line("right"), 9)) == 2


def test_painting_drops_blanks_at_the_end_and_closes_each_colour() -> None:
    assert paint([pad([("a", "good")], 5)], colour=True) == "\x1b[32ma\x1b[0m\n"


def test_times_for_people() -> None:
    assert [span(s) for s in (0, 119, 120, 7199, 7200, 172800)] == [
        "0 s",
        "119 s",
        "2 min",
        "119 min",
        "2 h",
        "2 d",
    ]
    assert clock(0.0, 1_000_000_000.0).startswith("19")
