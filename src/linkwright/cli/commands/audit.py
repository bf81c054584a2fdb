"""``linkwright audit``: what was left behind on this host, and putting it right."""

from __future__ import annotations

import sys
from typing import Any

import click

from .. import output as out
from ..api import Agent

WAITS = 4  # exit code: something is left that needs a person


@click.command("audit")
@click.option("--repair", is_flag=True, help="Put right what is safe; ask for the rest.")
@click.option("--yes", is_flag=True, help="With --repair: put right what needs a yes, too.")
@click.option("--why", default="", metavar="TEXT", help="A reason, kept in the history.")
@out.output_option
def audit(repair: bool, yes: bool, why: str, output: str) -> None:
    """List what is not as it should be: leaked functions, names and marks left behind, stale records.

    Changes nothing without --repair. Exit code 4 when something is left that needs a person.

    \b
    Examples:
      linkwright audit
      linkwright audit --repair
      linkwright audit -o json
    """
    if yes and not repair:
        raise click.UsageError("--yes goes with --repair.")
    agent = Agent.from_environment()
    answer = agent.get("/v1/audit")
    if repair:
        asked = [f for f in answer["findings"] if f["repair"] and not f["safe"]]
        agreed = [f["key"] for f in asked if yes or _agrees(f, output)]
        if agreed or any(f["safe"] and f["repair"] for f in answer["findings"]):
            answer = agent.post("/v1/audit", {"keys": agreed, "why": why})
    if output == "table":
        _show(answer)
    else:
        out.emit(answer, output)
    if answer["findings"]:
        raise click.exceptions.Exit(WAITS)


def _agrees(finding: dict[str, Any], output: str) -> bool:
    """Ask a person, if one is there."""
    if output != "table" or not sys.stdin.isatty():
        return False
    return click.confirm(f"{finding['where']}: {finding['text']}\n  {finding['repair']}?", default=False)


def _show(answer: dict[str, Any]) -> None:
    from ..render.audit import audit_lines

    out.show(audit_lines(answer, out.width()))
