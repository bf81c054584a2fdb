"""The tables of state.db, as a list of migrations: entry N takes a file from version N to N + 1.

Records are kept as JSON of the model's structs, because the structs are the schema (they validate on the way out)
and SQLite is here for atomic, durable commits. Only what is searched or constrained has a column of its own.
``PRAGMA user_version`` holds the version. An entry, once released, is never edited; add a new one.
"""

from __future__ import annotations

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE policies (name TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT;
    CREATE TABLE targets (name TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT;
    -- Outlives the document: a policy that is deleted and made again must not reuse a generation for which
    -- an activation is on record (one activation for one generation, value and method).
    CREATE TABLE generations (
        kind TEXT NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL, PRIMARY KEY (kind, name)) STRICT;
    CREATE TABLE attachments (
        target TEXT NOT NULL, interface TEXT NOT NULL,
        port TEXT NOT NULL, slot INTEGER NOT NULL,  -- -1: the PF
        record TEXT NOT NULL, PRIMARY KEY (target, interface)) STRICT;
    CREATE TABLE changes (
        id INTEGER PRIMARY KEY AUTOINCREMENT, policy TEXT NOT NULL, generation INTEGER NOT NULL,
        started REAL NOT NULL, record TEXT NOT NULL, UNIQUE (policy, generation, started)) STRICT;
    CREATE TABLE approvals (key TEXT PRIMARY KEY, who TEXT NOT NULL, at REAL NOT NULL) STRICT;
    CREATE TABLE history (
        id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, entry TEXT NOT NULL) STRICT;
    CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE operations (
        id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, subject TEXT NOT NULL UNIQUE,
        boot_id TEXT NOT NULL, begun REAL NOT NULL, intent INTEGER NOT NULL DEFAULT 0) STRICT;
    CREATE TABLE steps (
        operation INTEGER NOT NULL REFERENCES operations (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL, said TEXT NOT NULL DEFAULT '',
        at REAL NOT NULL, PRIMARY KEY (operation, seq)) STRICT;
    """,
    """
    -- The card behind each PF as it was first seen, so that a swapped one is noticed.
    CREATE TABLE cards (pf TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;
    """,
)

VERSION = len(MIGRATIONS)
