"""``linkwright agent``: the daemon in the foreground, as its systemd unit starts it."""

from __future__ import annotations

import click


@click.command("agent")
@click.option("--once", is_flag=True, help="Do what is to be done now, then end. For scripts.")
@click.option("--boot-phase", is_flag=True, help="What must be true before containers and guests start, then end.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=90.0, show_default=True, metavar="SECONDS",
    help="How long the boot phase may keep the host's start waiting.",
)  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, help="Log every decision.")
@click.pass_context
def agent(ctx: click.Context, once: bool, boot_phase: bool, timeout: float, verbose: bool) -> None:
    """Run the daemon of this host until it is stopped (Ctrl-C, SIGTERM).

    Exit codes of --once: 0 everything is as asked for, 1 something failed, 3 refused, 4 waits for a person.

    \b
    Examples:
      linkwright agent
      linkwright agent --once
      linkwright agent --boot-phase --timeout 60
    """
    from linkwright.agent.main import run

    ctx.exit(run(once=once, boot_phase_only=boot_phase, timeout_s=timeout, verbose=verbose))
