"""One call of a vendor's tool per adapter at a time, also across processes and across an agent's death.

A card has one gateway in its config space with one semaphore; two tools at once wait on each other or fail, and
a tool that is killed can leave the semaphore taken, after which every later open fails. So the lock is an
flock on a file per adapter whose descriptor the tool inherits: while the tool runs the lock is held, even when
the process that started it is gone.

Adapters are told apart by domain, bus and device: that is what shares a gateway.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from linkwright.model.errors import Busy, NeedsPerson


class AdapterLocks:
    """Locks in ``directory`` (``System.run/locks``). ``wait_s``: how long to wait for another's call to end."""

    def __init__(self, directory: Path, *, wait_s: float = 300.0) -> None:
        self._directory = directory
        self._wait_s = wait_s

    @contextmanager
    def hold(self, pf: str) -> Iterator[int]:
        """Hold the adapter of ``pf``; yields the descriptor to pass to the child (``pass_fds``).

        Raises Busy ``firmware-busy`` when another call goes on for longer than the wait, NeedsPerson
        ``needs-root`` when the lock file cannot be made."""
        path = self._directory / f"{pf.rpartition('.')[0]}.lock"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            raise NeedsPerson(
                f"the lock {path} of this adapter cannot be opened: {e.strerror}",
                code="needs-root",
                where=pf,
                next_step="Run it as root: the vendor's tools need that too.",
            ) from e
        try:
            self._lock(descriptor, pf)
            yield descriptor
        finally:
            os.close(descriptor)  # a child that still runs keeps the lock through its own copy

    def _lock(self, descriptor: int, pf: str) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        # flock has no time limit and no event; so a thread waits in it, on a copy of the descriptor. A copy
        # shares the lock; when the wait was in vain the thread closes its copy, and with it what it got.
        copy = os.dup(descriptor)
        waiter = _Waiter(copy)
        waiter.start()
        if not waiter.take(self._wait_s):
            raise Busy(
                f"another firmware call on this adapter has run for more than {self._wait_s:.0f} s",
                code="firmware-busy",
                where=pf,
                next_step=f"See what holds it: fuser -v {self._directory}/{pf.rpartition('.')[0]}.lock",
            )


class _Waiter(threading.Thread):
    def __init__(self, descriptor: int) -> None:
        super().__init__(daemon=True, name="adapter-lock")
        self._descriptor = descriptor
        self._got = threading.Event()

    def run(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        finally:
            os.close(self._descriptor)
        self._got.set()

    def take(self, wait_s: float) -> bool:
        return self._got.wait(wait_s)
