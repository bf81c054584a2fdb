"""``linkwright nics``: from the agent when it runs, else read by this process; never changes anything."""

from __future__ import annotations

import click

from .. import output as out
from ..api import Agent


@click.command("nics")
@click.option(
    "--sysroot", metavar="DIR", help="Look at a captured tree (linkwright capture) instead of this host."
)
@out.output_option
def nics(sysroot: str | None, output: str) -> None:
    """Adapters, ports, functions, the four readings of each port's link mode, fabric, and who uses what.

    Works without the agent and changes nothing. As root it also reads the firmware.

    \b
    Examples:
      linkwright nics
      linkwright nics -o json
      linkwright nics --sysroot ./gpu-07.capture
    """
    from ..views import NicsView, read

    agent = Agent.from_environment()
    hint, source = "", ""
    if sysroot is None and agent.runs():
        raw = agent.get("/v1/nics")
        view = read(raw, NicsView)
        source = "agent runs"
    else:
        from ..local import local_host

        with local_host(sysroot) as host:
            view = host.nics()
            hint = "\n".join(host.hints)
        raw = out.jsonable(view)
        source = "captured" if sysroot else "no agent"
    if output != "table":
        out.emit(raw, output)
        return
    from ..render.nics import nics_lines

    out.show(nics_lines(view, out.width(), source=source, hint=hint))
