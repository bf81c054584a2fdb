"""The full configuration of a card, kept once, before our first write to it: for a way back by hand."""

from __future__ import annotations

import os

from .world import World


def keep(world: World, pf: str) -> None:
    """Raises what the tool says: a card whose configuration cannot be read is not written."""
    path = world.system.state / "backup" / f"{pf.replace(':', '-')}.txt"
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_suffix(".partial")
    with partial.open("w") as file:
        file.write(world.firmware.backup(pf))
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
