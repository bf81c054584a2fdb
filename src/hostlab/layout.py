"""Where a lab keeps things: one folder for what runs, one for what persists, in each a folder a host.

Default /run/linkwright-lab and /var/lib/linkwright-lab; with LINKWRIGHT_LAB (or ``Lab(directory)``) ``run`` and
``lib`` below that directory.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LabDirs:
    run: Path
    lib: Path

    @staticmethod
    def find(directory: Path | None = None) -> LabDirs:
        chosen = directory or (Path(os.environ["LINKWRIGHT_LAB"]) if os.environ.get("LINKWRIGHT_LAB") else None)
        if chosen is None:
            return LabDirs(Path("/run/linkwright-lab"), Path("/var/lib/linkwright-lab"))
        chosen = chosen.absolute()
        return LabDirs(chosen / "run", chosen / "lib")

    def host(self, name: str) -> HostDirs:
        return HostDirs(name, self.run / name, self.lib / name)


@dataclass(frozen=True)
class HostDirs:
    """Paths of one host. Everything below ``run`` may be deleted when the host is down."""

    name: str
    run: Path
    lib: Path

    @property
    def spec(self) -> Path:
        return self.run / "host.json"

    @property
    def lock(self) -> Path:
        return self.run / "lock"

    @property
    def inside(self) -> Path:
        """Bound to /run/hostlab in the host."""
        return self.run / "inside"

    @property
    def mounts(self) -> Path:
        return self.run / "mnt"

    @property
    def disk(self) -> Path:
        return self.lib / "disk"

    @property
    def etc(self) -> Path:
        """The host's /etc/linkwright."""
        return self.disk / "etc/linkwright"

    @property
    def firmware(self) -> Path:
        return self.lib / "firmware"

    @property
    def console_log(self) -> Path:
        return self.lib / "console.log"

    @property
    def supervisor_log(self) -> Path:
        return self.lib / "supervisor.log"

    def supervisor_pid(self) -> int | None:
        """The running supervisor's pid, None when there is none: it holds a lock as long as it lives."""
        try:
            descriptor = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(descriptor, 32, 0).decode().strip()
            return int(text) if text else None
        finally:
            os.close(descriptor)
        return None
