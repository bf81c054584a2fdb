"""The power of an emulated host: what has to exist for one boot, how it starts, ends, and what is left of it."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostlab import mounts
from hostlab.hardware import Hardware
from hostlab.layout import HostDirs
from hostlab.statefs import StateFs

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class State(enum.Enum):
    OFF = "off"
    BOOTING = "booting"
    RUNNING = "running"
    STOPPING = "stopping"


class Power:
    """One boot after the other. All methods return at once; ends and phases come through ``selector``."""

    def __init__(
        self, dirs: HostDirs, spec: Mapping[str, Any], hardware: Hardware, selector: selectors.BaseSelector
    ) -> None:
        self.dirs = dirs
        self.spec = spec
        self.hardware = hardware
        self.selector = selector
        self.state = State.OFF
        self.boots = 0
        self.boot_id = ""
        self.failure: str | None = None
        self.started: float | None = None  # time.time()
        self.boot_s: float | None = None
        self.init_pid: int | None = None
        self.agent_ready = False
        self.agent_starts = 0
        self.environ = host_environ() | spec.get("environ", {})
        self._begun = 0.0
        self._init_fd: int | None = None
        self._netns: int | None = None
        self._state_fs: StateFs | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._report: int | None = None
        self._go: int | None = None
        self._words = b""
        self._orderly = False
        _write_tools(dirs.inside)

    # -- on --------------------------------------------------------------------------------------------------

    def on(self) -> None:
        """Start the next boot. Only from OFF."""
        self._begun = time.monotonic()
        self.started = time.time()
        self.boots += 1
        self.boot_id = str(uuid.uuid4())
        self.failure, self.boot_s, self.agent_ready, self._orderly = None, None, False, False
        self.agent_starts = 0
        (self.dirs.inside / "boot_id").write_text(f"{self.boot_id}\n")
        self._state_fs = StateFs(self.dirs.lib, self._scratch("state"), self.dirs.mounts / f"state-{self.boots}")
        self._netns = mounts.new_network_namespace()
        self._spawn()
        self.state = State.BOOTING

    def _scratch(self, name: str) -> Path:
        return self.dirs.run / f"{name}-{self.boots}"

    def _spawn(self) -> None:
        assert self._netns is not None
        root = self.dirs.mounts / "root"
        root.mkdir(exist_ok=True)
        config = {
            "name": self.dirs.name,
            "root": str(root),
            "disk": str(self.dirs.disk),
            "sys": str(self.hardware.sys),
            "hostlab": str(self.dirs.inside),
            "state": str(self.dirs.mounts / f"state-{self.boots}"),
            "needed": needed_paths(),
            "environ": self.environ,
            "agent": bool(self.spec.get("agent")),
            "agent_command": [str(Path(sys.executable).with_name("linkwright")), "agent"],
            "stop_timeout_s": 1,
        }
        path = self.dirs.run / "boot.json"
        path.write_text(json.dumps(config))
        self._report, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(write, True)
        hold, self._go = os.pipe2(os.O_CLOEXEC)
        script = Path(__file__).with_name("init.py")
        with open(self.dirs.console_log, "ab") as console:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), str(path), str(self._netns), str(write), str(hold)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                pass_fds=(self._netns, write, hold),
                cwd="/",
                start_new_session=True,
            )
        os.close(write)
        os.close(hold)
        self.selector.register(self._report, selectors.EVENT_READ, self._reported)
        exit_fd = os.pidfd_open(self._process.pid)
        self.selector.register(exit_fd, selectors.EVENT_READ, self._ended)

    # -- off -------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask process 1 to stop in order."""
        self.state = State.STOPPING
        if self._go is not None:  # nothing was started yet, and process 1 may not listen yet
            self._orderly = True
            self._signal(signal.SIGKILL)
        else:
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Power off now: process 1 is killed, and with it everything in the host."""
        self.state = State.STOPPING
        self._orderly = False
        self._signal(signal.SIGKILL)
        # Ends calls that wait inside the emulated tree; a process in such a call cannot die before.
        self.hardware.cut()

    def kill_and_wait(self) -> None:
        """For the supervisor's own end."""
        if self._process is not None:
            self.kill()
            self._process.wait()
            self._gone()

    def _signal(self, number: signal.Signals) -> None:
        if self._init_fd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init_fd, number)
        elif self._process is not None:
            self._process.kill()  # process 1 does not exist yet, or follows by its parent-death signal

    # -- events ----------------------------------------------------------------------------------------------

    def _reported(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return
        if not data:
            self.selector.unregister(descriptor)
            os.close(descriptor)
            self._report = None
            return
        *lines, self._words = (self._words + data).split(b"\n")
        for line in lines:
            self._phase(json.loads(line))

    def _phase(self, word: dict[str, Any]) -> None:
        phase = word["phase"]
        if phase == "started":
            self.init_pid = int(word["pid"])
            with contextlib.suppress(ProcessLookupError):
                self._init_fd = os.pidfd_open(self.init_pid)
        elif phase == "mounted" and self.state is State.BOOTING:
            assert self._netns is not None
            assert self.init_pid is not None
            assert self._go is not None
            # Only now: the wires follow process 1's mounts, and those are complete.
            self.hardware.on(self._netns, self.init_pid)
            os.write(self._go, b"g")
            self._close_go()
        elif phase == "agent-ready":
            self.agent_ready = True
            self.agent_starts += 1
        elif phase == "agent-ended":
            self.agent_ready = False
        elif phase == "ready" and self.state is State.BOOTING:
            self.state = State.RUNNING
            self.boot_s = round(time.monotonic() - self._begun, 3)
        elif phase == "stopped":
            self._orderly = True
            self.hardware.cut()
        print(f"boot {self.boots}: {phase} {time.monotonic() - self._begun:.3f} s", flush=True)

    def _close_go(self) -> None:
        """Process 1 waits at this pipe before it starts anything; if it just closes, it ends."""
        if self._go is not None:
            os.close(self._go)
            self._go = None

    def _ended(self, exit_fd: int) -> None:
        """The outer process has ended, so no process of the host is left."""
        assert self._process is not None
        self.selector.unregister(exit_fd)
        os.close(exit_fd)
        code = self._process.wait()
        if self._report is not None:
            self._reported(self._report)
        if self.state is not State.STOPPING:
            self.failure = f"process 1 ended by itself ({code}); see {self.dirs.console_log}"
            print(self.failure, flush=True)
        self._gone()

    def _gone(self) -> None:
        """Nothing runs any more: give back what belonged to this boot."""
        self.hardware.off()
        if self._report is not None:
            self.selector.unregister(self._report)
            os.close(self._report)
        self._close_go()
        for descriptor in (self._init_fd, self._netns):
            if descriptor is not None:
                os.close(descriptor)
        if self._state_fs is not None:
            self._state_fs.close(keep_unsynced=self._orderly)
        shutil.rmtree(self._scratch("state"), ignore_errors=True)
        self._report = self._init_fd = self._netns = self._process = self._state_fs = self.init_pid = None
        self._words = b""
        self.agent_ready = False
        self.state = State.OFF


def host_environ() -> dict[str, str]:
    """The environment of everything in a host."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{PATH}",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "LINKWRIGHT_NETLINK": "/run/hostlab/netlink.sock",
        "LINKWRIGHT_RESTART": "/run/hostlab/restart",
    }


def needed_paths() -> list[str]:
    """What of the machine Python needs to run this program, wherever it was installed."""
    wanted = {sys.prefix, sys.base_prefix, str(Path(__file__).parent), *sys.path}
    wanted |= {os.path.realpath(path) for path in wanted if path}
    return sorted(path for path in wanted if Path(path).is_absolute() and Path(path).exists())


def _write_tools(inside: Path) -> None:
    """The programs in /run/hostlab."""
    inside.mkdir(parents=True, exist_ok=True)
    tools = {
        "restart": "#!/bin/sh\n# As systemctl reboot: it returns at once.\necho restart >/run/hostlab/request\n",
        "lscpu": "#!/bin/sh\n/run/lscpu.real \"$@\" | grep -v -e '^Hypervisor vendor' -e '^Virtualization type'\n",
    }
    for name, text in tools.items():
        (inside / name).write_text(text)
        (inside / name).chmod(0o755)
