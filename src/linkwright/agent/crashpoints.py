"""Crash points for tests: ends the agent at a chosen point, as a kill or a power loss would.

Off unless the environment names a folder (``LINKWRIGHT_CRASH``). Points are counted in ``points`` there, a line
each, over restarts of the agent and of the host; ``at`` names the wanted ones, a line each: ``17 kill`` ends this
process by SIGKILL, ``17 PATH`` asks for a power loss by writing ``crash`` to PATH (the lab's request pipe).
A point is before and after: every step, every commit, every write of firmware, VF count or driver, every restart.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..kernel import restart, sriov
from .world import World

VARIABLE = "LINKWRIGHT_CRASH"


class Points:
    """The counter. Thread-safe; a point's number is its line in the file, from 1. Both files are read at each
    point, so that a test arms the next run by writing them, without a restart of the agent."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = threading.Lock()

    def reach(self, name: str) -> None:
        """Count this point, and do not return from it if it is a wanted one."""
        with self._lock:
            with open(self._folder / "points", "a+b") as file:
                file.write(f"{name}\n".encode())
                file.seek(0)
                number = file.read().count(b"\n")
            how = _wanted(self._folder / "at").get(number)
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif how is not None:
                Path(how).write_text("crash\n")
                os.kill(os.getpid(), signal.SIGSTOP)  # nothing more of ours happens before the power is gone

    def watch(self, moment: str, subject: str, step: str) -> None:
        self.reach(f"{moment} {step} of {subject}")

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call`` with a point before and after it."""

        @functools.wraps(call)
        def watched(*args: Any, **fields: Any) -> Any:
            self.reach(f"before {name}")
            result = call(*args, **fields)
            self.reach(f"after {name}")
            return result

        return watched


def install(world: World, folder: Path) -> None:
    """Put the points in place; the agent's code itself knows only of ``watch``."""
    points = Points(folder)
    world.watch = points.watch
    world.store.watch(points.reach)
    for owner, name, call in (
        (world.firmware, "firmware write", "write"),
        (world.firmware, "firmware reset", "reset"),
        (restart, "restart", "restart_host"),
        (sriov, "vf count", "_write_count"),
        (sriov, "driver unbind", "unbind"),
    ):
        setattr(owner, call, points.around(name, getattr(owner, call)))


def _wanted(path: Path) -> dict[int, str]:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    return {int(number): how for number, how in (line.split(" ", 1) for line in lines)}
