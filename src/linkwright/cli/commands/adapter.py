"""``linkwright adapter``: what a person says of one card."""

from __future__ import annotations

import click

from .. import output as out
from ..api import Agent


@click.group("adapter")
def adapter() -> None:
    """What a person has to say of one card.

    \b
    Examples:
      linkwright adapter replace 0000:3b:00.0 --why "RMA 4711"
    """


@adapter.command("replace")
@click.argument("pci", metavar="PCI")
@click.option("--why", "--reason", "why", default="", metavar="TEXT", help="A reason, kept in the history.")
@out.output_option
def replace(pci: str, why: str, output: str) -> None:
    """Accept the card that sits at PCI now in the place of the one that was known there.

    Until then nothing is done on a card whose serial number, part number or GUID is not the known one. Targets
    keep their slots. A new VPI card usually arrives in InfiniBand mode; a policy that wants RoCE changes it once.

    \b
    Examples:
      linkwright adapter replace 0000:3b:00.0 --why "RMA 4711"
    """
    answer = Agent.from_environment().post("/v1/adapters/replace", {"pci": pci, "why": why})
    if output != "table":
        out.emit(answer, output)
        return
    from ..render.text import line

    name = " ".join(str(answer[key]) for key in ("model", "serial") if answer.get(key))
    modes = ", ".join(f"{port} {mode or 'mode unknown'}" for port, mode in answer["modes"].items())
    out.show(
        [
            line(f"Accepted at {answer['adapter']}: {name or 'a card that does not tell who it is'} ({modes})."),
            line("What follows from it: linkwright plan"),
        ]
    )
