"""``linkwright approve``: say yes to what the present plan asks for."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from .. import output as out
from ..api import Agent

if TYPE_CHECKING:
    from linkwright.model.plan import Approval, Plan


@click.command("approve")
@click.argument("policy", required=False)
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Exactly this approval (see status -o json).")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--why", default="", metavar="TEXT", help="A reason, kept in the history.")
@click.option("--no-wait", is_flag=True, help="Return as soon as the yes is stored.")
@out.output_option
@click.pass_context
def approve(
    ctx: click.Context, policy: str | None, keys: tuple[str, ...], yes: bool, why: str, no_wait: bool, output: str
) -> None:
    """Show what waits for a yes, ask, and follow what it sets going. POLICY: only what belongs to it.

    \b
    Examples:
      linkwright approve
      linkwright approve training --yes --why "agreed with team A"
    """
    import msgspec

    from linkwright.model.errors import InvalidInput
    from linkwright.model.plan import Plan

    from .. import doing
    from ..render.plan import plan_lines
    from ..views import read

    agent = Agent.from_environment()
    made = read(agent.post("/v1/plan", {"documents": []}), Plan)
    wanted = [a for a in made.approvals if _belongs(a, policy, made) and (not keys or a.key in keys)]
    if not wanted:
        raise InvalidInput(
            "nothing waits for a yes",
            code="nothing-to-approve",
            where=policy or "",
            next_step="Look: linkwright status",
        )
    asked = msgspec.structs.replace(made, approvals=tuple(wanted))
    if output == "table":
        out.show(plan_lines(asked, out.width()))
    command = shlex.join(["linkwright", "approve", *([policy] if policy else []), "--yes"])
    agreed = doing.ask_for_yes(asked, command, yes)
    answer = agent.post("/v1/approve", {"keys": agreed, "why": why})
    if no_wait:
        ctx.exit(0)
    policies = {
        d.policy for d in made.decisions if d.policy is not None and (policy is None or d.policy == policy)
    }
    ctx.exit(doing.follow(agent, doing.cursor_of(answer), policies=policies, targets=(), output=output))


def _belongs(approval: Approval, policy: str | None, made: Plan) -> bool:
    """As the agent decides it, so that what is shown is what is sent."""
    from linkwright.agent.requests import policy_of

    return policy is None or policy_of(approval, made) == policy
