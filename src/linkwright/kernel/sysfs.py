"""Small reads and careful writes of sysfs files.

Reads never raise: a file that is not there, or that the driver refuses to show (EINVAL while a link is down,
EOPNOTSUPP), is unknown. Writes that the kernel may block on (VF count, unbind: they wait under the device's lock
until every user is gone, in uninterruptible sleep) run in a child process, so that a time limit can be kept: the
child stays behind in the kernel, this process goes on.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

from linkwright.model.errors import Busy, HardwareFault, Vanished

_WRITER = """
import os, sys
try:
    fd = os.open(sys.argv[1], os.O_WRONLY)
    os.write(fd, sys.argv[2].encode())
except OSError as problem:
    print(problem.errno)
"""
_ATTRIBUTE_SIZE = 4096  # sysfs_emit: an attribute is at most a page
_blocked: dict[str, subprocess.Popen[str]] = {}
_lock = threading.Lock()


def text(path: str | os.PathLike[str]) -> str | None:
    """The file's content without surrounding blanks; None when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # half the time of a file object; thousands are read
    except OSError:
        return None
    try:
        return os.read(fd, _ATTRIBUTE_SIZE).decode(errors="replace").strip()
    except OSError:
        return None
    finally:
        os.close(fd)


def number(path: str | os.PathLike[str]) -> int | None:
    """The file's content as a number in the base that it is written in."""
    found = text(path)
    try:
        return None if found is None else int(found, 0)
    except ValueError:
        return None


def link_name(path: str | os.PathLike[str]) -> str | None:
    """The last part of what a symbolic link points to (``driver`` → ``mlx5_core``); None without one."""
    try:
        return os.readlink(path).rpartition("/")[2]  # noqa: PTH115 - hundreds are read: strings, not Paths
    except OSError:
        return None


def names(path: str | os.PathLike[str]) -> list[str] | None:
    """What a directory holds, sorted; None when there is none."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return None


def write(path: Path, value: str, *, limit_s: float, where: str, doing: str) -> None:
    """Write in a child process. ``where`` is the PCI address and ``doing`` the act, both for the messages.

    Raises Busy ``sysfs-write-blocked`` when the kernel has not answered after ``limit_s`` (the write stays pending
    in the kernel, and further writes of the same file are refused until it is over) or answers EBUSY, Vanished
    when the file is gone, HardwareFault ``sysfs-write-refused`` for every other answer.
    """
    key = os.fspath(path)
    with _lock:
        if (pending := _blocked.get(key)) is not None and pending.poll() is None:
            raise _still_blocked(where, doing, "an earlier write of the same file is still waiting in the kernel")
        _blocked.pop(key, None)
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WRITER, key, value],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C for us must not reach a write that is under way
    )
    try:
        said, _ = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        with _lock:
            _blocked[key] = child
        raise _still_blocked(where, doing, f"the kernel has not answered for {limit_s:.0f} s") from None
    number = int(said) if said.strip().isdigit() else (0 if child.returncode == 0 else errno.EIO)
    if number == 0:
        return
    if number in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        raise Vanished(f"{doing}: {path.name} is gone.", code="function-gone", where=where)
    if number == errno.EBUSY:
        raise Busy(f"{doing}: the kernel says that it is in use.", code="function-busy", where=where)
    raise HardwareFault(
        f"{doing}: the kernel refused: {os.strerror(number)}.",
        code="sysfs-write-refused",
        where=where,
        said=os.strerror(number),
        command=f"write {value!r} to {path}",
        next_step="Look at the kernel log: journalctl -k -b.",
    )


def _still_blocked(where: str, doing: str, why: str) -> Busy:
    return Busy(
        f"{doing}: {why}. Most often a guest holds one of the functions.",
        code="sysfs-write-blocked",
        where=where,
        next_step="Stop the guest that holds it; see linkwright nics.",
    )
