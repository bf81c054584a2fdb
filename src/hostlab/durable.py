"""What a disk keeps after power is lost: a durable tree that follows a working tree only at fsync.

SIGKILL alone keeps the page cache, so a missing fsync would pass every test. The model is that of POSIX as ext4
does it, on the strict side:

- fsync of a file makes its content durable, and that it exists under its present name (ext4 commits the journal).
- fsync of a folder makes its entries durable: created, renamed and removed ones. A file that was never synced is
  there, empty.
- A folder itself is durable with the first durable thing in it; its removal and renaming are durable at once.

Durable files are hard links to a pool, one pool file for each inode of the working tree, so that content and names
move separately.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path

MAX_RANGES = 64
HIDDEN = ".fuse_hidden"  # what libfuse renames a file to that is removed while somebody has it open


@dataclass
class Twin:
    """The durable side of one file of the working tree: what changed since it was last synced."""

    pool: Path
    dirty: list[tuple[int, int]] = field(default_factory=list)  # [start, end) in bytes
    shortest: int | None = None  # the smallest size it was cut to
    names: set[str] = field(default_factory=set)  # paths in the durable tree

    def wrote(self, start: int, end: int) -> None:
        if self.dirty and self.dirty[-1][0] <= start <= self.dirty[-1][1]:
            self.dirty[-1] = (self.dirty[-1][0], max(end, self.dirty[-1][1]))
        else:
            self.dirty.append((start, end))
        if len(self.dirty) > MAX_RANGES:
            self.dirty = [(min(one[0] for one in self.dirty), max(one[1] for one in self.dirty))]

    def cut(self, size: int) -> None:
        self.shortest = size if self.shortest is None else min(size, self.shortest)


class DurableTree:
    """``working`` is what a running host sees, ``durable`` what is left of it after a crash.

    Paths in arguments are absolute within the tree (``/state.db``). Not safe for several threads.
    """

    def __init__(self, durable: Path, pool: Path, working: Path) -> None:
        self.durable = durable
        self.pool = pool
        self.working = working
        self._twins: dict[int, Twin] = {}
        self._made = 0
        self._restore()

    def _restore(self) -> None:
        """Working becomes what is durable."""
        for folder in (self.pool, self.working):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self.durable.mkdir(parents=True, exist_ok=True)
        shutil.copystat(self.durable, self.working)
        known: dict[int, tuple[Path, Twin]] = {}
        for base, folders, files in os.walk(self.durable):
            below = Path(base).relative_to(self.durable)
            for name in folders:
                shutil.copystat(Path(base, name), _made(self.working / below / name), follow_symlinks=False)
            for name in files:
                source, target = Path(base, name), self.working / below / name
                status = source.lstat()
                if not stat.S_ISREG(status.st_mode):
                    if stat.S_ISLNK(status.st_mode):
                        target.symlink_to(source.readlink())
                    continue
                if status.st_ino in known:  # a second hard link
                    os.link(known[status.st_ino][0], target)
                    twin = known[status.st_ino][1]
                else:
                    shutil.copy2(source, target)
                    os.chown(target, status.st_uid, status.st_gid)
                    twin = self.twin(target.stat().st_ino)
                    os.link(source, twin.pool)
                    known[status.st_ino] = (target, twin)
                twin.names.add("/" + str(below / name))

    def twin(self, inode: int) -> Twin:
        """The twin of an inode of the working tree, made when first asked for."""
        found = self._twins.get(inode)
        if found is None:
            self._made += 1
            found = self._twins[inode] = Twin(self.pool / str(self._made))
        return found

    def forget(self, inode: int) -> None:
        """Its last name and handle are gone; the inode number may come again for another file."""
        twin = self._twins.pop(inode, None)
        if twin is not None:
            twin.pool.unlink(missing_ok=True)

    # -- sync ------------------------------------------------------------------------------------------------

    def sync_file(self, descriptor: int, path: str | None) -> None:
        """fsync of an open working file; ``path`` is its present name, None when it has none any more."""
        status = os.fstat(descriptor)
        twin = self.twin(status.st_ino)
        self._sync_content(twin, descriptor, status)
        if path is None or HIDDEN in path or not self._is(path, status.st_ino):
            return
        for name in [name for name in twin.names if not self._is(name, status.st_ino)]:
            self._remove_name(name)
        self._folders(str(Path(path).parent))
        self._give_name(twin, path)

    def sync_folder(self, path: str) -> None:
        """fsync of a folder: its durable entries become those of the working one."""
        self._folders(path)
        there = _join(self.durable, path)
        here = os.scandir(_join(self.working, path))
        wanted = {entry.name: entry for entry in here if not entry.name.startswith(HIDDEN)}
        for entry in list(os.scandir(there)):
            inside = f"{path.rstrip('/')}/{entry.name}"
            if entry.name not in wanted or entry.is_dir(follow_symlinks=False) != wanted[entry.name].is_dir(
                follow_symlinks=False
            ):
                self.remove_tree(inside) if entry.is_dir(follow_symlinks=False) else self._remove_name(inside)
        for name, entry in wanted.items():
            inside = f"{path.rstrip('/')}/{name}"
            if entry.is_dir(follow_symlinks=False):
                self._folders(inside)
            elif entry.is_symlink():
                with contextlib.suppress(FileNotFoundError):
                    (there / name).unlink()
                (there / name).symlink_to(Path(entry.path).readlink())
            elif entry.is_file(follow_symlinks=False):
                self._give_name(self.twin(entry.inode()), inside, entry.stat())

    def sync_all(self) -> None:
        """As an orderly shutdown does: everything becomes durable."""
        for base, _, files in os.walk(self.working):
            below = "/" + str(Path(base).relative_to(self.working)) if base != str(self.working) else "/"
            for name in files:
                source = Path(base, name)
                if source.is_symlink() or not source.is_file():
                    continue
                descriptor = os.open(source, os.O_RDONLY)
                try:
                    status = os.fstat(descriptor)
                    self._sync_content(self.twin(status.st_ino), descriptor, status)
                finally:
                    os.close(descriptor)
            self.sync_folder(below)

    def _sync_content(self, twin: Twin, descriptor: int, status: os.stat_result) -> None:
        target = os.open(twin.pool, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            if twin.shortest is not None:
                os.ftruncate(target, min(twin.shortest, os.fstat(target).st_size))
            for start, end in twin.dirty:
                _copy_range(descriptor, target, start, min(end, status.st_size))
            os.ftruncate(target, status.st_size)
            os.fchmod(target, stat.S_IMODE(status.st_mode))
            os.fchown(target, status.st_uid, status.st_gid)
        finally:
            os.close(target)
        os.utime(twin.pool, ns=(status.st_atime_ns, status.st_mtime_ns))
        twin.dirty.clear()
        twin.shortest = None

    # -- names in the durable tree ---------------------------------------------------------------------------

    def _is(self, path: str, inode: int) -> bool:
        try:
            return os.lstat(_join(self.working, path)).st_ino == inode
        except OSError:
            return False

    def _give_name(self, twin: Twin, path: str, status: os.stat_result | None = None) -> None:
        if path in twin.names:
            return
        if not twin.pool.exists():
            twin.pool.touch()
            if status is not None:
                twin.pool.chmod(stat.S_IMODE(status.st_mode))
                os.chown(twin.pool, status.st_uid, status.st_gid)
        self._remove_name(path)
        os.link(twin.pool, _join(self.durable, path))
        twin.names.add(path)

    def _remove_name(self, path: str) -> None:
        for twin in self._twins.values():
            twin.names.discard(path)
        _join(self.durable, path).unlink(missing_ok=True)

    def remove_tree(self, path: str) -> None:
        """A folder was removed: gone at once, with everything below."""
        for twin in self._twins.values():
            twin.names = {name for name in twin.names if not name.startswith(path + "/")}
        shutil.rmtree(_join(self.durable, path), ignore_errors=True)

    def rename_tree(self, old: str, new: str) -> None:
        """A folder was renamed: at once, if it is durable at all."""
        if not _join(self.durable, old).is_dir():
            return
        self.remove_tree(new)
        self._folders(str(Path(new).parent))
        _join(self.durable, old).rename(_join(self.durable, new))
        for twin in self._twins.values():
            twin.names = {new + n[len(old) :] if n.startswith(old + "/") else n for n in twin.names}

    def _folders(self, path: str) -> None:
        """Make the folder ``path`` and those above durable."""
        here, there = self.working, self.durable
        for part in Path(path).parts[1:]:
            here, there = here / part, there / part
            if not there.is_dir():
                there.mkdir()
                shutil.copystat(here, there)


def _join(base: Path, path: str) -> Path:
    return base / path.lstrip("/")


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    while start < end:
        data = os.pread(source, min(end - start, 1 << 20), start)
        if not data:
            return
        os.pwrite(target, data, start)
        start += len(data)
