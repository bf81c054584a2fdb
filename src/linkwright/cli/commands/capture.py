"""``linkwright capture``: what this host shows, without what tells whose it is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from .. import output as out


@click.command("capture")
@click.argument("path", required=False, metavar="[PATH]")
@out.output_option
def capture(path: str | None, output: str) -> None:
    """Write a scrubbed copy of what this host shows of its NICs; changes nothing.

    Serial numbers, GUIDs, MACs, addresses and names are replaced, the same value always by the same one. PATH
    is a new directory, or an archive when it ends in .tar.gz; without it, linkwright-capture-DATE.tar.gz. The
    copy can be looked at (nics --sysroot DIR) and replayed by an emulated host.

    \b
    Examples:
      linkwright capture
      linkwright capture ./gpu-07.capture && linkwright nics --sysroot ./gpu-07.capture
    """
    from linkwright.capture import LAB
    from linkwright.capture import capture as write
    from linkwright.firmware import open_firmware
    from linkwright.kernel.system import System

    from ..render.text import line, paragraph

    target = Path(path or time.strftime("linkwright-capture-%Y%m%d-%H%M%S.tar.gz"))
    system = System.from_environment(os.environ)
    manifest = write(system, open_firmware(system), target)
    if output != "table":
        out.emit({"path": str(target)} | out.jsonable(manifest), output)
        return
    replaced = ", ".join(f"{count} {kind}" for kind, count in manifest.scrubbed.items()) or "nothing"
    lines = [
        line(f"Written: {target}"),
        *paragraph(f"Functions: {len(manifest.functions)}. Replaced: {replaced}.", 100),
    ]
    for missing in manifest.left_out:
        lines += paragraph(f"Not in it: {missing}", out.width(), indent=2, first=0, style="wait")
    archive = target.name.endswith((".tar.gz", ".tgz"))
    if not archive:
        lines.append(line(f"Look at it: linkwright nics --sysroot {target}"))
        if (target / LAB).exists():
            lines.append(line(f"Replay it:  linkwright lab up {target / LAB}"))
    out.show(lines)
