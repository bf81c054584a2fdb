"""Styled text without a library: a line is a tuple of (text, style) spans; ``paint`` makes what is printed.

Rich would do this too, but its import (80 ms) is longer than everything else ``linkwright nics`` does on
its way to the socket, and lines as plain tuples make golden tests exact.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

Span = tuple[str, str]
Line = tuple[Span, ...]

# One colour a meaning: green works, yellow waits for somebody, red needs somebody, dim is unknown or not ours.
STYLES = {
    "": "",
    "good": "\x1b[32m",
    "wait": "\x1b[33m",
    "bad": "\x1b[31m",
    "dim": "\x1b[2m",
    "bold": "\x1b[1m",
    "head": "\x1b[1m",
}
RESET = "\x1b[0m"
ELLIPSIS = "…"
PORT_ID = re.compile(r"\b([0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7])/([1-9][0-9]?)\b")


def line(*parts: str | Span) -> Line:
    """A line of spans; a bare string has no style."""
    return tuple((part, "") if isinstance(part, str) else part for part in parts)


def char_width(char: str) -> int:
    """Terminal cells of one character (0, 1 or 2), by Unicode's East Asian Width."""
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cc", "Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def text_width(text: str) -> int:
    return len(text) if text.isascii() else sum(char_width(c) for c in text)


def width_of(spans: Iterable[Span]) -> int:
    """Terminal cells of a line."""
    return sum(text_width(text) for text, _ in spans)


def printable(text: str) -> str:
    """Text from outside (names, tools' words) without control characters, so that it cannot steer the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def port_labels(text: str) -> str:
    """Port ids in a text as people read them: ``0000:3b:00.0/1`` → ``0000:3b:00.0 p1``."""
    return PORT_ID.sub(r"\1 p\2", text)


def cut(spans: Sequence[Span], width: int) -> Line:
    """The line in at most ``width`` cells; what was cut off is shown by an ellipsis."""
    if width_of(spans) <= width:
        return tuple(spans)
    if width <= 0:
        return ()
    out: list[Span] = []
    left = width - 1
    for text, style in spans:
        kept = ""
        for char in text:
            if char_width(char) > left:
                return (*out, (kept.rstrip() + ELLIPSIS, style))
            kept += char
            left -= char_width(char)
        out.append((kept, style))
    return tuple(out)


def pad(spans: Sequence[Span], width: int) -> Line:
    """The line filled with blanks on the right up to ``width`` cells."""
    missing = width - width_of(spans)
    return (*spans, (" " * missing, "")) if missing > 0 else tuple(spans)


def wrap(words: Sequence[Span], width: int | None, indent: int, first: int | None = None) -> list[Line]:
    """Spans set one after the other with blanks between, broken to lines of ``width``; all but the first line
    begin with ``indent`` blanks (the first with ``first``). A span is one unit: it is never broken, only cut."""
    lead = indent if first is None else first
    lines: list[Line] = []
    current: list[Span] = [(" " * lead, "")] if lead else []
    used = lead
    empty = True
    for text, style in words:
        size = text_width(text)
        if not empty and width is not None and used + 1 + size > width:
            lines.append(tuple(current))
            current, used, empty = ([(" " * indent, "")] if indent else []), indent, True
        if not empty:
            current.append((" ", ""))
            used += 1
        current.append((text, style))
        used += size
        empty = False
    if not empty:
        lines.append(tuple(current))
    return lines if width is None else [cut(each, width) for each in lines]


def paragraph(
    text: str, width: int | None, indent: int = 0, style: str = "", first: int | None = None
) -> list[Line]:
    """Plain text broken at blanks; line breaks in it are kept."""
    lines: list[Line] = []
    for number, part in enumerate(text.splitlines() or [""]):
        words = [(word, style) for word in printable(part).split()]
        lines += wrap(words, width, indent, first if number == 0 else None)
    return lines


def both_ends(left: Sequence[Span], right: Sequence[Span], width: int | None) -> list[Line]:
    """``left`` and ``right`` on one line, the right one against the edge; on two lines when they do not fit."""
    if not right:
        return [tuple(left)]
    if width is None:
        return [(*left, ("    ", ""), *right)]
    gap = width - width_of(left) - width_of(right)
    if gap >= 2:
        return [(*left, (" " * gap, ""), *right)]
    return [cut(left, width), cut(right, width)]


def paint(lines: Iterable[Sequence[Span]], colour: bool) -> str:
    """Lines as text to print, each ending in a newline, without blanks at their ends."""
    out: list[str] = []
    for spans in lines:
        plain = "".join(text for text, _ in spans).rstrip()
        if not colour:
            out.append(plain)
            continue
        left = len(plain)
        parts: list[str] = []
        for text, style in spans:
            shown = text[:left]
            left -= len(shown)
            if shown:
                parts.append(f"{STYLES[style]}{shown}{RESET}" if STYLES[style] else shown)
        out.append("".join(parts))
    return "".join(f"{each}\n" for each in out)
