"""Network namespaces: open, recognise, compare, and the check that we ourselves stand in the host's."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from linkwright.model.errors import InvalidInput, Refused, Vanished

from .links import Links
from .system import System

_NS_GET_NSTYPE = 0xB703  # include/uapi/linux/nsfs.h: _IO(0xb7, 3)
_CLONE_NEWNET = 0x40000000


@contextmanager
def open_path(path: str | os.PathLike[str]) -> Iterator[int]:
    """An open descriptor of the network namespace at ``path`` (``/run/netns/x``, ``/proc/4711/ns/net``).

    Raises Vanished ``netns-gone`` when nothing is there, InvalidInput ``netns-invalid`` when it is something else
    (also a name in /run/netns whose bind mount is gone: an ordinary empty file) or ``netns-unreadable``.
    """
    fd = open_fd(path)
    try:
        yield fd
    finally:
        os.close(fd)


def open_fd(path: str | os.PathLike[str]) -> int:
    """As open_path; the caller closes the descriptor."""
    text = os.fspath(path)
    try:
        fd = os.open(text, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as problem:
        if problem.errno in (errno.ENOENT, errno.ESRCH, errno.ENOTDIR):
            raise Vanished(
                "there is no network namespace here (any more).", code="netns-gone", where=text
            ) from problem
        raise InvalidInput(
            f"cannot be opened: {problem.strerror}.", code="netns-unreadable", where=text
        ) from problem
    try:
        kind = fcntl.ioctl(fd, _NS_GET_NSTYPE)
    except OSError:
        kind = 0
    if kind != _CLONE_NEWNET:
        os.close(fd)
        raise InvalidInput("is not a network namespace.", code="netns-invalid", where=text)
    return fd


def open_pid(pid: int, proc: Path = Path("/proc")) -> int:
    """The network namespace of a process; the caller closes it. Raises Vanished when the process is gone."""
    return open_fd(proc / str(pid) / "ns/net")


def inode(fd: int) -> int:
    """What identifies a namespace while it lives; the number may come back for another one after its end."""
    return os.fstat(fd).st_ino


def inode_of_path(path: str | os.PathLike[str]) -> int | None:
    """The inode without keeping the namespace open; None when nothing is there."""
    try:
        return os.stat(path).st_ino  # noqa: PTH116 - a magic link of /proc; Path.stat is the same call, slower
    except OSError:
        return None


def own_inode() -> int:
    return Path("/proc/self/ns/net").stat().st_ino


def is_own(fd: int) -> bool:
    """Is it the namespace of this process?"""
    return inode(fd) == own_inode()


def require_host_namespaces(system: System) -> None:
    """Refuse to work from inside a container: there, every ``net/`` directory in sysfs looks empty and all
    functions would seem to be in use by others (sysfs shows the namespace of its mount).

    Compares our network namespace with that of pid 1, and the links the kernel tells with those in sysfs.
    Raises Refused ``not-in-host-namespaces``.
    """
    if system.captured:
        return
    step = "Run it on the host itself, or in a container with the host's network, pid namespace and /sys."
    if (init := inode_of_path(system.proc / "1/ns/net")) is not None and init != own_inode():
        raise Refused(
            "this process is in another network namespace than pid 1, so it cannot tell who uses a NIC.",
            rule=2,
            code="not-in-host-namespaces",
            next_step=step,
        )
    try:
        shown = {entry.name for entry in (system.sys / "class/net").iterdir()}
    except OSError:
        shown = set()
    told = {link.name for link in Links(system.netlink).dump()} - {"lo"}
    if told and not told & shown:
        raise Refused(
            f"{system.sys} shows the links of another network namespace than the one this process is in.",
            rule=2,
            code="not-in-host-namespaces",
            where=str(system.sys),
            next_step=step,
        )
