"""The write-ahead journal: operations that were begun and not yet ended, with their steps in order.

An operation is one thing a recovery has to finish or undo ("attach trainer-0/net1"). Before its intent is
marked, what it did is undone; after it, it is carried on (interlock rule 5). Each step is on the disk before its
effect, so that after a crash the journal holds every effect that can have happened and at most one that did not.
An ended operation leaves no trace here; the history says what was done.
"""

from __future__ import annotations

import time
from typing import Literal

from msgspec import Struct

from .connection import Database

StepState = Literal["begun", "done", "undone", "failed", "interrupted"]


class StepRecord(Struct, frozen=True, kw_only=True):
    """``said``: why it failed. ``interrupted``: begun, and then the process or the host ended."""

    name: str
    state: StepState
    said: str = ""
    at: float = 0.0


class OpenOperation(Struct, frozen=True, kw_only=True):
    """What a recovery reads. ``boot_id`` tells whether a restart has undone the runtime part already."""

    id: int
    kind: str  # "attach", "detach", "mode-change"
    subject: str  # "trainer-0/net1"
    boot_id: str
    begun: float
    intent: bool
    steps: tuple[StepRecord, ...] = ()


class Operation:
    """The writing end of one open operation. Several threads may have one each, never share one."""

    def __init__(self, database: Database, identity: int) -> None:
        self._db = database
        self._id = identity

    def begin(self, step: str) -> None:
        """On disk before the step's effect. The step before it, if still begun, is done: one commit for both."""
        with self._db.transaction() as connection:
            connection.execute("UPDATE steps SET state='done' WHERE operation=? AND state='begun'", (self._id,))
            connection.execute(
                "INSERT INTO steps (operation, seq, name, state, at) "
                "SELECT ?, coalesce(max(seq), 0) + 1, ?, 'begun', ? FROM steps WHERE operation=?",
                (self._id, step, time.time(), self._id),
            )

    def mark(self, step: str, state: StepState, said: str = "") -> None:
        """Say how the newest record of ``step`` ended."""
        self._db.write(
            "UPDATE steps SET state=?, said=? WHERE operation=? AND seq="
            "(SELECT max(seq) FROM steps WHERE operation=? AND name=?)",
            state, said, self._id, self._id, step,
        )  # fmt: skip

    def intend(self) -> None:
        """From here on a recovery rolls forward. Usually in one transaction with the record it speaks of."""
        self._db.write("UPDATE operations SET intent=1 WHERE id=?", self._id)

    def end(self) -> None:
        """The operation is complete, or completely undone."""
        self._db.write("DELETE FROM operations WHERE id=?", self._id)


def begin_operation(database: Database, kind: str, subject: str, boot_id: str) -> Operation:
    """Open an operation, or take up the one about this subject that an interruption left open.

    A subject has one open operation: a detach takes over what is left of an interrupted attach, and the reverse.
    """
    with database.transaction() as connection:
        connection.execute(
            "INSERT INTO operations (kind, subject, boot_id, begun) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (subject) DO UPDATE SET boot_id=excluded.boot_id, kind=excluded.kind, "
            "intent=intent AND kind=excluded.kind",
            (kind, subject, boot_id, time.time()),
        )
        found = connection.execute(
            "SELECT id FROM operations WHERE kind=? AND subject=?", (kind, subject)
        ).fetchone()
        connection.execute("UPDATE steps SET state='interrupted' WHERE operation=? AND state='begun'", found)
    return Operation(database, int(found[0]))


def open_operations(database: Database) -> tuple[OpenOperation, ...]:
    """All that were begun and not ended, oldest first."""
    return tuple(
        OpenOperation(
            id=row[0],
            kind=row[1],
            subject=row[2],
            boot_id=row[3],
            begun=row[4],
            intent=bool(row[5]),
            steps=tuple(
                StepRecord(name=s[0], state=s[1], said=s[2], at=s[3])
                for s in database.query(
                    "SELECT name, state, said, at FROM steps WHERE operation=? ORDER BY seq", row[0]
                )
            ),
        )
        for row in database.query("SELECT id, kind, subject, boot_id, begun, intent FROM operations ORDER BY id")
    )
