"""``linkwright apply``: shows the plan, asks before it interrupts anything, sends it, follows it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .. import output as out
from ..api import Agent

if TYPE_CHECKING:
    from ..documents import Wanted


@click.command("apply")
@click.option(
    "-f", "--file", "files", multiple=True, required=True, metavar="FILE", help="Documents; - reads stdin."
)
@click.option("--yes", is_flag=True, help="Agree to what the plan interrupts; without it you are asked.")
@click.option("--why", default="", metavar="TEXT", help="A reason, kept in the history.")
@click.option("--no-wait", is_flag=True, help="Return as soon as the documents are stored.")
@out.output_option
@click.pass_context
def apply(ctx: click.Context, files: tuple[str, ...], yes: bool, why: str, no_wait: bool, output: str) -> None:
    """Show the plan, ask before anything is interrupted, then do it and follow it to the end.

    \b
    Examples:
      linkwright apply -f training.yaml
      linkwright apply -f training.yaml --yes --why "job 7 needs InfiniBand"
      linkwright apply -f - < trainer-0.yaml
    """
    from ..documents import read_files

    command = ["linkwright", "apply", *(word for name in files for word in ("-f", name)), "--yes"]
    ctx.exit(carry_out(read_files(files), shlex.join(command), yes=yes, why=why, wait=not no_wait, output=output))


def carry_out(wanted: Sequence[Wanted], command: str, *, yes: bool, why: str, wait: bool, output: str) -> int:
    """Plan, ask, apply, follow; the exit code. ``command`` is what agrees to it all without asking."""
    from linkwright.model.documents import LinkPolicy
    from linkwright.model.plan import Plan

    from .. import doing
    from ..documents import as_json
    from ..render.plan import plan_lines
    from ..views import Applied, read
    from .plan import refusals

    agent = Agent.from_environment()
    documents = as_json(wanted)
    made = read(agent.post("/v1/plan", {"documents": documents}), Plan)
    screen = sys.stdout if output == "table" else sys.stderr
    out.show(plan_lines(made, out.width(), documents=wanted), screen)
    if refusals(made, wanted):
        return doing.refused()
    approvals = doing.ask_for_yes(made, command, yes)
    answer = agent.post("/v1/apply", {"documents": documents, "approvals": approvals, "why": why})
    applied = read(answer, Applied)
    if not wait:
        if output != "table":
            out.emit(answer, output)
        else:
            out.show(doing.stored_lines(applied))
        return 0
    return doing.follow(
        agent,
        applied.cursor,
        policies={document.name for document, _ in wanted if isinstance(document, LinkPolicy)},
        targets={document.name for document, _ in wanted if not isinstance(document, LinkPolicy)},
        output=output,
    )
