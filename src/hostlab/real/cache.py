"""Where built things are kept: one directory a thing, named by the hash of what it was made from.

A directory appears under its name only when it is complete (built beside it, then renamed), and one build runs at
a time. Older ones of the same kind are removed after a successful build, unless a running host uses them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


def directory() -> Path:
    """$XDG_CACHE_HOME/linkwright-lab, by default ~/.cache/linkwright-lab."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "linkwright-lab"


def obtain(kind: str, digest: str, build: Callable[[Path], None]) -> Path:
    """The directory ``KIND-DIGEST``; ``build`` fills a fresh one when it is not there. What ``build`` raises comes
    through."""
    base = directory()
    base.mkdir(parents=True, exist_ok=True)
    wanted = base / f"{kind}-{digest}"
    if wanted.is_dir():
        return wanted
    with _locked(base / f"{kind}.lock", fcntl.LOCK_EX):
        if wanted.is_dir():  # somebody else built it while we waited
            return wanted
        for left in base.glob(f".{kind}-*"):  # of a build that was killed
            _remove(left)
        fresh = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=base))
        try:
            fresh.chmod(0o755)
            build(fresh)
            os.sync()
            fresh.rename(wanted)
        except BaseException:
            _remove(fresh)
            raise
        for old in base.glob(f"{kind}-*"):
            if old != wanted and old.is_dir() and not _in_use(old):
                _remove(old)
    return wanted


def hold(thing: Path) -> int:
    """An open descriptor; ``thing`` is not removed while it, or one inherited from it, is open."""
    descriptor = os.open(thing, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _in_use(thing: Path) -> bool:
    descriptor = os.open(thing, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _remove(tree: Path) -> None:
    """Never through a mount: a build that was killed may have left one below its root."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if any(mount.startswith(f"{tree}/") for mount in mounts):
        return
    shutil.rmtree(tree, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)
