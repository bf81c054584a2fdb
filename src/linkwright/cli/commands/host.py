"""``linkwright host``: what this host itself needs. Works without the agent."""

from __future__ import annotations

import click

from .. import output as out


@click.group("host")
def host() -> None:
    """Files of this host that keep its network managers off the functions.

    \b
    Examples:
      linkwright host setup          show what would be written
      linkwright host setup --yes    write it
      linkwright host setup --undo --yes
    """


@host.command("setup")
@click.option("--undo", is_flag=True, help="Take away what an earlier setup wrote.")
@click.option("--yes", is_flag=True, help="Do it; without it, it is only shown.")
@out.output_option
def setup(undo: bool, yes: bool, output: str) -> None:
    """Let NetworkManager, networkd, ifupdown and udev leave functions alone that move into containers and back.

    Marks the functions of every port that Linkwright may use: not those that are protected, that carry the host's
    own traffic, or that another tool manages. Shows the files first; writes with --yes. Run it again after
    host.yaml changed.

    \b
    Examples:
      linkwright host setup
      linkwright host setup --yes
      linkwright host setup --undo --yes
    """
    from linkwright import hostsetup
    from linkwright.hostsetup.setup import AFTERWARDS

    from ..local import local_host
    from ..render.text import Line, line

    with local_host() as local:
        root = local.world.system.proc.parent
        changes = hostsetup.to_remove(root) if undo else hostsetup.to_write(root, local.usable_ports())
    said = hostsetup.apply(root, changes) if yes else []
    if output != "table":
        files = [{"path": c.path, "before": c.before, "after": c.after, "why": c.why} for c in changes]
        out.emit({"files": files, "done": yes, "not_told": said}, output)
        return
    lines: list[Line] = []
    for change in changes:
        verb = "remove" if change.after is None else "change" if change.before is not None else "write"
        lines.append(line((f"{verb} {change.path}", "bold"), f"  {change.why}"))
        lines += [line((f"    {text}", "dim")) for text in (change.after or "").splitlines()]
    option = " --undo" if undo else ""
    if not changes:
        lines.append(line("Nothing to take away." if undo else "Everything is in place."))
    elif not yes:
        lines.append(line(f"Nothing was changed. Do it: linkwright host setup{option} --yes"))
    else:
        lines.append(line(f"Done. For devices that are there already: {AFTERWARDS}"))
    lines += [line((f"Note: {text}", "wait")) for text in said]
    out.show(lines)
