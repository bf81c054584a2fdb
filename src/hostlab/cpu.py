"""Which CPU an emulated host runs on: the one with the fewest hosts, whichever lab they belong to."""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from pathlib import Path

from hostlab.mounts import set_process_name

PROCESS_NAME = "linkwright-lab"


def supervisors() -> list[int]:
    """Process ids of all supervisors on this machine.

    By their names: reading a cmdline waits for the memory map of the other process, which can be stuck.
    """
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                name = Path(entry.path, "comm").read_text().strip()
            except OSError:  # it ended meanwhile
                continue
            if name == PROCESS_NAME:
                found.append(int(entry.name))
    return found


def take() -> int:
    """Bind this process (and the threads and children it will have) to one CPU. Returns its number."""
    # Two hosts that start at once must not choose the same one. The lock is this file: none is left behind.
    with open(__file__, "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        set_process_name(PROCESS_NAME)
        allowed = os.sched_getaffinity(0)
        hosts: Counter[int] = Counter()
        for pid in supervisors():
            try:
                taken = os.sched_getaffinity(pid)
            except OSError:
                continue
            if pid != os.getpid() and len(taken) == 1:
                hosts.update(taken)
        chosen = min(allowed, key=lambda number: (hosts[number], number))
        os.sched_setaffinity(0, {chosen})
    return chosen
