"""``linkwright retry``: a failed or waiting mode change once more, with a reason that stays in the history."""

from __future__ import annotations

import click

from .. import output as out
from ..api import Agent


@click.command("retry")
@click.argument("policy")
@click.option(
    "--why",
    "--reason",
    "why",
    required=True,
    metavar="TEXT",
    help="What changed since it failed; kept in the history.",
)
@click.option("--no-wait", is_flag=True, help="Return as soon as it is stored.")
@out.output_option
@click.pass_context
def retry(ctx: click.Context, policy: str, why: str, no_wait: bool, output: str) -> None:
    """Let the failed mode change of POLICY run once more. A verdict is final until somebody says so.

    \b
    Examples:
      linkwright retry training --reason "power cycled"
    """
    from .. import doing

    agent = Agent.from_environment()
    answer = agent.post("/v1/retry", {"policy": policy, "why": why})
    if no_wait:
        ctx.exit(0)
    ctx.exit(doing.follow(agent, doing.cursor_of(answer), policies=[policy], targets=(), output=output))
