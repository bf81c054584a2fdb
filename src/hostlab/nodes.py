"""Nodes of a sysfs-like tree: folders, attributes, raw files and links, all made on demand from live values.

An attribute is one value: ``show`` makes its text when a reader starts at the beginning (fs/sysfs/file.c keeps
that text for the rest of the read), ``store`` gets each write whole, whatever its offset. Errors are OSError
with the kernel's errno. Nothing here knows of FUSE or of PCI.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

PAGE = 4096
Show = Callable[[], str]
Store = Callable[[str], None]


def error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@dataclass(frozen=True)
class Link:
    """A symbolic link; ``target`` as a reader sees it, usually relative."""

    target: str
    mode: int = stat.S_IFLNK | 0o777
    size: int = 0


@dataclass(frozen=True)
class Attribute:
    """A text file. Without ``show`` it is write-only, without ``store`` read-only."""

    show: Show | None = None
    store: Store | None = None
    size: int = PAGE

    @property
    def mode(self) -> int:
        return stat.S_IFREG | (0o444 if self.show else 0) | (0o200 if self.store else 0)

    def open(self) -> Handle:
        return _AttributeHandle(self)


def _read_only(offset: int, data: bytes) -> None:
    raise error(errno.EACCES)


@dataclass(frozen=True)
class Raw:
    """A binary file: ``read(offset, size)`` and ``write(offset, data)`` go straight through."""

    read: Callable[[int, int], bytes]
    write: Callable[[int, bytes], None] = _read_only
    size: int = 0

    @property
    def mode(self) -> int:
        return stat.S_IFREG | (0o444 if self.write is _read_only else 0o644)

    def open(self) -> Handle:
        return self


@dataclass(frozen=True)
class Folder:
    """``fixed`` entries, and those that ``live`` finds each time somebody looks."""

    fixed: Mapping[str, Node] = field(default_factory=dict)
    live: Callable[[], Mapping[str, Node]] | None = None
    mode: int = stat.S_IFDIR | 0o755
    size: int = 0

    def child(self, name: str) -> Node | None:
        found = self.fixed.get(name)
        return self.live().get(name) if found is None and self.live is not None else found

    def entries(self) -> dict[str, Node]:
        return {**self.fixed, **(self.live() if self.live is not None else {})}


class _AttributeHandle:
    """An open attribute."""

    def __init__(self, attribute: Attribute) -> None:
        self._attribute = attribute
        self._text: bytes | None = None
        self.mode = attribute.mode

    def read(self, offset: int, size: int) -> bytes:
        if self._attribute.show is None:
            raise error(errno.EACCES)
        if offset == 0 or self._text is None:
            self._text = self._attribute.show().encode()
        return self._text[offset : offset + size]

    def write(self, offset: int, data: bytes) -> None:
        if self._attribute.store is None:
            raise error(errno.EACCES)
        self._attribute.store(data.decode("utf-8", "surrogateescape"))


Node = Folder | Attribute | Raw | Link
Handle = Raw | _AttributeHandle


def text(value: object) -> Attribute:
    """A read-only attribute that never changes, with the newline that sysfs adds."""
    line = f"{value}\n"
    return Attribute(lambda: line)


def shown(value: Callable[[], object]) -> Attribute:
    """A read-only attribute of a live value."""
    return Attribute(lambda: f"{value()}\n")


def refused(number: int) -> Attribute:
    """An attribute that is there, but reading it fails (EINVAL, EOPNOTSUPP)."""

    def show() -> str:
        raise error(number)

    return Attribute(show)


def number(written: str, low: int, high: int) -> int:
    """What kstrtou16 and its like read: one integer, any base prefix, an optional newline. EINVAL."""
    try:
        value = int(written.removesuffix("\n"), 0)
    except ValueError:
        raise error(errno.EINVAL) from None
    if not low <= value <= high:
        raise error(errno.EINVAL)
    return value


def boolean(written: str) -> bool:
    """What kstrtobool reads: the first letter decides, "on" and "off" by their second. EINVAL."""
    word = written[:2].lower()
    if word[:1] in ("y", "t", "1") or word == "on":
        return True
    if word[:1] in ("n", "f", "0") or word == "of":
        return False
    raise error(errno.EINVAL)
