"""``linkwright freeze`` and ``unfreeze``: nothing changes on this host until somebody lets it."""

from __future__ import annotations

import click

from .. import output as out
from ..api import Agent


@click.command("freeze")
@click.option("--why", default="", metavar="TEXT", help="A reason, shown in status and kept in the history.")
@out.output_option
def freeze(why: str, output: str) -> None:
    """Stop every change on this host at the next safe point; also over restarts, until unfreeze.

    \b
    Examples:
      linkwright freeze --why "incident 42"
    """
    answer = Agent.from_environment().post("/v1/freeze", {"why": why})
    _say(answer, output, "Frozen: nothing is changed on this host. Go on with: linkwright unfreeze")


@click.command("unfreeze")
@click.option("--why", default="", metavar="TEXT", help="A reason, kept in the history.")
@out.output_option
def unfreeze(why: str, output: str) -> None:
    """Let changes go on.

    \b
    Examples:
      linkwright unfreeze
    """
    answer = Agent.from_environment().post("/v1/unfreeze", {"why": why})
    _say(answer, output, "Changes go on. Look: linkwright status --watch")


def _say(answer: object, output: str, text: str) -> None:
    from ..render.text import line

    if output == "table":
        out.show([line(text)])
    else:
        out.emit(answer, output)
