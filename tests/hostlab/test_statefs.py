"""The state directory: a crash keeps exactly what was synced, and SQLite works on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hostlab import needs
from hostlab.durable import DurableTree
from hostlab.statefs import StateFs
from linkwright.model.errors import LinkwrightError


@pytest.fixture
def tree(tmp_path: Path) -> DurableTree:
    return open_tree(tmp_path)


def open_tree(base: Path) -> DurableTree:
    return DurableTree(base / "durable", base / "pool", base / "working")


def write(tree: DurableTree, name: str, text: str, *, sync: bool) -> None:
    """As an application would, telling the tree what the file system would tell it."""
    path = tree.working / name
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
    os.write(descriptor, text.encode())
    twin = tree.twin(os.fstat(descriptor).st_ino)
    twin.wrote(0, len(text))
    if sync:
        tree.sync_file(descriptor, f"/{name}")
    os.close(descriptor)


def after_crash(tree: DurableTree) -> dict[str, str]:
    again = open_tree(tree.working.parent)
    return {
        str(path.relative_to(again.working)): path.read_text()
        for path in sorted(again.working.rglob("*"))
        if path.is_file()
    }


def test_only_synced_files_and_bytes_survive(tree: DurableTree) -> None:
    write(tree, "synced", "one", sync=True)
    write(tree, "never", "x", sync=False)
    write(tree, "synced", "changed", sync=False)
    assert after_crash(tree) == {"synced": "one"}


def test_a_rename_without_fsync_of_the_folder_is_lost(tree: DurableTree) -> None:
    write(tree, "final", "old", sync=True)
    write(tree, "part", "new", sync=True)
    (tree.working / "part").rename(tree.working / "final")
    assert after_crash(tree) == {"final": "old", "part": "new"}


def test_write_sync_rename_sync_folder_is_safe(tree: DurableTree) -> None:
    write(tree, "final", "old", sync=True)
    write(tree, "part", "new", sync=True)
    (tree.working / "part").rename(tree.working / "final")
    tree.sync_folder("/")
    assert after_crash(tree) == {"final": "new"}


def test_a_rename_of_an_unsynced_file_leaves_an_empty_one(tree: DurableTree) -> None:
    write(tree, "part", "new", sync=False)
    (tree.working / "part").rename(tree.working / "final")
    tree.sync_folder("/")
    assert after_crash(tree) == {"final": ""}


def test_removal_needs_the_folder_synced(tree: DurableTree) -> None:
    write(tree, "a", "a", sync=True)
    (tree.working / "a").unlink()
    assert after_crash(tree) == {"a": "a"}


def test_removal_with_the_folder_synced(tree: DurableTree) -> None:
    write(tree, "a", "a", sync=True)
    (tree.working / "a").unlink()
    tree.sync_folder("/")
    assert after_crash(tree) == {}


def test_fsync_after_a_rename_makes_the_rename_durable(tree: DurableTree) -> None:
    write(tree, "old", "1", sync=True)
    (tree.working / "old").rename(tree.working / "new")
    write(tree, "new", "2", sync=True)
    assert after_crash(tree) == {"new": "2"}


def test_folders_of_synced_files_survive_and_renamed_ones_keep_their_files(tree: DurableTree) -> None:
    (tree.working / "a/b").mkdir(parents=True)
    write(tree, "a/b/file", "deep", sync=True)
    (tree.working / "a").rename(tree.working / "c")
    tree.rename_tree("/a", "/c")
    assert after_crash(tree) == {"c/b/file": "deep"}


def test_a_file_made_shorter_stays_long_until_synced(tree: DurableTree) -> None:
    write(tree, "log", "long text", sync=True)
    path = tree.working / "log"
    os.truncate(path, 4)
    tree.twin(path.stat().st_ino).cut(4)
    assert after_crash(tree) == {"log": "long text"}


def test_cut_and_written_again(tree: DurableTree) -> None:
    write(tree, "log", "long text", sync=True)
    path = tree.working / "log"
    os.truncate(path, 2)
    tree.twin(path.stat().st_ino).cut(2)
    os.truncate(path, 5)
    tree.twin(path.stat().st_ino).cut(5)
    descriptor = os.open(path, os.O_RDWR)
    tree.sync_file(descriptor, "/log")
    os.close(descriptor)
    assert after_crash(tree) == {"log": "lo\0\0\0"}


def test_an_orderly_shutdown_keeps_everything(tree: DurableTree) -> None:
    (tree.working / "empty").mkdir()
    write(tree, "a", "a", sync=False)
    (tree.working / "link").symlink_to("a")
    tree.sync_all()
    again = open_tree(tree.working.parent)
    assert sorted(path.name for path in again.working.iterdir()) == ["a", "empty", "link"]
    assert (again.working / "link").read_text() == "a"
    assert (again.working / "a").stat().st_mode & 0o777 == 0o640


# -- mounted --------------------------------------------------------------------------------------------------

Mount = Callable[[], tuple[StateFs, Path]]

# Clients are processes of their own: a process that serves a FUSE mount must not use it (statefs.py).
COMMIT = """
import sqlite3, sys
db = sqlite3.connect("state.db", isolation_level=None)
assert db.execute("pragma journal_mode=wal").fetchone() == ("wal",)
db.execute("pragma synchronous=full")
db.execute("create table if not exists t (x)")
for number in range(20):
    db.execute("insert into t values (?)", (number,))
db.execute("pragma synchronous=off")
for number in range(20):
    db.execute("insert into t values (?)", (-1 - number,))
other = sqlite3.connect("state.db")
assert other.execute("select count(*) from t").fetchone()[0] >= 40
import os
os._exit(0)  # as a crash: nothing is closed, so nothing is checkpointed
"""
COUNT = """
import sqlite3
db = sqlite3.connect("state.db")
print(db.execute("pragma integrity_check").fetchone()[0], db.execute("select count(*), min(x) from t").fetchone())
db.close()
"""
SHELL_WORK = """
import os
os.makedirs("d/e")
open("d/e/f", "w").write("text")
os.rename("d/e/f", "d/g"); os.link("d/g", "d/h"); os.symlink("g", "d/s"); os.chmod("d/g", 0o600)
assert sorted(os.listdir("d")) == ["e", "g", "h", "s"], os.listdir("d")
assert os.stat("d/g").st_nlink == 2 and os.readlink("d/s") == "g" and open("d/s").read() == "text"
with open("d/g", "a") as more: more.write("more")
f = open("d/g", "r+"); os.unlink("d/g"); f.truncate(3); f.seek(0); assert f.read() == "tex"; f.close()
os.rmdir("d/e")
try: os.rmdir("d")
except OSError as error: assert error.errno == 39, error
else: raise AssertionError
assert os.statvfs(".").f_bavail > 0
"""


def client(folder: Path, script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    try:
        needs.check()
    except LinkwrightError as error:
        pytest.skip(f"no FUSE mounts here: {error}")
    mounted: list[StateFs] = []

    def make() -> tuple[StateFs, Path]:
        number = len(mounted)
        place = tmp_path / f"mount-{number}"
        mounted.append(StateFs(tmp_path / "disk", tmp_path / f"scratch-{number}", place))
        return mounted[-1], place

    yield make
    for each in mounted:
        each.close(keep_unsynced=False)


@pytest.mark.lab
def test_sqlite_in_wal_mode_keeps_its_commits_and_loses_what_it_did_not_sync(
    mount: Mount,
) -> None:
    files, place = mount()
    client(place, COMMIT)
    files.close(keep_unsynced=False)
    files, place = mount()
    assert client(place, COUNT) == "ok (20, 0)\n"
    client(place, COMMIT)
    files.close(keep_unsynced=True)
    _, place = mount()
    assert client(place, COUNT) == "ok (60, -20)\n"


@pytest.mark.lab
def test_an_ordinary_file_system_otherwise(mount: Mount) -> None:
    files, place = mount()
    client(place, SHELL_WORK)
    files.close(keep_unsynced=True)
    _, place = mount()
    assert client(place, "import os; print(sorted(os.listdir('d')), open('d/h').read())") == "['h', 's'] tex\n"
