"""What the agent is doing, for people who watch: a short ring of numbered events and a wake-up for readers.

Kept in memory only; what must survive a crash is in the store. Readers ask for "everything after N", so a
client that lost its connection goes on where it stopped (or from the oldest event still kept).
"""

from __future__ import annotations

import threading
import time
from collections import deque

from msgspec import Struct


class Event(Struct, frozen=True, kw_only=True):
    """``awaited``/``since``/``limit_s`` while something is waited for. ``settled``: nothing more to do now."""

    seq: int
    at: float
    kind: str  # step | done | failed | change | waiting | settled
    subject: str = ""
    text: str = ""
    phase: str | None = None
    awaited: str | None = None
    since: float | None = None
    limit_s: float | None = None
    settled: bool = False


class Progress:
    """Thread-safe; one per agent."""

    def __init__(self, keep: int = 512) -> None:
        self._events: deque[Event] = deque(maxlen=keep)
        self._seq = 0
        self._changed = threading.Condition()

    @property
    def last(self) -> int:
        with self._changed:
            return self._seq

    def emit(
        self,
        kind: str,
        subject: str = "",
        text: str = "",
        *,
        phase: str | None = None,
        awaited: str | None = None,
        since: float | None = None,
        limit_s: float | None = None,
        settled: bool = False,
    ) -> None:
        with self._changed:
            self._seq += 1
            self._events.append(
                Event(
                    seq=self._seq,
                    at=time.time(),
                    kind=kind,
                    subject=subject,
                    text=text,
                    phase=phase,
                    awaited=awaited,
                    since=since,
                    limit_s=limit_s,
                    settled=settled,
                )
            )
            self._changed.notify_all()

    def after(self, seq: int, timeout_s: float) -> list[Event]:
        """Events newer than ``seq``; waits up to ``timeout_s`` for the first. Empty on time-out."""
        with self._changed:
            self._changed.wait_for(lambda: self._seq > seq, timeout_s)
            return [event for event in self._events if event.seq > seq]
