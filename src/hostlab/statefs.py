"""The state directory of a host: a cached FUSE file system over a ``DurableTree``.

Cached, because SQLite in WAL mode needs shared memory maps, which a direct_io file system refuses ("disk I/O
error"). One thread: the calls are short, and their order is the order in which a disk would see them. One instance
serves one boot: a new mount begins with empty kernel caches, so nothing unsynced can come through a crash.

The process that serves must never use the mount itself: giving back a memory map waits for the server with the
process's map locked, and then even ``ps`` hangs on it.
"""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from pathlib import Path
from typing import Any

import mfusepy

from hostlab.durable import DurableTree
from hostlab.fuse import FuseMount, serve

_STAT = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks", "st_rdev")


class _Operations(mfusepy.Operations):  # type: ignore[misc]
    """Every call goes to the working tree; what a disk would have to remember goes to ``tree`` as well."""

    use_ns = True

    def __init__(self, tree: DurableTree) -> None:
        self.tree = tree
        self.inode: dict[int, int] = {}  # open handle → inode
        self.open_count: Counter[int] = Counter()

    def _at(self, path: str) -> Path:
        return self.tree.working / path.lstrip("/")

    def _opened(self, descriptor: int) -> int:
        inode = os.fstat(descriptor).st_ino
        self.inode[descriptor] = inode
        self.open_count[inode] += 1
        return descriptor

    def _unlinked(self, status: os.stat_result) -> None:
        if status.st_nlink <= 1 and not self.open_count[status.st_ino]:
            self.tree.forget(status.st_ino)

    # -- looking

    def getattr(self, path: str | None, fh: int | None = None) -> dict[str, Any]:
        status = os.fstat(fh) if fh is not None else os.lstat(self._at(str(path)))
        known = {name: getattr(status, name) for name in _STAT}
        return known | {f"st_{x}time": getattr(status, f"st_{x}time_ns") for x in "amc"}

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        # With use_ino an entry without a number would be one with number 0, which readdir(3) skips.
        here = {"st_ino": self._at(path).stat().st_ino, "st_mode": stat.S_IFDIR}
        found = [(".", here, 0), ("..", here, 0)]
        for entry in os.scandir(self._at(path)):
            mode = entry.stat(follow_symlinks=False).st_mode
            found.append((entry.name, {"st_ino": entry.inode(), "st_mode": mode}, 0))
        return found

    def readlink(self, path: str) -> str:
        return str(self._at(path).readlink())

    def statfs(self, path: str) -> dict[str, int]:
        status = os.statvfs(self._at(path))
        names = ("bavail", "bfree", "blocks", "bsize", "favail", "ffree", "files", "frsize", "namemax")
        return {f"f_{name}": getattr(status, f"f_{name}") for name in names}

    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    # -- files

    def open(self, path: str, flags: int) -> int:
        # O_APPEND is the kernel's business: it sends offsets, and pwrite(2) would ignore them with it.
        return self._opened(os.open(self._at(path), (flags & ~os.O_APPEND) | os.O_CLOEXEC))

    def create(self, path: str, mode: int, fi: int = 0) -> int:
        descriptor = os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (fi & os.O_EXCL), mode)
        os.fchmod(descriptor, mode & 0o7777)
        return self._opened(descriptor)

    def release(self, path: str | None, fh: int) -> int:
        inode = self.inode.pop(fh)
        self.open_count[inode] -= 1
        if not self.open_count[inode]:
            del self.open_count[inode]
            if os.fstat(fh).st_nlink == 0:
                self.tree.forget(inode)
        os.close(fh)
        return 0

    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        count = os.pwrite(fh, data, offset)
        self.tree.twin(self.inode[fh]).wrote(offset, offset + count)
        return count

    def truncate(self, path: str | None, length: int, fh: int | None = None) -> int:
        target: int | Path = fh if fh is not None else self._at(str(path))
        os.truncate(target, length)
        inode = os.fstat(fh).st_ino if fh is not None else self._at(str(path)).stat().st_ino
        self.tree.twin(inode).cut(length)
        return 0

    def fallocate(self, path: str | None, mode: int, offset: int, length: int, fh: int) -> int:
        os.posix_fallocate(fh, offset, length)
        return 0

    def flush(self, path: str | None, fh: int) -> int:
        return 0  # close(2) makes nothing durable

    def fsync(self, path: str | None, datasync: int, fh: int) -> int:
        self.tree.sync_file(fh, path)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        self.tree.sync_folder(path)
        return 0

    # -- names

    def mkdir(self, path: str, mode: int) -> int:
        self._at(path).mkdir(mode)
        self._at(path).chmod(mode & 0o7777)
        return 0

    def rmdir(self, path: str) -> int:
        self._at(path).rmdir()
        self.tree.remove_tree(path)
        return 0

    def unlink(self, path: str) -> int:
        status = os.lstat(self._at(path))
        self._at(path).unlink()
        self._unlinked(status)
        return 0

    def rename(self, old: str, new: str) -> int:
        folder = self._at(old).is_dir() and not self._at(old).is_symlink()
        try:
            replaced = os.lstat(self._at(new))
        except FileNotFoundError:
            replaced = None
        self._at(old).rename(self._at(new))
        if folder:
            self.tree.rename_tree(old, new)
        elif replaced is not None:
            self._unlinked(replaced)
        return 0

    def link(self, target: str, source: str) -> int:
        os.link(self._at(source), self._at(target), follow_symlinks=False)
        return 0

    def symlink(self, target: str, source: str) -> int:
        self._at(target).symlink_to(source)
        return 0

    def mknod(self, path: str, mode: int, dev: int) -> int:
        os.mknod(self._at(path), mode, dev)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        self._at(path).chmod(mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        os.chown(self._at(path), uid, gid, follow_symlinks=False)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        now = time.time_ns()
        os.utime(self._at(path), ns=times or (now, now), follow_symlinks=False)
        return 0


class StateFs:
    """The mounted state directory of one boot. ``disk`` keeps the durable tree; ``scratch`` may be lost."""

    def __init__(self, disk: Path, scratch: Path, mountpoint: Path) -> None:
        mountpoint.mkdir(parents=True, exist_ok=True)
        self.tree = DurableTree(disk / "state", disk / "state.pool", scratch)
        self._mount: FuseMount = serve(
            _Operations(self.tree),
            mountpoint,
            threads=False,
            kernel_cache=True,
            use_ino=True,
            default_permissions=True,
        )

    def close(self, *, keep_unsynced: bool) -> None:
        """Unmount. ``keep_unsynced``: an orderly shutdown, all is written; else what was not synced is lost."""
        self._mount.close()
        if keep_unsynced:
            self.tree.sync_all()
