"""Network namespaces of the emulated host's containers: held open, and watched for their last user.

A veth dies with its namespace where a real NIC would return to the host. So the lab holds a descriptor of each
namespace that got a function, and plays the kernel's part: when no process is in the namespace and nothing in the
host's mount namespace keeps it (a bind mount of nsfs, as ``ip netns add`` makes), it counts as gone. Descriptors
do not count: the lab has one itself, and the agent opens them all the time. (In the kernel they would count.)

Nothing is polled: a pidfd tells that a process ended, poll(2) on mountinfo that a mount came or went. A process
that leaves a namespace by setns and lives on is noticed at the next such event only.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from hostlab.nl_kernel import inode_of

log = logging.getLogger(__name__)


class Namespace:
    """A namespace held open. ``nsid``: the number under which the wire's namespace knows it."""

    def __init__(self, netns: int, nsid: int = -1) -> None:
        self.fd = os.dup(netns)
        self.inode = inode_of(self.fd)
        self.nsid = nsid

    def close(self) -> None:
        os.close(self.fd)


def namespace_of(pid: int | str) -> int:
    return Path(f"/proc/{pid}/ns/net").stat().st_ino


def processes() -> Iterator[tuple[int, int]]:
    """(pid, inode of its network namespace) of every process that /proc shows; zombies have none."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                yield int(entry.name), namespace_of(entry.name)


def mounted_namespaces(mountinfo: str) -> dict[int, str]:
    """{inode: mount point} of the network namespaces mounted there (proc_pid_mountinfo(5))."""
    found = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if after.startswith("nsfs ") and fields[3].startswith("net:["):
            found[int(fields[3][5:-1])] = fields[4].encode().decode("unicode_escape")
    return found


def namespaces_of_host(host_pid1: int) -> set[int]:
    """Inodes of the host's network namespaces: of pid 1, its descendants, and its mount namespace's mounts."""
    parents: dict[int, int] = {}
    spaces = dict(processes())
    for pid in spaces:
        with suppress(OSError):
            parents[pid] = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    found = set()
    for pid, inode in spaces.items():
        ancestor = pid
        while ancestor != host_pid1 and ancestor in parents:
            ancestor = parents[ancestor]
        if ancestor == host_pid1:
            found.add(inode)
    with suppress(OSError):
        found |= mounted_namespaces(Path(f"/proc/{host_pid1}/mountinfo").read_text(encoding="utf-8")).keys()
    return found


def search(host_pid1: int, known: Collection[int]) -> Iterator[int]:
    """Open descriptors of the host's namespaces whose inode is not in ``known``: of processes, then of mounts.

    The caller closes each. May touch the host's file systems: call it without locks.
    """
    seen = set(known)
    for pid, inode in processes():
        if inode not in seen:
            seen.add(inode)
            with suppress(OSError):
                yield os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    with suppress(OSError):
        mounts = mounted_namespaces(Path(f"/proc/{host_pid1}/mountinfo").read_text(encoding="utf-8"))
        for inode, path in mounts.items():
            if inode not in seen:
                with suppress(OSError):
                    yield os.open(f"/proc/{host_pid1}/root{path}", os.O_RDONLY | os.O_CLOEXEC)


class _Watched:
    def __init__(self, when_gone: Callable[[], None]) -> None:
        self.when_gone = when_gone
        self.users: dict[int, int] = {}  # pid: pidfd
        self.stale = True
        self.deadline: float | None = None

    def drop(self, pid: int) -> int:
        pidfd = self.users.pop(pid)
        os.close(pidfd)
        return pidfd


class Watcher:
    """One thread for everything that the wire waits for. ``linger_s``: the kernel cleans a dead namespace up from
    a work queue, so its devices return late; this is how late at least."""

    def __init__(self, host_pid1: int, linger_s: float) -> None:
        self._linger_s = linger_s
        self._mountinfo = os.open(f"/proc/{host_pid1}/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._watched: dict[int, _Watched] = {}  # by inode
        self._queue: deque[Callable[[], None]] = deque()
        self._running = True
        self._thread = threading.Thread(target=self._run, name="wire-watcher", daemon=True)
        self._epoll.register(self._mountinfo, select.EPOLLPRI)
        self._handlers[self._mountinfo] = self._mounts_changed
        self.on_readable(self._wake, self._woken)

    def on_readable(self, fd: int, handler: Callable[[], None]) -> None:
        """Call ``handler`` in the thread whenever ``fd`` is readable. Before ``start``."""
        self._epoll.register(fd, select.EPOLLIN)
        self._handlers[fd] = handler

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends and joins the thread: not from the thread itself, nor under a lock that a handler takes."""
        self._running = False
        self.soon(lambda: None)
        self._thread.join()
        for watched in self._watched.values():
            for pid in list(watched.users):
                watched.drop(pid)
        self._epoll.close()
        os.close(self._mountinfo)
        os.close(self._wake)

    def soon(self, work: Callable[[], None]) -> None:
        """Do ``work`` in the thread; from any thread."""
        self._queue.append(work)
        os.eventfd_write(self._wake, 1)

    def watch(self, inode: int, when_gone: Callable[[], None]) -> None:
        """Call ``when_gone`` once, in the thread, after the last user of the namespace is gone."""

        def body() -> None:
            self._watched.setdefault(inode, _Watched(when_gone))

        self.soon(body)

    def forget(self, inode: int) -> None:
        def body() -> None:
            watched = self._watched.pop(inode, None)
            if watched is not None:
                for pid in list(watched.users):
                    self._drop(watched, pid)

        self.soon(body)

    # --- in the thread

    def _run(self) -> None:
        while self._running:
            deadlines = [w.deadline for w in self._watched.values() if w.deadline is not None]
            wait = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
            for fd, _ in self._epoll.poll(wait):
                if handler := self._handlers.get(fd):
                    self._safely(handler)
            self._safely(self._review)
            self._safely(self._finish)

    @staticmethod
    def _safely(work: Callable[[], None]) -> None:
        """One namespace in trouble must not stop the care for the others."""
        try:
            work()
        except Exception:
            log.exception("hostlab: watching network namespaces")

    def _woken(self) -> None:
        os.eventfd_read(self._wake)
        while self._queue:
            self._queue.popleft()()

    def _mounts_changed(self) -> None:
        for watched in self._watched.values():
            watched.stale = True

    def _review(self) -> None:
        """Look anew for users of the namespaces about which something was heard."""
        stale = {inode: watched for inode, watched in self._watched.items() if watched.stale}
        if not stale:
            return
        found: dict[int, set[int]] = {inode: set() for inode in stale}
        for pid, inode in processes():
            if inode in found:
                found[inode].add(pid)
        mounted = mounted_namespaces(self._mount_table())
        for inode, watched in stale.items():
            watched.stale = False
            for pid in watched.users.keys() - found[inode]:
                self._drop(watched, pid)
            for pid in found[inode] - watched.users.keys():
                self._add(watched, pid, inode)
            if watched.users or inode in mounted:
                watched.deadline = None
            elif watched.deadline is None:
                watched.deadline = time.monotonic() + self._linger_s

    def _finish(self) -> None:
        """Namespaces whose time is over, unless somebody came back meanwhile."""
        now = time.monotonic()
        due = [inode for inode, w in self._watched.items() if w.deadline is not None and w.deadline <= now]
        for inode in due:
            self._watched[inode].stale = True
        self._review()
        for inode in due:
            watched = self._watched.get(inode)
            if watched is not None and watched.deadline is not None:
                del self._watched[inode]
                watched.when_gone()

    def _add(self, watched: _Watched, pid: int, inode: int) -> None:
        with suppress(OSError):
            pidfd = os.pidfd_open(pid)
            try:
                if namespace_of(pid) != inode:  # the number went to another process
                    raise ProcessLookupError
            except OSError:
                os.close(pidfd)
                raise
            watched.users[pid] = pidfd

            def ended() -> None:
                self._drop(watched, pid)
                watched.stale = True

            self.on_readable(pidfd, ended)

    def _drop(self, watched: _Watched, pid: int) -> None:
        self._epoll.unregister(watched.users[pid])
        del self._handlers[watched.drop(pid)]

    def _mount_table(self) -> str:
        os.lseek(self._mountinfo, 0, os.SEEK_SET)
        parts = []
        while part := os.read(self._mountinfo, 1 << 16):
            parts.append(part)
        return b"".join(parts).decode(errors="replace")
