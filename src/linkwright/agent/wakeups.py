"""What makes the agent look again: kernel link events, container events, the API, and a slow safety tick.

Every source only *wakes*; what happened is read from the kernel in the next pass. So a lost or doubled event
costs a look, never a wrong decision.
"""

from __future__ import annotations

import logging
import select
import threading
from collections.abc import Callable

from ..kernel.system import System

log = logging.getLogger(__name__)

NETLINK_ROUTE = 0
RTMGRP_LINK = 1  # legacy bitmask of RTNLGRP_LINK


class Wakeups:
    """A condition with reasons. ``wait`` returns the reasons gathered since the last call."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()
        self._condition = threading.Condition()
        self._stopping = False

    def wake(self, reason: str) -> None:
        with self._condition:
            self._reasons.add(reason)
            self._condition.notify_all()

    def stop(self) -> None:
        with self._condition:
            self._stopping = True
            self._condition.notify_all()

    @property
    def stopping(self) -> bool:
        return self._stopping

    def wait_stop(self, timeout_s: float) -> None:
        """Block until stopped or timed out; reasons stay for the next ``wait``."""
        with self._condition:
            self._condition.wait_for(lambda: self._stopping, timeout_s)

    def wait(self, timeout_s: float) -> set[str]:
        """Block until woken, stopped or timed out; an empty set means time-out or stop."""
        with self._condition:
            self._condition.wait_for(lambda: self._reasons or self._stopping, timeout_s)
            reasons, self._reasons = self._reasons, set()
            return reasons


class LinkEvents:
    """A thread that reads RTM_NEWLINK/DELLINK of the host's namespace and wakes on each burst."""

    def __init__(self, system: System, wake: Callable[[str], None]) -> None:
        self._system = system
        self._wake = wake
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="link-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                subscription = self._system.netlink.subscribe(NETLINK_ROUTE, RTMGRP_LINK)
            except OSError as error:
                log.warning("link events are not available: %s", error)
                if self._stop.wait(5):
                    return
                continue
            try:
                poller = select.poll()
                poller.register(subscription.fileno(), select.POLLIN)
                while not self._stop.is_set():
                    if poller.poll(1000):
                        subscription.read()
                        self._wake("link")
            except (OSError, EOFError) as error:
                # ENOBUFS (events lost) and a closed server both mean: look again, subscribe again.
                log.info("link events interrupted: %s", error)
                self._wake("link")
                if self._stop.wait(0.2):
                    return
            finally:
                subscription.close()
