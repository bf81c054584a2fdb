"""FUSE: how trees become mounts. ``serve`` runs one libfuse session in a thread, for any mfusepy operations;
``start_server`` serves a ``SysfsTree``.

The kernel caches nothing of a sysfs (all time-outs 0, direct_io), so that what goes away is gone at the next
look and each write arrives as one store. Several threads answer, because a write may block as long as a guest
holds a VF. Keep the server on one CPU with the host that it serves: a round trip costs 15-30 µs then, 200 µs
over two CPUs of a virtual machine.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import logging
import os
import threading
from pathlib import Path
from typing import Any

import mfusepy

from hostlab import nodes
from hostlab.nodes import Folder, Handle, Link
from hostlab.sysfs import SysfsTree
from linkwright.model.errors import HardwareFault

_libc = ctypes.CDLL(None, use_errno=True)
_MNT_DETACH = 2
# Each blocked write holds a thread of libfuse (one for each PF at most). Idle ones are kept: a thread that ends
# leaves its Python thread state behind (see _wrapper), 12 MB after a burst of 16 readers. But few: each request
# wakes another idle thread, and on one busy CPU those that woke in vain stand before the one that answers (three
# mstconfig at once took 7 to 15 s with 128 threads, 4 to 6 s with 12, on a loaded machine).
MAX_THREADS = 16
START_LIMIT_S = 60.0
_here = threading.local()
_log = logging.getLogger(__name__)


class FuseMount:
    """A served mount. The mount stands when the constructor's caller (``serve``) returns."""

    def __init__(self, mountpoint: Path, thread: threading.Thread) -> None:
        self.mountpoint = mountpoint
        self._thread = thread

    def close(self) -> None:
        """Unmount; open files of others end their days on their own (a lazy unmount), then the session ends."""
        _libc.umount2(os.fsencode(self.mountpoint), _MNT_DETACH)
        self._thread.join(timeout=1.0)


def serve(operations: Any, mountpoint: Path, *, threads: bool = True, **options: Any) -> FuseMount:
    """Mount ``operations`` (mfusepy.Operations) on ``mountpoint`` (made if missing) in the caller's mount
    namespace and answer in a daemon thread. ``options`` are libfuse's. Raises HardwareFault ``fuse-failed``."""
    mountpoint.mkdir(parents=True, exist_ok=True)
    ready = threading.Event()
    failure: list[BaseException] = []
    operations.init_with_config = lambda connection, config: ready.set()

    def run() -> None:
        try:
            _Session(
                operations,
                str(mountpoint),
                foreground=True,
                nothreads=not threads,
                allow_other=True,
                **({"max_threads": MAX_THREADS, "max_idle_threads": MAX_THREADS} if threads else {}),
                **options,
            )
        except BaseException as error:
            failure.append(error)
        ready.set()

    thread = threading.Thread(target=run, name=f"fuse {mountpoint}", daemon=True)
    thread.start()
    if not ready.wait(START_LIMIT_S) or failure or not thread.is_alive():
        raise HardwareFault(
            f"the FUSE mount did not start: {failure[0] if failure else 'see the messages of libfuse above'}",
            code="fuse-failed",
            where=str(mountpoint),
            next_step="Is /dev/fuse there, are you root, is the package fuse3 installed?",
        )
    return FuseMount(mountpoint, thread)


def start_server(tree: SysfsTree, mountpoint: Path) -> FuseMount:
    """Serve the emulated /sys on ``mountpoint``."""
    return serve(
        _TreeOperations(tree),
        mountpoint,
        direct_io=True,
        entry_timeout=0,
        attr_timeout=0,
        negative_timeout=0,
        fsname="sysfs",
        subtype="hostlab",
    )


class _Session(mfusepy.FUSE):  # type: ignore[misc]
    """mfusepy with shorter ways for read and write by handle: no path, which a query of a card pays 10 000
    times."""

    def _wrapper(self, func: Any, *args: Any) -> int:
        """Around every callback: the answer, or minus an errno."""
        if not hasattr(_here, "kept"):
            # A thread of libfuse gets a new Python thread state at each call, unless one is kept: half the time.
            ctypes.pythonapi.PyGILState_Ensure()
            _here.kept = True
        try:
            return func(*args) or 0
        except OSError as error:
            return -(error.errno or errno.EIO)
        except Exception:
            _log.exception("fuse %s", func.__name__)
            return -errno.EIO

    def read(self, path: bytes | None, buf: Any, size: int, offset: int, fip: Any) -> int:
        data = self.operations.read(None, size, offset, fip.contents.fh)
        ctypes.memmove(buf, data, len(data))
        return len(data)

    def write(self, path: bytes | None, buf: Any, size: int, offset: int, fip: Any) -> int:
        return int(self.operations.write(None, ctypes.string_at(buf, size), offset, fip.contents.fh))


class _TreeOperations(mfusepy.Operations):  # type: ignore[misc]
    """The file system calls that a sysfs takes; all else is refused by libfuse (ENOSYS)."""

    use_ns = True
    flag_nopath = flag_nullpath_ok = True  # libfuse need not make paths for calls that have a handle

    def __init__(self, tree: SysfsTree) -> None:
        self._tree = tree
        self._handles: dict[int, Handle] = {}
        self._folders: dict[int, Folder] = {}
        self._numbers = itertools.count(1)

    def getattr(self, path: str | None, fh: int | None = None) -> dict[str, Any]:
        if path is None:  # an open file whose place in the tree may be gone
            handle = self._handles.get(fh or 0)
            return {"st_mode": handle.mode if handle else 0o40755, "st_nlink": 1, "st_size": nodes.PAGE}
        node = self._tree.lookup(path)
        size = len(node.target) if isinstance(node, Link) else node.size
        return {"st_mode": node.mode, "st_nlink": 2 if isinstance(node, Folder) else 1, "st_size": size}

    def readlink(self, path: str) -> str:
        node = self._tree.lookup(path)
        if not isinstance(node, Link):
            raise nodes.error(errno.EINVAL)
        return node.target

    def opendir(self, path: str) -> int:
        node = self._tree.lookup(path)
        if not isinstance(node, Folder):
            raise nodes.error(errno.ENOTDIR)
        number = next(self._numbers)
        self._folders[number] = node
        return number

    def readdir(self, path: str | None, fh: int) -> list[tuple[str, int, int]]:
        entries = self._folders[fh].entries()
        return [(".", 0o40755, 0), ("..", 0o40755, 0), *((name, node.mode, 0) for name, node in entries.items())]

    def releasedir(self, path: str | None, fh: int) -> int:
        self._folders.pop(fh, None)
        return 0

    def open(self, path: str, flags: int) -> int:
        node = self._tree.lookup(path)
        if isinstance(node, Folder | Link):
            raise nodes.error(errno.EISDIR)
        writes, reads = flags & os.O_ACCMODE != os.O_RDONLY, flags & os.O_ACCMODE != os.O_WRONLY
        if (writes and not node.mode & 0o200) or (reads and not node.mode & 0o444):
            raise nodes.error(errno.EACCES)  # even for root: kernfs_fop_open
        number = next(self._numbers)
        self._handles[number] = node.open()
        return number

    def release(self, path: str | None, fh: int) -> int:
        self._handles.pop(fh, None)
        return 0

    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        return self._handles[fh].read(offset, size)

    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        self._handles[fh].write(offset, data)
        return len(data)

    def truncate(self, path: str | None, length: int, fh: int | None = None) -> int:
        return 0  # `echo 4 > sriov_numvfs` truncates first; sysfs takes that and does nothing
