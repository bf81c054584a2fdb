"""``linkwright detach``: delete targets and wait until their interfaces are back."""

from __future__ import annotations

import click

from .. import output as out


@click.command("detach")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option("--why", default="", metavar="TEXT", help="A reason, kept in the history.")
@click.option("--no-wait", is_flag=True, help="Return as soon as it is stored.")
@out.output_option
@click.pass_context
def detach(ctx: click.Context, targets: tuple[str, ...], why: str, no_wait: bool, output: str) -> None:
    """Take the interfaces of each TARGET back and forget it; its functions become free.

    \b
    Examples:
      linkwright detach trainer-0
      linkwright detach trainer-0 trainer-1 --why "job 7 is over"
    """
    from .delete import remove

    names = [("Target", name) for name in targets]
    ctx.exit(remove(names, why=why, wait=not no_wait, output=output))
