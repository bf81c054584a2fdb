"""One SQLite file: how it is opened, migrated and written, and what its failures mean to a person.

WAL with ``synchronous=FULL``: each commit is on the disk (fsync of the log) before it returns, which is what
write-ahead needs; readers do not wait for the writer. One connection a thread, since SQLite's locking between
connections is what keeps threads, the command line and a second agent apart. A write transaction begins with
``BEGIN IMMEDIATE``, so that two writers meet at its start and never in its middle.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from linkwright.model.errors import Busy, LinkwrightError, NeedsPerson

from . import schema

BUSY_TIMEOUT_S = 10.0


class Database:
    """Connections to one file. ``read_only``: nothing is made or migrated; a missing file reads as empty."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self._local = threading.local()
        self._all: list[sqlite3.Connection] = []
        self.watch: Callable[[str], None] = lambda moment: None  # called around every commit
        self._guard = threading.Lock()
        with self._explained():
            if read_only:
                self._check_version(self._connection())
            else:
                self._make_directory()
                self._migrate(self._connection())

    def close(self) -> None:
        with self._guard:
            for connection in self._all:
                connection.close()
            self._all.clear()
        self._local = threading.local()

    def query(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        with self._explained():
            return self._connection().execute(sql, args).fetchall()

    def write(self, sql: str, *args: Any) -> int:
        """One statement, committed at once if this thread has no ``transaction()`` open. Returns the row count."""
        with self.transaction() as connection:
            return connection.execute(sql, args).rowcount

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Several writes in one commit: all on the disk when the block ends, none if it raises. Nests."""
        with self._explained():
            connection = self._connection()
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                self.before_commit(connection)
                self.watch("before commit")
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self.watch("after commit")

    def check(self) -> None:
        """SQLite's own check of every page; raises NeedsPerson ``state-damaged``."""
        said = [str(row[0]) for row in self.query("PRAGMA quick_check(1)")]
        if said != ["ok"]:
            raise damaged(self.path, "; ".join(said))

    def before_commit(self, connection: sqlite3.Connection) -> None:
        """Rules over several rows, checked once at the end of a transaction; raise to roll it back."""

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._open()
            self._local.connection = connection
            with self._guard:
                self._all.append(connection)
        return connection

    def _open(self) -> sqlite3.Connection:
        if self.read_only and not self.path.exists():
            connection = _connect(":memory:")
            for script in schema.MIGRATIONS:
                connection.executescript(script)
            connection.execute(f"PRAGMA user_version={schema.VERSION}")
            return connection
        mode = "ro" if self.read_only else "rwc"
        connection = _connect(f"{self.path.absolute().as_uri()}?mode={mode}")
        connection.execute("PRAGMA foreign_keys=ON")
        if not self.read_only:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
        return connection

    def _make_directory(self) -> None:
        directory = self.path.parent
        if not directory.is_dir():
            directory.mkdir(parents=True, mode=0o700)
            descriptor = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _check_version(self, connection: sqlite3.Connection) -> int:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > schema.VERSION:
            raise NeedsPerson(
                f"was written by a newer Linkwright (format {version}; this one knows up to {schema.VERSION}). "
                "Nothing was read or changed.",
                code="state-newer",
                where=str(self.path),
                next_step="Install that newer version again, or restore the backup that it made beside the file.",
            )
        if self.read_only and version < schema.VERSION:
            raise Busy(
                f"has format {version}; the agent brings it to format {schema.VERSION} when it starts.",
                code="state-older",
                where=str(self.path),
                next_step="Start the agent: systemctl start linkwright",
            )
        return version

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if self._check_version(connection) == schema.VERSION:
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = self._check_version(connection)  # again: another process may have been first
            if 0 < version < schema.VERSION:
                self._backup(version)
            for script in schema.MIGRATIONS[version:]:
                for statement in _statements(script):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version={schema.VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if version == 0:
            self.path.chmod(0o600)

    def _backup(self, version: int) -> None:
        """``state.db`` → ``state.db.v1``, complete and synced before the first change of the format."""
        source = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
        copy = sqlite3.connect(self.path.with_name(f"{self.path.name}.v{version}"))
        try:
            source.backup(copy)
        finally:
            copy.close()
            source.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's and the file system's errors in the words of the error tree."""
        try:
            yield
        except LinkwrightError:
            raise
        except sqlite3.Error as error:
            raise self._explain(error) from error
        except UnicodeDecodeError as error:  # sqlite3 quotes a damaged schema in its error, and cannot
            raise damaged(self.path, str(error)) from error
        except OSError as error:
            if error.filename is None or not str(error.filename).startswith(str(self.path.parent)):
                raise  # not ours: raised by the caller inside its transaction
            raise self._unwritable(str(error.strerror)) from error

    def _explain(self, error: sqlite3.Error) -> LinkwrightError:
        code = getattr(error, "sqlite_errorcode", None)
        primary = None if code is None else code & 0xFF
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Busy(
                f"is being written by another process for more than {BUSY_TIMEOUT_S:.0f} s.",
                code="state-busy", where=str(self.path), next_step=f"Look who has it open: fuser -v {self.path}",
            )  # fmt: skip
        if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return damaged(self.path, str(error))
        if primary in (
            sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_PERM,
        ):  # fmt: skip
            return self._unwritable(str(error))
        return LinkwrightError(f"could not be used: {error}.", code="state-fault", where=str(self.path))

    def _unwritable(self, why: str) -> LinkwrightError:
        return NeedsPerson(
            f"cannot be written ({why}). Without a record on disk nothing is changed on this host.",
            code="state-unwritable", where=str(self.path),
            next_step=f"Make room in {self.path.parent} or make it writable (df, mount), then: "
            "systemctl restart linkwright",
        )  # fmt: skip


def damaged(path: Path, why: str) -> NeedsPerson:
    return NeedsPerson(
        f"is damaged ({why}).",
        code="state-damaged",
        where=str(path),
        next_step="Restart the agent (systemctl restart linkwright): it sets the file aside, builds the state "
        "again from it and from the kernel, and freezes the host until somebody looked.",
    )


def _connect(where: str) -> sqlite3.Connection:
    # check_same_thread=False only lets close() reach the connections of other threads.
    return sqlite3.connect(
        where, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )  # fmt: skip


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: ``executescript`` would commit the open transaction first."""
    statement = ""
    for piece in script.split(";")[:-1]:
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
