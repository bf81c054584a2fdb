"""``linkwright history``: who changed what, when, why."""

from __future__ import annotations

import time

import click

from .. import output as out
from ..api import Agent


@click.command("history")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 10000),
    default=50,
    show_default=True,
    help="At most so many, the newest.",
)
@out.output_option
def history(limit: int, output: str) -> None:
    """Who changed what, when and why, newest last.

    \b
    Examples:
      linkwright history
      linkwright history -n 500 -o json
    """
    from ..render.history import history_lines
    from ..views import HistoryView, read

    raw = Agent.from_environment().get(f"/v1/history?limit={limit}")
    if output == "table":
        out.show(history_lines(read(raw, HistoryView).history, time.time(), out.width()))
    else:
        out.emit(raw, output)
