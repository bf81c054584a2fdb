"""The lab as a library: start emulated hosts, run things in them, pull their plugs. Used by tests and by the CLI.

::

    lab = Lab()
    host = lab.up(spec.load(Path("gpu-01.yaml")))
    host.exec(["linkwright", "nics"])
    host.crash()
    lab.down("gpu-01")
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostlab import control, needs
from hostlab.layout import HostDirs, LabDirs
from linkwright.model.errors import Busy, LinkwrightError, Vanished

NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc")


@dataclass(frozen=True)
class Host:
    """A host of the lab, up or not."""

    dirs: HostDirs

    @property
    def name(self) -> str:
        return self.dirs.name

    @property
    def is_up(self) -> bool:
        return self.dirs.supervisor_pid() is not None

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """A command to the supervisor; see ``host.Supervisor``. Raises Vanished when the host is not up."""
        return control.ask(self.dirs.run, command, **arguments)

    def status(self) -> dict[str, Any]:
        """``state`` (off, booting, running, stopping), ``boots``, ``boot_id``, ``init_pid``, ``adapters`` …"""
        return self.ask("status")

    # -- running things in it --------------------------------------------------------------------------------

    def command_line(self, command: Sequence[str], environ: Mapping[str, str] | None = None) -> list[str]:
        """The argument list that runs ``command`` in all namespaces of the host, for Popen and os.execv.

        It starts in the present directory if the host has it, else in /root.
        """
        status = self.status()
        if status["init_pid"] is None:
            raise Vanished(
                f"it is {status['state']}",
                code="host-is-off",
                where=self.name,
                next_step=f"{status['failure'] or ''} Switch it on: linkwright lab boot {self.name}".strip(),
            )
        pid = str(status["init_pid"])
        wanted = status["environ"] | dict(environ or {})
        if "TERM" in os.environ:
            wanted.setdefault("TERM", os.environ["TERM"])
        here = Path.cwd()
        place = str(here) if Path(f"/proc/{pid}/root", str(here).lstrip("/")).is_dir() else "/root"
        extra = ["--time"] if Path(f"/proc/{pid}/ns/time").exists() else []
        return [
            "taskset",
            "--cpu-list",
            str(status["cpu"]),
            "nsenter",
            "--target",
            pid,
            *NAMESPACES,
            *extra,
            "--root",
            "--wd=/",
            "--",
            "env",
            "-i",
            "-C",
            place,
            *(f"{name}={text}" for name, text in wanted.items()),
            *command,
        ]

    def exec(
        self,
        command: Sequence[str],
        *,
        check: bool = True,
        stdin: str | None = None,
        environ: Mapping[str, str] | None = None,
        timeout_s: float | None = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``command`` in the host and wait. With ``check`` a failure raises LinkwrightError."""
        done = subprocess.run(
            self.command_line(command, environ),
            input=stdin if stdin is not None else "",
            text=True,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise LinkwrightError(
                f"{' '.join(command)}: exit {done.returncode}: {(done.stderr or done.stdout).strip()}",
                code="command-failed",
                where=self.name,
            )
        return done

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start ``command`` in the host; options of subprocess.Popen."""
        return subprocess.Popen(self.command_line(command), text=True, **options)

    def write(self, path: str, text: str) -> None:
        """Write a file inside the host."""
        self.exec(["sh", "-c", 'mkdir -p "$(dirname "$0")" && cat >"$0"', path], stdin=text)

    # -- power and faults ------------------------------------------------------------------------------------

    def restart(self) -> dict[str, Any]:
        """Orderly restart; returns the status when the host is ready again."""
        return self._running(self.ask("restart"))

    def crash(self, *, back: bool = True) -> dict[str, Any]:
        """Power loss: process 1 is killed, unsynced state is lost. Then it starts again, if ``back``."""
        status = self.ask("crash", back=back)
        return self._running(status) if back else status

    def boot(self) -> dict[str, Any]:
        """Switch it on after ``crash(back=False)``."""
        return self._running(self.ask("boot"))

    def wait_ready(self, boot: int | None = None, *, agent_starts: int = 0) -> dict[str, Any]:
        """Wait until boot number ``boot`` (default: the present one) is ready, and its agent for the n-th time."""
        return self._running(
            self.ask("wait", agent_starts=agent_starts, **({} if boot is None else {"boot": boot}))
        )

    def crash_on_next_restart(self) -> None:
        """The next restart that the host asks for becomes a power loss."""
        self.ask("crash-on-next-restart")

    def fault(self, where: str, name: str, value: object = True) -> None:
        """Set fault ``name`` of the adapter at this PCI address, or of this fabric; see ``faults``."""
        self.ask("fault", where=where, name=name, value=value)

    def _running(self, status: dict[str, Any]) -> dict[str, Any]:
        if status["state"] != "running":
            raise LinkwrightError(
                f"it did not start: {status['failure']}",
                code="host-failed",
                where=self.name,
                next_step=f"linkwright lab log {self.name}",
            )
        return status


class Lab:
    """All hosts below one directory (default: the machine's lab, see ``layout``)."""

    def __init__(self, directory: Path | None = None) -> None:
        self.dirs = LabDirs.find(directory)

    def host(self, name: str) -> Host:
        return Host(self.dirs.host(name))

    def hosts(self) -> list[Host]:
        """Hosts with a supervisor, by name, and those that lost theirs (``Host.is_up`` is false)."""
        if not self.dirs.run.is_dir():
            return []
        return [self.host(path.name) for path in sorted(self.dirs.run.iterdir()) if (path / "lock").exists()]

    def up(self, spec: Mapping[str, Any]) -> Host:
        """Start the host that ``spec`` (a host file's content, see ``spec``) describes and wait until it is ready.

        Raises LinkwrightError: host-already-up, lab-not-possible when the machine lacks something, host-failed.
        """
        needs.check()
        host = self.host(str(spec["name"]))
        if host.is_up:
            raise LinkwrightError(
                "it is up already",
                code="host-already-up",
                where=host.name,
                next_step=f"linkwright lab exec {host.name} -- COMMAND, or linkwright lab down {host.name}",
            )
        self._clear(host)
        for folder in (host.dirs.run, host.dirs.inside, host.dirs.mounts, host.dirs.lib):
            folder.mkdir(parents=True, exist_ok=True)
        host.dirs.lib.chmod(0o700)
        host.dirs.spec.write_text(json.dumps(dict(spec)))
        failure = self._start(host.dirs)
        if failure:
            self._clear(host)
            raise LinkwrightError(
                f"it did not start: {failure}",
                code="host-failed",
                where=host.name,
                next_step=f"Look at {host.dirs.supervisor_log} and {host.dirs.console_log}",
            )
        return host

    def _start(self, dirs: HostDirs) -> str:
        """Start the supervisor, detached, and wait for its word. Returns why it failed, or nothing."""
        read, write = os.pipe()
        dirs.console_log.write_bytes(b"")
        with open(dirs.supervisor_log, "wb") as log:
            subprocess.run(  # it detaches at once
                [sys.executable, "-P", "-m", "hostlab.host", dirs.name, str(dirs.run), str(dirs.lib), str(write)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                pass_fds=(write,),
            )
        os.close(write)
        with open(read, "rb") as pipe:
            said = pipe.readline()
        return str(json.loads(said)["failure"]) if said else "the supervisor ended without a word"

    def down(self, name: str, *, erase: bool = False) -> bool:
        """Stop the host in order and take away all that runs. ``erase`` deletes its disk, firmware and logs too.

        Returns False when it was not up (what a killed supervisor left is still cleared away).
        """
        host = self.host(name)
        pid = host.dirs.supervisor_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                gone = os.pidfd_open(pid)
                try:
                    try:
                        host.ask("down")
                    except (Vanished, Busy):
                        signal.pidfd_send_signal(gone, signal.SIGKILL)
                    select.select([gone], [], [], 30)
                finally:
                    os.close(gone)
        self._clear(host)
        if erase:
            shutil.rmtree(host.dirs.lib, ignore_errors=True)
        for folder in (self.dirs.run, self.dirs.lib):
            with contextlib.suppress(OSError):  # other hosts are in there
                folder.rmdir()
        return pid is not None

    def _clear(self, host: Host) -> None:
        """Files only: mounts, processes and namespaces ended with the supervisor."""
        shutil.rmtree(host.dirs.run, ignore_errors=True)
