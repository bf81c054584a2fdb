"""``linkwright plan``: what would happen. From the agent when it runs, else planned by this process, read-only."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .. import output as out
from ..api import Agent

if TYPE_CHECKING:
    from linkwright.model.plan import Plan

    from ..documents import Wanted


@click.command("plan")
@click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="Documents to plan for; - reads stdin.")
@click.option("--explain", is_flag=True, help="Also show which policy names each port, by which fields.")
@out.output_option
@click.pass_context
def plan(ctx: click.Context, files: tuple[str, ...], explain: bool, output: str) -> None:
    """What would happen: exact commands, restarts, who is interrupted. Changes nothing, works without the agent.

    Without -f it shows what is still to be done for what was applied before. Exit code 3: a rule refuses
    something that the files ask for.

    \b
    Examples:
      linkwright plan -f training.yaml
      linkwright plan -f training.yaml -f trainer-0.yaml --explain
      linkwright plan
    """
    from ..documents import read_files

    wanted = read_files(files) if files else []
    made, hint = ask_for_plan(Agent.from_environment(), wanted)
    if output != "table":
        out.emit(out.jsonable(made), output)
    else:
        from ..render.plan import plan_lines
        from ..render.text import paragraph

        command = shlex.join(["linkwright", "apply", *(word for name in files for word in ("-f", name))])
        apply_with = command if files else ("linkwright approve" if made.approvals else "")
        out.show(plan_lines(made, out.width(), documents=wanted, apply_with=apply_with, explain=explain))
        out.show(paragraph(hint, out.width(), style="dim") if hint else [])
    ctx.exit(3 if refusals(made, wanted) else 0)


def ask_for_plan(agent: Agent, wanted: Sequence[Wanted]) -> tuple[Plan, str]:
    """The plan for the documents on top of what is stored, and what could not be read for it."""
    if agent.runs():
        from linkwright.model.plan import Plan

        from ..documents import as_json
        from ..views import read

        return read(agent.post("/v1/plan", {"documents": as_json(wanted)}), Plan), ""
    from ..local import local_host

    with local_host() as host:
        _, made = host.plan([document for document, _ in wanted])
        return made, "\n".join(["Planned without the agent, which does not run.", *host.hints])


def refusals(made: Plan, wanted: Sequence[Wanted]) -> bool:
    """Does a rule refuse something that these documents ask for?"""
    from ..documents import subject_of

    subjects = {subject_of(document) for document, _ in wanted}
    return any(each.severity == "refused" and each.subject in subjects for each in made.problems)
