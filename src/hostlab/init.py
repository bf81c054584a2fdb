"""Process 1 of an emulated host: mounts its root, then does what systemd would do for us.

Run by the supervisor as a plain script (``python -I -S init.py CONFIG``, few imports: a host starts in a fraction
of a second). The first process enters the host's network namespace, makes the PID, UTS, IPC and time namespaces,
and stays to pass on the exit status; its child is process 1 of the host.

Boot: root, loopback, boot phase of the agent, agent (Type=notify), ``podman start --all --filter
restart-policy=always`` as podman-restart.service does. SIGTERM is the orderly stop: containers, agent, the rest.
SIGKILL is the crash. The agent is restarted as Restart=on-failure does: after 0.1 s, at most 5 times in 10 s.
What happens is told to the supervisor as JSON lines on the report pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hostlab import mounts

CLEAN_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)  # systemd's "clean exit"
RESTART_DELAY_S, RESTART_WINDOW_S, RESTART_LIMIT = 0.1, 10.0, 5
BOOT_PHASE_LIMIT_S, AGENT_READY_LIMIT_S, AGENT_STOP_LIMIT_S, PODMAN_LIMIT_S = 90.0, 60.0, 30.0, 60.0
NOTIFY = "/run/systemd/notify"
AGENT_PID = "/run/hostlab-agent.pid"
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


class StopRequested(Exception):
    """SIGTERM came while the host was still starting."""


class Init:
    """The loop of process 1: reaps children, keeps the agent running, waits for events."""

    def __init__(self, config: dict[str, Any], report_fd: int, hold_fd: int) -> None:
        self.config = config
        self.report_fd = report_fd
        self.hold_fd = hold_fd
        self.environ: dict[str, str] = config["environ"]
        self.exited: dict[int, int] = {}
        self.stopping = False
        self.stop_wanted = False
        self.agent: int | None = None
        self.agent_due: float | None = None
        self.agent_ready = False
        self.agent_starts: list[float] = []
        self.wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        Path(NOTIFY).parent.mkdir(parents=True, exist_ok=True)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.notify.bind(NOTIFY)

    # -- life ------------------------------------------------------------------------------------------------

    def run(self) -> int:
        try:
            self._boot()
            while True:
                self._turn(None)
        except StopRequested:
            self.stopping = True
        self._stop()
        return 0

    def _boot(self) -> None:
        self.report("mounted")
        if not os.read(self.hold_fd, 1):  # a byte when the hardware is there, an end when power went off before
            raise StopRequested
        os.close(self.hold_fd)
        if self.config["agent"]:
            self.report("boot-phase")
            code = self._run([*self.config["agent_command"], "--once", "--boot-phase"], BOOT_PHASE_LIMIT_S)
            if code != 0:
                self.say(f"the agent's boot phase ended with {code}; the host goes on starting, as with systemd")
            self.report("agent")
            self._start_agent()
            self._until(lambda: self.agent_ready or self.agent is None, AGENT_READY_LIMIT_S)
            if not self.agent_ready:
                self.say("the agent is not ready")
        if self._has_containers():
            self.report("containers")
            self._run(["podman", "start", "--all", "--filter", "restart-policy=always"], PODMAN_LIMIT_S)
        self.report("ready", agent_ready=self.agent_ready)

    def _stop(self) -> None:
        self.report("stopping")
        if self._has_containers():
            # SIGTERM means nothing to a process 1 without a handler (`sleep`), so the time is always spent.
            seconds = str(self.config["stop_timeout_s"])
            self._run(["podman", "stop", "--all", "--time", seconds], PODMAN_LIMIT_S)
        if self.agent is not None:
            os.kill(self.agent, signal.SIGTERM)
            self._until(lambda: self.agent is None, AGENT_STOP_LIMIT_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGTERM)
        self.report("stopped")

    def _has_containers(self) -> bool:
        """Has podman ever made one? Asking podman itself would cost each boot 0.1 s."""
        return any(Path("/var/lib/containers/storage/libpod").glob("*.db"))

    # -- agent -----------------------------------------------------------------------------------------------

    def _start_agent(self) -> None:
        self.agent_due = None
        self.agent_ready = False
        self.agent_starts = [at for at in self.agent_starts if at > time.monotonic() - RESTART_WINDOW_S]
        if len(self.agent_starts) >= RESTART_LIMIT:
            self.say("the agent failed too often and is not started again (start-limit-hit)")
            self.report("agent-failed")
            return
        self.agent_starts.append(time.monotonic())
        self.agent = self.spawn(self.config["agent_command"], {"NOTIFY_SOCKET": NOTIFY})
        Path(AGENT_PID).write_text(f"{self.agent}\n")

    def _agent_ended(self, status: int) -> None:
        self.agent = None
        self.agent_ready = False
        self.report("agent-ended")
        Path(AGENT_PID).unlink(missing_ok=True)
        code = os.waitstatus_to_exitcode(status)
        self.say(f"the agent ended with {code}")
        failed = code != 0 and -code not in CLEAN_SIGNALS
        if failed and not self.stopping:
            self.agent_due = time.monotonic() + RESTART_DELAY_S

    # -- processes -------------------------------------------------------------------------------------------

    def spawn(self, command: Sequence[str], extra: dict[str, str] | None = None) -> int:
        """Start ``command`` in a session of its own, output to the host's console log. Returns its pid."""
        return os.posix_spawnp(
            command[0],
            list(command),
            self.environ | (extra or {}),
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE],
        )

    def _run(self, command: Sequence[str], limit_s: float) -> int:
        """Run to the end; SIGTERM, then SIGKILL after ``limit_s``. Returns the exit code, 128 + n for a signal."""
        try:
            pid = self.spawn(command)
        except OSError as error:
            self.say(f"{command[0]}: {error.strerror}")
            return 127
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._until(lambda: pid in self.exited, limit_s):
                break
            self.say(f"{' '.join(command)}: still running after {limit_s:g} s")
            os.kill(pid, number)
            limit_s = 10.0
        code = os.waitstatus_to_exitcode(self.exited.pop(pid, signal.SIGKILL))
        return code if code >= 0 else 128 - code

    def _until(self, done: Any, limit_s: float) -> bool:
        """Turn the loop until ``done()``; False after ``limit_s``."""
        deadline = time.monotonic() + limit_s
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._turn(left)
        return True

    def _turn(self, timeout_s: float | None) -> None:
        """Wait for one event (a signal, a notification, the agent's restart delay) and handle all that came."""
        if self.agent_due is not None:
            left = max(0.0, self.agent_due - time.monotonic())
            timeout_s = left if timeout_s is None else min(left, timeout_s)
        select.select([self.wake, self.notify.fileno()], [], [], timeout_s)
        with contextlib.suppress(BlockingIOError):
            numbers = os.read(self.wake, 512)
            self.stop_wanted = self.stop_wanted or any(n in (signal.SIGTERM, signal.SIGINT) for n in numbers)
        with contextlib.suppress(BlockingIOError):
            while True:
                if b"READY=1" in self.notify.recv(4096).split(b"\n"):
                    self.agent_ready = True
                    self.report("agent-ready")
        self._reap()
        if self.stop_wanted and not self.stopping:
            raise StopRequested
        if self.agent_due is not None and time.monotonic() >= self.agent_due and not self.stopping:
            self._start_agent()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.agent:
                self._agent_ended(status)
            else:
                self.exited[pid] = status
                if len(self.exited) > 4096:  # orphans nobody waits for
                    self.exited.pop(next(iter(self.exited)))

    # -- words -----------------------------------------------------------------------------------------------

    def report(self, phase: str, **more: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self.report_fd, json.dumps({"phase": phase} | more).encode() + b"\n")

    def say(self, text: str) -> None:
        print(f"init: {text}", flush=True)


def loopback_up() -> None:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(sock, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def new_clock() -> None:
    """A time namespace for the children, if the kernel has them: their uptime begins at this boot."""
    try:
        mounts.unshare(mounts.CLONE_NEWTIME)
    except OSError:
        return
    now = {"monotonic": time.monotonic(), "boottime": time.clock_gettime(time.CLOCK_BOOTTIME)}
    Path("/proc/self/timens_offsets").write_text("".join(f"{clock} -{int(at)} 0\n" for clock, at in now.items()))


def main(config: dict[str, Any], netns_fd: int, report_fd: int, hold_fd: int) -> int:
    mounts.die_with_parent(signal.SIGKILL)
    mounts.setns(netns_fd, mounts.CLONE_NEWNET)
    os.close(netns_fd)
    new_clock()
    mounts.unshare(mounts.CLONE_NEWPID | mounts.CLONE_NEWUTS | mounts.CLONE_NEWIPC)
    child = os.fork()
    if child:
        os.write(report_fd, json.dumps({"phase": "started", "pid": child}).encode() + b"\n")
        os.close(report_fd)
        os.close(hold_fd)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF
    mounts.die_with_parent(signal.SIGKILL)
    mounts.unshare(mounts.CLONE_NEWNS)
    mounts.make_private()
    paths = {name: Path(config[name]) for name in ("disk", "sys", "hostlab", "state")}
    root = Path(config["root"])
    mounts.build_root(root, needed=config["needed"], **paths)
    mounts.pivot_root(str(root))
    mounts.hide_hypervisor(config["environ"])
    mounts.set_process_name("init")
    mounts.set_hostname(config["name"])
    loopback_up()
    os.environ.clear()
    os.environ.update(config["environ"])
    return Init(config, report_fd, hold_fd).run()


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text()), *map(int, sys.argv[2:])))
