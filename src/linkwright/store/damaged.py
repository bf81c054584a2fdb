"""A damaged state file: set aside under another name, and what can still be read of it.

SQLite finds damage page by page, so much of a damaged file is often whole. What is read must decode as the model's
values; a row that does not is left out. The file itself is never written again: it is evidence, and a person may
know more of it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from linkwright.model.documents import LinkPolicy, Target
from linkwright.model.errors import LinkwrightError
from linkwright.model.records import Attachment, HistoryEntry, KnownCard, ModeChange

from .db import Store

_T = TypeVar("_T")
DAMAGE = ("state-damaged", "state-fault")  # a damaged schema shows as missing tables and columns
ASIDE = ".damaged"  # while the state is rebuilt; then with the time behind it


class Salvaged(Struct, frozen=True, kw_only=True):
    """What was still to be read. ``aside``: where the damaged file is now; ``why``: SQLite's words."""

    aside: Path
    why: str
    policies: tuple[LinkPolicy, ...] = ()
    targets: tuple[Target, ...] = ()
    generations: tuple[tuple[str, str, int], ...] = ()  # (policies | targets, name, generation)
    attachments: tuple[Attachment, ...] = ()
    changes: tuple[ModeChange, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    cards: tuple[KnownCard, ...] = ()
    frozen: str = ""


def open_store(path: Path) -> tuple[Store, Salvaged | None]:
    """The store at ``path``, checked as a whole; a damaged one is set aside and a fresh one is made in its place.

    What was salvaged is not stored yet: whoever knows the kernel does that (``agent.rebuild``) and calls ``kept``;
    until then every start comes here with the same salvage. Raises NeedsPerson ``state-newer``,
    ``state-unwritable``, Busy ``state-busy``.
    """
    aside, why = path.with_name(path.name + ASIDE), "the rebuilding was cut off"
    if not aside.exists():
        try:
            store = Store(path)
            try:
                store.check()
            except BaseException:
                store.close()
                raise
            return store, None
        except LinkwrightError as error:
            if error.code not in DAMAGE:
                raise
            why = error.message.removeprefix("is damaged (").removesuffix(").")
        path.rename(aside)
    if not path.exists():
        for suffix in ("-wal", "-shm"):  # never beside the fresh file: SQLite would read them into it
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    _sync(path.parent)
    return Store(path), _salvage(aside, why)


def kept(salvaged: Salvaged) -> Path:
    """The fresh store holds what was salvaged: give the damaged file its lasting name, and return it."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    lasting = salvaged.aside.with_name(f"{salvaged.aside.name}-{stamp}")
    for suffix in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            salvaged.aside.with_name(salvaged.aside.name + suffix).rename(lasting.with_name(lasting.name + suffix))
    _sync(lasting.parent)
    return lasting


def _sync(folder: Path) -> None:
    """Names are on disk when this returns."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _salvage(aside: Path, why: str) -> Salvaged:
    try:
        connection = sqlite3.connect(f"{aside.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    except sqlite3.Error:
        return Salvaged(aside=aside, why=why)
    with closing(connection):
        frozen = [str(row[0]) for row in _rows(connection, "SELECT value FROM settings WHERE name='frozen'")]
        return Salvaged(
            aside=aside,
            why=why,
            policies=tuple(_values(connection, "SELECT document FROM policies ORDER BY rowid", LinkPolicy)),
            targets=tuple(_values(connection, "SELECT document FROM targets ORDER BY rowid", Target)),
            generations=tuple(
                (kind, name, number)
                for kind, name, number in _rows(connection, "SELECT kind, name, generation FROM generations")
                if isinstance(kind, str) and isinstance(name, str) and isinstance(number, int)
            ),
            attachments=tuple(_values(connection, "SELECT record FROM attachments ORDER BY rowid", Attachment)),
            changes=tuple(_values(connection, "SELECT record FROM changes ORDER BY id", ModeChange)),
            history=tuple(_values(connection, "SELECT entry FROM history ORDER BY id", HistoryEntry)),
            cards=tuple(_values(connection, "SELECT record FROM cards ORDER BY pf", KnownCard)),
            frozen=frozen[0] if frozen else "",
        )


def _rows(connection: sqlite3.Connection, sql: str) -> Iterator[tuple[Any, ...]]:
    """Rows up to the first page that cannot be read."""
    with suppress(sqlite3.Error, UnicodeDecodeError):  # the latter: sqlite3 quotes a damaged schema
        yield from connection.execute(sql)


def _values(connection: sqlite3.Connection, sql: str, kind: type[_T]) -> Iterator[_T]:
    for row in _rows(connection, sql):
        with suppress(msgspec.DecodeError, TypeError):
            yield msgspec.json.decode(row[0], type=kind)
