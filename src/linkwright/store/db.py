"""What the agent remembers, in ``/var/lib/linkwright/state.db``: documents, attachments, mode changes, history.

Only what people asked for, intent and before-values are kept here; everything else is read from the kernel when
it is needed. Two rules are enforced by the file itself, whoever writes: before-values are never overwritten while
an attachment lives, and one slot (port, VF index) has one attachment.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from linkwright.model.documents import LinkPolicy, Target
from linkwright.model.errors import Refused
from linkwright.model.records import Attachment, AttachmentState, HistoryEntry, KnownCard, ModeChange
from linkwright.model.values import port_label

from .connection import Database, damaged
from .journal import OpenOperation, Operation, begin_operation, open_operations

_T = TypeVar("_T")
_D = TypeVar("_D", LinkPolicy, Target)


class _Rules(Database):
    def before_commit(self, connection: sqlite3.Connection) -> None:
        """One holder a slot. At the end of a transaction, so that two attachments may change places in one."""
        for port, slot, names in connection.execute(
            "SELECT port, slot, group_concat(target || ' ' || interface, ', ') FROM attachments "
            "GROUP BY port, slot HAVING count(*) > 1"
        ):
            label = "its PF" if slot < 0 else f"VF {slot}"
            raise Refused(
                f"{label} would have two holders: {names}.",
                rule=1, code="slot-taken", where=port_label(port), holder=names,
                next_step="Detach one of them first: linkwright detach TARGET",
            )  # fmt: skip


class Store:
    """The state file. Any thread may call any method; each write is on the disk when its method returns
    (or, inside ``transaction()``, when that block ends).

    Raises NeedsPerson ``state-newer`` (written by a newer version), ``state-damaged``, ``state-unwritable`` (disk
    full, read-only), Busy ``state-busy``. ``read_only`` is for the command line: nothing is made, migrated or
    written, and a file that does not exist yet reads as empty.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._db = _Rules(path, read_only=read_only)

    @property
    def path(self) -> Path:
        return self._db.path

    def close(self) -> None:
        self._db.close()

    def watch(self, watcher: Callable[[str], None]) -> None:
        """``watcher`` is called with "before commit" and "after commit" around every commit: crash tests."""
        self._db.watch = watcher

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several writes of this thread in one commit: all on the disk when the block ends, none if it raises."""
        with self._db.transaction():
            yield

    def check(self) -> None:
        """Read the whole file: raises NeedsPerson ``state-damaged`` where a page or a value cannot be read."""
        self._db.check()
        self.policies(), self.targets(), self.attachments(), self.changes(), self.cards(), self.open_operations()

    # -- documents

    def policies(self) -> tuple[LinkPolicy, ...]:
        return self._documents("policies", LinkPolicy)

    def targets(self) -> tuple[Target, ...]:
        return self._documents("targets", Target)

    def generations(self) -> dict[str, int]:
        """Policy name → generation; 1 at first, one more each time the spec changed."""
        return self._generations("policies")

    def target_generations(self) -> dict[str, int]:
        return self._generations("targets")

    def put_policy(self, doc: LinkPolicy) -> int:
        """Store it; returns its generation, which counts up only when the spec changed (labels do not count)."""
        return self._put_document("policies", doc)

    def put_target(self, doc: Target) -> int:
        return self._put_document("targets", doc)

    def raise_generations(self, known: Iterable[tuple[str, str, int]]) -> None:
        """(policies or targets, name, generation): none counts again from below what it once was."""
        with self._db.transaction() as connection:
            connection.executemany(
                "INSERT INTO generations (kind, name, generation) VALUES (?, ?, ?) "
                "ON CONFLICT (kind, name) DO UPDATE SET generation=max(generation, excluded.generation)",
                list(known),
            )

    def delete_policy(self, name: str) -> bool:
        """True if there was one. Its generation is remembered: made again, it goes on counting."""
        return self._db.write("DELETE FROM policies WHERE name=?", name) > 0

    def delete_target(self, name: str) -> bool:
        return self._db.write("DELETE FROM targets WHERE name=?", name) > 0

    # -- attachments

    def attachments(self) -> tuple[Attachment, ...]:
        rows = self._db.query("SELECT record FROM attachments ORDER BY target, interface")
        return tuple(_decode(row[0], Attachment, self.path) for row in rows)

    def attachment(self, target: str, interface: str) -> Attachment | None:
        rows = self._db.query("SELECT record FROM attachments WHERE target=? AND interface=?", target, interface)
        return _decode(rows[0][0], Attachment, self.path) if rows else None

    def put_attachment(self, attachment: Attachment) -> Attachment:
        """Store it, and return what is stored: before-values already on record stay while the attachment lives.

        A record that says nothing of them keeps the stored ones; it ends its life (and they go) by becoming
        ASSIGNED without them. Raises Refused ``before-values-kept`` for values that differ from the stored ones,
        ``slot-taken`` when another attachment has the slot at the end of the transaction.
        """
        with self._db.transaction() as connection:
            old = self.attachment(attachment.target, attachment.interface)
            if old is not None and old.before is not None:
                attachment = _keep_before(old, attachment)
            connection.execute(
                "INSERT INTO attachments (target, interface, port, slot, record) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (target, interface) "
                "DO UPDATE SET port=excluded.port, slot=excluded.slot, record=excluded.record",
                (
                    attachment.target,
                    attachment.interface,
                    attachment.port,
                    -1 if attachment.vf_index is None else attachment.vf_index,
                    _encode(attachment),
                ),
            )
        return attachment

    def delete_attachment(self, target: str, interface: str) -> bool:
        """True if there was one. What an interruption left open in the journal about it goes too."""
        with self._db.transaction() as connection:
            connection.execute("DELETE FROM operations WHERE subject=?", (f"{target}/{interface}",))
            done = connection.execute(
                "DELETE FROM attachments WHERE target=? AND interface=?", (target, interface)
            )
            return done.rowcount > 0

    # -- mode changes

    def changes(self) -> tuple[ModeChange, ...]:
        """The newest of each policy, open or ended, by policy name."""
        rows = self._db.query(
            "SELECT record FROM changes WHERE id IN (SELECT max(id) FROM changes GROUP BY policy) ORDER BY policy"
        )
        return tuple(_decode(row[0], ModeChange, self.path) for row in rows)

    def change_history(self, policy: str, limit: int = 20) -> tuple[ModeChange, ...]:
        """All changes of a policy, newest first."""
        rows = self._db.query("SELECT record FROM changes WHERE policy=? ORDER BY id DESC LIMIT ?", policy, limit)
        return tuple(_decode(row[0], ModeChange, self.path) for row in rows)

    def put_change(self, change: ModeChange) -> None:
        """Store it. (policy, generation, started) is its key: a retry starts anew and is a change of its own."""
        self._db.write(
            "INSERT INTO changes (policy, generation, started, record) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (policy, generation, started) DO UPDATE SET record=excluded.record",
            change.policy, change.generation, change.started, _encode(change),
        )  # fmt: skip

    # -- cards

    def cards(self) -> dict[str, KnownCard]:
        """The known card behind each PF, by the PF's address."""
        rows = self._db.query("SELECT record FROM cards ORDER BY pf")
        return {card.pf: card for card in (_decode(row[0], KnownCard, self.path) for row in rows)}

    def put_cards(self, cards: Iterable[KnownCard]) -> None:
        with self._db.transaction() as connection:
            connection.executemany(
                "INSERT INTO cards (pf, record) VALUES (?, ?) "
                "ON CONFLICT (pf) DO UPDATE SET record=excluded.record",
                [(card.pf, _encode(card)) for card in cards],
            )

    def every_change(self) -> tuple[ModeChange, ...]:
        """All changes of all policies, deleted ones too, oldest first."""
        rows = self._db.query("SELECT record FROM changes ORDER BY id")
        return tuple(_decode(row[0], ModeChange, self.path) for row in rows)

    # -- notes: few words that outlive a restart (VF counts from before, what is being taken back)

    def notes(self, prefix: str) -> dict[str, str]:
        """Notes whose name begins so: the rest of the name → its text."""
        rows = self._db.query("SELECT name, value FROM settings WHERE substr(name, 1, ?) = ?", len(prefix), prefix)
        return {str(name)[len(prefix) :]: str(value) for name, value in rows}

    def put_note(self, name: str, text: str, *, keep: bool = False) -> None:
        """``keep``: a note of this name that is there already stays as it is."""
        conflict = "DO NOTHING" if keep else "DO UPDATE SET value=excluded.value"
        insert = "INSERT INTO settings (name, value) VALUES (?, ?)"
        self._db.write(f"{insert} ON CONFLICT (name) {conflict}", name, text)

    def drop_note(self, name: str) -> None:
        self._db.write("DELETE FROM settings WHERE name=?", name)

    # -- approvals, freeze, history

    def approvals(self) -> frozenset[str]:
        return frozenset(row[0] for row in self._db.query("SELECT key FROM approvals"))

    def approved_by(self) -> dict[str, str]:
        """Who gave each yes: key → ``uid 0 (pid 4711)``."""
        return {str(key): str(who) for key, who in self._db.query("SELECT key, who FROM approvals")}

    def add_approvals(self, keys: Iterable[str], who: str) -> None:
        now = time.time()
        with self._db.transaction() as connection:
            connection.executemany(
                "INSERT INTO approvals (key, who, at) VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING",
                [(key, who, now) for key in keys],
            )

    def remove_approvals(self, keys: Iterable[str]) -> None:
        with self._db.transaction() as connection:
            connection.executemany("DELETE FROM approvals WHERE key=?", [(key,) for key in keys])

    def frozen_by(self) -> str:
        """Who froze this host and why, in words; empty when it is not frozen."""
        rows = self._db.query("SELECT value FROM settings WHERE name='frozen'")
        return str(rows[0][0]) if rows else ""

    def freeze(self, text: str) -> None:
        """Outlives restarts; ``text`` says who and why."""
        self._db.write(
            "INSERT INTO settings (name, value) VALUES ('frozen', ?) "
            "ON CONFLICT (name) DO UPDATE SET value=excluded.value",
            text or "somebody",
        )

    def unfreeze(self) -> None:
        self._db.write("DELETE FROM settings WHERE name='frozen'")

    def history(self, limit: int = 100) -> tuple[HistoryEntry, ...]:
        """Newest first."""
        rows = self._db.query("SELECT entry FROM history ORDER BY id DESC LIMIT ?", limit)
        return tuple(_decode(row[0], HistoryEntry, self.path) for row in rows)

    def add_history(self, entry: HistoryEntry) -> None:
        self._db.write("INSERT INTO history (at, entry) VALUES (?, ?)", entry.at, _encode(entry))

    # -- journal

    def begin_operation(self, kind: str, subject: str, boot_id: str) -> Operation:
        """Open an operation in the journal, or take up the one that an interruption left open."""
        return begin_operation(self._db, kind, subject, boot_id)

    def open_operations(self) -> tuple[OpenOperation, ...]:
        """What a recovery has to finish or undo, oldest first."""
        return open_operations(self._db)

    def close_operation(self, identity: int) -> None:
        """A recovery found that nothing is left of it."""
        self._db.write("DELETE FROM operations WHERE id=?", identity)

    # -- within

    def _documents(self, table: str, kind: type[_D]) -> tuple[_D, ...]:
        rows = self._db.query(f"SELECT document FROM {table} ORDER BY name")
        return tuple(_decode(row[0], kind, self.path) for row in rows)

    def _generations(self, table: str) -> dict[str, int]:
        rows = self._db.query(
            f"SELECT name, generation FROM generations JOIN {table} USING (name) WHERE kind=? ORDER BY name", table
        )
        return {str(name): int(generation) for name, generation in rows}

    def _put_document(self, table: str, doc: LinkPolicy | Target) -> int:
        with self._db.transaction() as connection:
            old = connection.execute(f"SELECT document FROM {table} WHERE name=?", (doc.name,)).fetchone()
            kept = None if old is None else _decode(old[0], type(doc), self.path)
            changed = kept is None or kept.spec != doc.spec
            connection.execute(
                f"INSERT INTO {table} (name, document) VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET document=excluded.document",
                (doc.name, _encode(doc)),
            )
            if changed:
                connection.execute(
                    "INSERT INTO generations (kind, name, generation) VALUES (?, ?, 1) "
                    "ON CONFLICT (kind, name) DO UPDATE SET generation=generation + 1",
                    (table, doc.name),
                )
            row = connection.execute(
                "SELECT generation FROM generations WHERE kind=? AND name=?", (table, doc.name)
            ).fetchone()
            return int(row[0])


def _keep_before(old: Attachment, new: Attachment) -> Attachment:
    if new.before is None:
        if new.state is AttachmentState.ASSIGNED:
            return new
        return msgspec.structs.replace(new, before=old.before)
    if new.before != old.before:
        raise Refused(
            f"{new.target} {new.interface}: its values from before are on record and are not overwritten while it "
            "is attached.",
            rule=5, code="before-values-kept", where=new.function or new.port,
            next_step=f"Detach it first: linkwright detach {new.target}",
        )  # fmt: skip
    return new


def _encode(record: object) -> str:
    return msgspec.json.encode(record).decode()


def _decode(text: str, kind: type[_T], path: Path) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise damaged(path, f"a {kind.__name__} in it: {error}") from error
