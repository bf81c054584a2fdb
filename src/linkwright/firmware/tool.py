"""Run one command line of the vendor's tools to its end, whatever happens to us.

- The tool gets a session of its own: Ctrl-C in a terminal does not reach it. Nothing here ever kills it.
- Its output goes to an unlinked file, not to a pipe: if this process dies, the tool does not die of SIGPIPE
  in the middle of a register write.
- It is awaited through a pidfd. After ``slow_after_s`` that is said (``firmware-slow``), and the wait goes on.
"""

from __future__ import annotations

import logging
import os
import re
import select
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from linkwright.model.errors import NeedsPerson

from .commands import Command

OUTPUT_LIMIT = 1 << 20
"""Bytes kept of one answer; a full query of a ConnectX-7 has about 60 kB."""

_VERSION = re.compile(r"mstflint (\d+(?:\.\d+)+)")
_log = logging.getLogger("linkwright.firmware")


class Answer(Struct, frozen=True, kw_only=True):
    """What a tool said (both streams in order) and how it ended: exit status, or minus the signal."""

    command: Command
    code: int
    text: str


Report = Callable[[str, str], None]
"""Told (PCI address, sentence) when something takes unusually long."""


def log_report(pf: str, text: str) -> None:
    _log.warning("firmware-slow %s: %s", pf, text)


def environment() -> dict[str, str]:
    """English words, the system's tools, and nothing of ours (mstfwreset would obey a PYTHONPATH)."""
    return {"PATH": os.environ.get("PATH") or os.defpath + ":/usr/sbin:/sbin", "LC_ALL": "C", "LANG": "C"}


def run(
    command: Command,
    *,
    pf: str = "",
    lock: int | None = None,
    slow_after_s: float = 60.0,
    report: Report = log_report,
) -> Answer:
    """Run ``command`` to its end. ``lock``: descriptor that the child inherits (:mod:`.locking`).

    Raises NeedsPerson ``mstflint-missing`` when the tool is not installed or cannot be executed."""
    with tempfile.TemporaryFile() as output:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(),
                cwd="/",
                start_new_session=True,
                pass_fds=() if lock is None else (lock,),
            )
        except OSError as e:
            raise NeedsPerson(
                f"{command[0]} cannot be run: {e.strerror}",
                code="mstflint-missing",
                where=pf,
                next_step="Install the package mstflint (Debian, Ubuntu: apt install mstflint).",
            ) from e
        if not _ended(child.pid, slow_after_s):
            report(pf, f"{' '.join(command)} has run for {slow_after_s:.0f} s; it is left to finish.")
        code = child.wait()
        output.seek(0)
        text = output.read(OUTPUT_LIMIT).decode("utf-8", errors="replace")
    return Answer(command=command, code=code, text=text)


def _ended(pid: int, limit_s: float) -> bool:
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(limit_s * 1000))
    finally:
        os.close(descriptor)


class Facts(Struct, frozen=True, kw_only=True):
    """``json``: does this version take ``-j FILE`` (its ``--help`` lists it)?"""

    version: str | None = None
    json: bool = False


class Toolbox:
    """The tools that PATH names, and ``scratch``, a directory for the files that they write."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._facts: dict[tuple[str, int, int], Facts] = {}

    def facts(self, name: str) -> Facts:
        """Looked at once for each version: again when the file changed, so an upgrade is seen."""
        path = shutil.which(name, path=environment()["PATH"])
        if path is None:
            return Facts()
        stat = Path(path).stat()
        key = (path, stat.st_mtime_ns, stat.st_size)
        if key not in self._facts:
            version = _VERSION.search(run((path, "--version")).text)
            can_json = "--json_format" in run((path, "--help")).text
            self._facts[key] = Facts(version=version[1] if version else None, json=can_json)
        return self._facts[key]

    @contextmanager
    def file(self) -> Iterator[Path]:
        """A path that does not exist yet, in a directory of its own (mstconfig asks before it overwrites)."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._scratch) as directory:
            yield Path(directory) / "answer"


def read_bounded(path: Path) -> str:
    """The text of a file that a tool wrote, at most OUTPUT_LIMIT bytes; empty when there is none."""
    try:
        with path.open("rb") as f:
            return f.read(OUTPUT_LIMIT).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
