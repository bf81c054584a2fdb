"""Whose network namespace is it, who has /dev/vfio open: one bounded look through /proc.

Only taken when some function is out of sight (its netdev in another namespace) or bound to vfio; the walk costs a
few microseconds a process. Containers whose processes only threads or open descriptors keep alive are not found.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from linkwright.kernel import sysfs
from linkwright.kernel.system import System

_NAMED = ("run/netns", "run/docker/netns")
_MOST = 4096  # namespaces looked at in one observation


@dataclass(frozen=True)
class Namespace:
    """A network namespace other than the host's. ``path`` can be opened now; ``pid``: a process in it."""

    inode: int
    path: str
    pid: int | None = None

    def describe(self, proc: Path) -> str:
        if self.pid is None:
            return f"network namespace {self.path}"
        return f"{process(proc, self.pid)}, network namespace {self.inode}"


def process(proc: Path, pid: int) -> str:
    """``pid 4711 (qemu-system-x86)``."""
    name = sysfs.text(proc / str(pid) / "comm")
    return f"pid {pid} ({name})" if name else f"pid {pid}"


def foreign_namespaces(system: System, first: Iterable[int] = ()) -> list[Namespace]:
    """All that named mounts and processes lead to, each once; those with an inode in ``first`` come first."""
    own = _inode(f"{system.proc}/self/ns/net") or _inode(f"{system.proc}/1/ns/net")
    found: dict[int, Namespace] = {}
    for pid in pids(system.proc):
        inode = _inode(f"{system.proc}/{pid}/ns/net")
        if inode is not None and inode != own and inode not in found:
            found[inode] = Namespace(inode, f"{system.proc}/{pid}/ns/net", pid)
    for folder in _NAMED:
        base = system.proc.parent / folder
        for name in sysfs.names(base) or ():
            try:
                inode = os.stat(base / name).st_ino  # noqa: PTH116 - beside readlink above: the plain call
            except OSError:
                continue
            if inode != own and inode not in found:
                found[inode] = Namespace(inode, os.fspath(base / name))
    wanted = set(first)
    return sorted(found.values(), key=lambda n: n.inode not in wanted)[:_MOST]


def netns_of(proc: Path, pid: int) -> int | None:
    """The inode of a process's network namespace."""
    return _inode(f"{proc}/{pid}/ns/net")


def users_of(proc: Path, devices: set[str]) -> dict[str, list[int]]:
    """Which processes have which of these device files open: path → pids."""
    found: dict[str, list[int]] = {}
    for pid in pids(proc):
        base = f"{proc}/{pid}/fd"
        for name in sysfs.names(base) or ():
            try:
                target = os.readlink(f"{base}/{name}")  # noqa: PTH115 - thousands of them: strings, not Paths
            except OSError:
                continue
            if target in devices and pid not in found.setdefault(target, []):
                found[target].append(pid)
    return found


def pids(proc: Path) -> Iterator[int]:
    for name in sysfs.names(proc) or ():
        if name.isdigit():
            yield int(name)


def _inode(path: str) -> int | None:
    """``net:[4026531840]`` → 4026531840, without opening anything."""
    try:
        text = os.readlink(path)  # noqa: PTH115 - as above
    except OSError:
        return None
    digits = text.rpartition("[")[2].rstrip("]")
    return int(digits) if digits.isdigit() else None
