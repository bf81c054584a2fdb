"""``linkwright uninstall``: what would bring this host back to how it was found; ``--restore`` does it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .. import output as out
from ..api import Agent

if TYPE_CHECKING:
    from ..render.text import Line
    from ..views import UninstallView

COMMAND = "linkwright uninstall --restore --yes"


@click.command("uninstall")
@click.option("--restore", is_flag=True, help="Do it: release targets, VF counts and firmware values as before.")
@click.option("--yes", is_flag=True, help="Agree to interrupt the targets; without it you are asked.")
@click.option("--why", default="", metavar="TEXT", help="A reason, kept in the history.")
@out.output_option
@click.pass_context
def uninstall(ctx: click.Context, restore: bool, yes: bool, why: str, output: str) -> None:
    """Leave this host as it was found: targets released, VF counts and the firmware's next boot from before.

    Without --restore it only shows what that would be. Nothing is restarted: the cards load their old values at
    the next restart of this host. Stop and remove the package afterwards.

    \b
    Examples:
      linkwright uninstall
      linkwright uninstall --restore --why "host leaves the cluster"
    """
    from ..views import UninstallView, read

    agent = Agent.from_environment()
    raw = agent.get("/v1/uninstall")
    offered = read(raw, UninstallView)
    if not restore:
        if output != "table":
            out.emit(raw, output)
        else:
            out.show(offer_lines(offered, out.width()))
        ctx.exit(0)
    out.show(offer_lines(offered, out.width(), asked=True), sys.stderr if output != "table" else sys.stdout)
    if not offered.running:
        _agree(offered, yes)
        answer = agent.post("/v1/uninstall", {"key": offered.key, "why": why})
        _follow(agent, answer, output)
    raw = agent.get("/v1/uninstall")
    left = read(raw, UninstallView)
    if output != "table":
        out.emit(raw, output)
    else:
        out.show(ending_lines(left, bool(offered.steps), out.width()))
    ctx.exit(exit_code(left))


def _agree(offered: UninstallView, yes: bool) -> None:
    """Raises NeedsPerson when targets would be interrupted and nobody said yes."""
    from linkwright.model.plan import Approval, Plan

    from .. import doing

    if offered.interrupts:
        text = f"release {', '.join(offered.interrupts)}: they lose their interfaces"
        approval = Approval(key=offered.key, text=text, interrupts=offered.interrupts)
        doing.ask_for_yes(Plan(approvals=(approval,)), COMMAND, yes)


def _follow(agent: Agent, answer: object, output: str) -> None:
    from .. import doing
    from ..follow import Follower

    Follower(agent, doing.cursor_of(answer), quiet=output != "table").until_settled()


def exit_code(left: UninstallView) -> int:
    """0 as it was found, 3 refused or held by somebody, 1 when it is not finished for another reason."""
    if any(each.severity == "refused" or each.code == "not-as-found" for each in left.problems):
        return 3
    return 1 if left.running or left.steps or left.targets else 0


def offer_lines(offered: UninstallView, width: int | None, *, asked: bool = False) -> list[Line]:
    """What goes, what is put back, and what stays although it should not."""
    from ..render.plan import problem_lines, step_lines
    from ..render.text import line, paragraph

    names = [f"policy {name}" for name in offered.policies] + [f"target {name}" for name in offered.targets]
    lines = paragraph(f"Deletes {', '.join(names)}." if names else "No policy and no target is here.", width)
    if offered.interrupts:
        lines += paragraph(f"Releases {', '.join(offered.interrupts)}.", width)
    if offered.steps:
        lines += [line(), *step_lines(offered.steps, width)]
    for problem in offered.problems:
        lines += problem_lines(problem, width)
    if offered.running:
        lines.append(line(("It is under way.", "wait")))
    elif not asked:
        anything = names or offered.steps
        lines += [line(), line(f"Do it: {COMMAND[:-6]}" if anything else "This host is as it was found.")]
    return lines


def ending_lines(left: UninstallView, wrote: bool, width: int | None) -> list[Line]:
    from ..render.plan import problem_lines, step_lines
    from ..render.text import line, paragraph

    lines: list[Line] = []
    for problem in left.problems:
        lines += problem_lines(problem, width)
    if exit_code(left) != 0:
        lines += step_lines(left.steps, width)
        return [*lines, *paragraph("Not finished. It goes on by itself; look: linkwright uninstall", width)]
    lines.append(line(("This host is as it was found.", "good")))
    if wrote:
        lines += paragraph("Cards load firmware values from before at the next restart of this host.", width)
    return [*lines, *paragraph("Now: systemctl disable --now linkwright; linkwright host setup --undo", width)]
