"""``linkwright version``: what to write into a report of a fault."""

from __future__ import annotations

import contextlib
import platform

import click

from .. import output as out
from ..api import Agent


@click.command("version")
@out.output_option
def version(output: str) -> None:
    """Versions of Linkwright, of the agent that runs, of Python, the kernel and the firmware tools.

    \b
    Examples:
      linkwright version
      linkwright version -o json
    """
    from linkwright import __version__
    from linkwright.model.errors import LinkwrightError

    running = None
    with contextlib.suppress(LinkwrightError):
        running = str(Agent.from_environment().get("/v1/status").get("version") or "unknown")
    facts = {
        "linkwright": __version__,
        "agent": running,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "mstflint": _mstflint(),
    }
    if output != "table":
        out.emit(facts, output)
        return
    from ..render.text import line

    absent = {"agent": "does not run", "mstflint": "not installed"}
    out.show(line(f"{name:<11}", (value, "") if value else (absent[name], "dim")) for name, value in facts.items())


def _mstflint() -> str | None:
    """The tools' version; None when they are not installed."""
    import os

    from linkwright.firmware import open_firmware
    from linkwright.kernel.system import System
    from linkwright.model.errors import LinkwrightError

    try:
        return open_firmware(System.from_environment(os.environ)).version()
    except LinkwrightError:
        return None
