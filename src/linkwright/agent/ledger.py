"""The moves of mode changes: each is stored before what it announces is done, then told to whoever watches.

Also when to look again while something is awaited that may come without an event.
"""

from __future__ import annotations

import logging
import time

import msgspec

from ..model.records import HistoryEntry, ModeChange, Phase
from .world import World

log = logging.getLogger(__name__)

GOES_ON = frozenset(
    {
        "external-restart",
        "window-closed",
        "hook-not-yet",
        "firmware-busy",
        "no-subnet-manager",
        "link-down",
        "guid-zero",
    }
)
"""Reasons for which a change waits and goes on by itself; all others wait for ``linkwright retry``."""


class Ledger:
    """One per agent; used from the reconcile loop only."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.look_again_s: float | None = None

    def look_within(self, seconds: float) -> None:
        seconds = max(0.05, seconds)
        self.look_again_s = seconds if self.look_again_s is None else min(seconds, self.look_again_s)

    def awaits(self, change: ModeChange, text: str, awaited: str, limit_s: float | None = None) -> None:
        """Say what is awaited, since when and how long at most; nothing is stored."""
        self._world.progress.emit(
            "waiting",
            f"policy {change.policy}",
            text,
            phase=change.phase.value,
            awaited=awaited,
            since=change.phase_since,
            limit_s=limit_s,
        )

    def move(self, change: ModeChange, phase: Phase, **fields: object) -> ModeChange:
        """To the next station; what was said of an earlier stop is over, unless ``fields`` say more."""
        over = {"reason_code": "", "detail": "", "next_step": "", "stopped_at": None}
        return self._store(change, phase, **(over | fields))

    def keep(self, change: ModeChange, **fields: object) -> ModeChange:
        """Store more about a change that stays where it stands, since when it does."""
        new: ModeChange = msgspec.structs.replace(change, **fields)
        self._world.store.put_change(new)
        return new

    def fail(
        self, change: ModeChange, code: str, text: str, next_step: str, **fields: object
    ) -> ModeChange:
        """A verdict: final until a person's retry."""
        log.error("policy %s generation %s failed: %s", change.policy, change.generation, text)
        return self._stop(change, Phase.FAILED, change.stopped_at or change.phase, code, text, next_step, **fields)

    def wait(self, change: ModeChange, at: Phase, code: str, text: str, next_step: str) -> bool:
        """Wait at a station; True when that is news."""
        told = (change.phase, change.stopped_at, change.reason_code, change.detail)
        if told == (Phase.WAITING, at, code, text):
            return False
        self._stop(change, Phase.WAITING, at, code, text, next_step)
        return True

    def end(self, change: ModeChange, code: str, text: str) -> None:
        """Given up, because nobody wants it any more; nothing of it is staged."""
        self._stop(change, Phase.ENDED, change.stopped_at or change.phase, code, text, "")

    def done(self, change: ModeChange, detail: str) -> None:
        self._store(change, Phase.DONE, reason_code="", detail=detail, next_step="", stopped_at=None)
        self._note(change, f"{change.wanted.value} is in force", detail)

    def _stop(
        self, change: ModeChange, phase: Phase, at: Phase, code: str, text: str, next_step: str, **fields: object
    ) -> ModeChange:
        stored = self._store(
            change, phase, stopped_at=at, reason_code=code, detail=text, next_step=next_step, **fields
        )
        if phase is not Phase.WAITING or code not in GOES_ON:
            self._note(change, f"{phase.value} ({code})", text)
        return stored

    def _note(self, change: ModeChange, what: str, why: str) -> None:
        subject = f"policy {change.policy} generation {change.generation}"
        entry = HistoryEntry(at=time.time(), who="agent", what=f"{subject}: {what}", why=why)
        self._world.store.add_history(entry)

    def _store(self, change: ModeChange, phase: Phase, **fields: object) -> ModeChange:
        new: ModeChange = msgspec.structs.replace(change, phase=phase, phase_since=time.time(), **fields)
        self._world.store.put_change(new)
        text = new.detail or phase.value
        self._world.progress.emit("change", f"policy {new.policy}", text, phase=phase.value)
        return new
