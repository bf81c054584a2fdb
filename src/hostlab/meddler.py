"""A network manager that meddles: it takes every netdev that appears on the host for its own.

As NetworkManager, networkd or a udev rule would without ``linkwright host setup``: some time after a function's
netdev came back it is brought up, given an address, and renamed. What comes too late (it left again) fails.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import threading


class Meddler:
    """``delay_s``: how long after a netdev appeared. ``netns``: the host's, kept open until ``stop``."""

    def __init__(self, netns: int, delay_s: float) -> None:
        self._netns = os.dup(netns)
        self._delay_s = delay_s
        self._numbers = itertools.count()
        self._stopped = threading.Event()
        self.done: list[str] = []

    def appeared(self, name: str) -> None:
        """Called for each netdev that is new in the host's namespace; returns at once."""
        if not self._stopped.is_set() and not name.startswith("meddled"):
            threading.Thread(target=self._meddle, args=(name,), name="meddler", daemon=True).start()

    def stop(self) -> None:
        if not self._stopped.is_set():
            self._stopped.set()
            os.close(self._netns)

    def _meddle(self, name: str) -> None:
        if self._stopped.wait(self._delay_s):
            return
        number = next(self._numbers)
        other = f"meddled{number}"
        commands = (
            f"link set dev {name} up\naddress add 192.0.2.{number % 250 + 1}/32 dev {name}\n"
            f"link set dev {name} down\nlink set dev {name} name {other}\nlink set dev {other} up\n"
        )
        try:
            subprocess.run(
                ["nsenter", f"--net=/proc/self/fd/{self._netns}", "ip", "-force", "-batch", "-"],
                input=commands,
                text=True,
                capture_output=True,
                pass_fds=(self._netns,),
                check=False,
                timeout=30,
            )
        except (OSError, subprocess.TimeoutExpired):
            return  # the host went away in the middle
        self.done.append(name)
