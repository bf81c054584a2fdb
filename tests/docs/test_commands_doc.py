"""Every command line of the pages that begins with ``linkwright`` is one: its command exists, and its options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main

from hostlab.cli import app
from linkwright.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
ENDS = ("|", ";", "&&", "#", ">", "<", "--", "</dev/null")  # what follows is not ours


def command_lines(page: Path) -> list[list[str]]:
    """The words after ``linkwright``, from code spans and fenced blocks; output of commands does not begin so."""
    text = page.read_text(encoding="utf-8")
    fenced = "\n".join(re.findall(r"^```.*?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    found = []
    for line in [*fenced.splitlines(), *spans]:
        start = re.match(r"\s*(?:[#$] |gpu-01# |sudo )?(?:[A-Z_]+=\S+ )*(?:\S*/)?linkwright (?=[a-z])(.*)", line)
        for rest in [start[1]] if start else []:
            found.append(words(rest))
            _, inner, after = rest.partition(" -- linkwright ")
            if inner:
                found.append(words(after))
    return found


def words(text: str) -> list[str]:
    try:
        parts = shlex.split(text)
    except ValueError:  # an apostrophe in what follows the command
        parts = text.split()
    stop = next((n for n, part in enumerate(parts) if part in ENDS), len(parts))
    return parts[:stop]


def problem(parts: list[str]) -> str:
    """What is wrong with the command line; empty: nothing."""
    command: Any = cli  # or one of Typer's, which has a copy of click of its own
    context: Any = click.Context(cli)
    given = list(parts)
    while hasattr(command, "list_commands") and given and not given[0].startswith("-") and given[0] != "…":
        name = given.pop(0)
        if command is cli and name == "lab":
            command = typer.main.get_command(app)
            continue
        if name not in command.list_commands(context):
            return f"no command {name!r}"
        command = command.get_command(context, name)
    options = {text for param in getattr(command, "params", ()) for text in (*param.opts, *param.secondary_opts)}
    options |= {"--help", "-h"}
    unknown = [w for w in given if re.match(r"--?[a-z]", w) and w.partition("=")[0] not in options]
    return f"no option {', '.join(unknown)}" if unknown else ""


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_command_lines_are_possible(page: Path) -> None:
    wrong = [(" ".join(parts), said) for parts in command_lines(page) if (said := problem(parts))]
    assert wrong == []


def test_the_check_sees_what_is_wrong() -> None:
    assert problem(["status", "--watch"]) == ""
    assert problem(["lab", "up", "gpu-01", "-o", "json"]) == ""
    assert problem(["host", "setup", "--undo"]) == ""
    assert problem(["freeze", "--reason", "x"]) == "no option --reason"
    assert problem(["lab", "explode"]) == "no command 'explode'"
    assert len(command_lines(ROOT / "docs/errors.md")) > 100
