"""Where the output goes and how: table for people, JSON and YAML for programs; colours only on a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TextIO, TypeVar

import click

from .render.text import Line, paint

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Screen:
    """``width`` None: no terminal and no COLUMNS, so nothing is shortened (the output goes to a program)."""

    width: int | None
    colour: bool
    live: bool  # lines may be written over


def screen_of(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Screen:
    """What it can show. NO_COLOR (no-color.org) wins over FORCE_COLOR, COLUMNS over the terminal's width."""
    terminal = stream.isatty()
    colour = terminal and environ.get("TERM") != "dumb"
    if environ.get("FORCE_COLOR"):
        colour = True
    if environ.get("NO_COLOR"):
        colour = False
    width = None
    if environ.get("COLUMNS", "").isdigit() and int(environ["COLUMNS"]) > 0:
        width = int(environ["COLUMNS"])
    elif terminal:
        try:
            width = os.get_terminal_size(stream.fileno()).columns or 80
        except OSError:
            width = 80
    return Screen(width=width, colour=colour, live=terminal and environ.get("TERM") != "dumb")


def show(lines: Iterable[Line], stream: TextIO | None = None) -> None:
    """Print lines at once, so that a reader who sees the first also sees the last."""
    stream = stream or sys.stdout
    stream.write(paint(lines, screen_of(stream).colour))
    stream.flush()


def width() -> int | None:
    return screen_of(sys.stdout).width


def emit(value: Any, output: str) -> None:
    """A JSON-like value as ``json`` or ``yaml``, whole and with stable names."""
    if output == "json":
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    else:
        import yaml

        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000)
    sys.stdout.write(text)
    sys.stdout.flush()


def output_option(function: F) -> F:
    """``-o table|json|yaml``."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "yaml"]),
        default="table",
        show_default=True,
        help="How to print the answer; json and yaml have everything.",
    )(function)


def jsonable(value: Any) -> Any:
    """msgspec values as plain JSON values: numbers stay numbers, enums become their words."""
    import msgspec

    return msgspec.to_builtins(value)
