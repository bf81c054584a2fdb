"""The supervisor of one emulated host: ``python -m hostlab.host NAME RUN_DIR LIB_DIR READY_FD``.

It is the hardware and the power button. Its mount namespace holds the FUSE mounts, its network namespace the
fabrics' bridges, so nothing of the lab is seen on the machine, and when it ends, however it ends, the kernel takes
all of that away. The host itself (``init.py``) lives in namespaces below it and dies with it.

One thread waits for everything (control socket, the host's own restart requests, what process 1 reports, its end),
because PR_SET_PDEATHSIG follows the thread that started the host. FUSE and netlink have threads of their own.
All of it and the host share one CPU: a FUSE call costs 15 µs there and 200 µs across two.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostlab import control, cpu, disk, mounts
from hostlab.hardware import Hardware
from hostlab.layout import HostDirs
from hostlab.power import Power, State
from linkwright.model.errors import LinkwrightError

STOP_LIMIT_S = 90.0  # longer than everything init waits for when it stops


class Supervisor:
    """Answers commands one at a time; one that changes the power state is answered when it is done."""

    def __init__(self, dirs: HostDirs, spec: dict[str, Any], on_cpu: int) -> None:
        self.dirs = dirs
        self.spec = spec
        self.cpu = on_cpu
        self.selector = selectors.DefaultSelector()
        self.hardware = Hardware(dirs, spec)
        self.power = Power(dirs, spec, self.hardware, self.selector)
        self.crash_on_restart = False
        self.then: Callable[[], None] | None = None  # what follows when the host is off
        self.waiting: list[tuple[control.Channel, Callable[[], bool]]] = []
        self.done = False
        self.stop_deadline: float | None = None

    # -- loop ------------------------------------------------------------------------------------------------

    def run(self, ready: Callable[[str], None]) -> None:
        server = control.listen(self.dirs.run)
        self.selector.register(server, selectors.EVENT_READ, self._accept)
        fifo = self.dirs.inside / "request"
        os.mkfifo(fifo, 0o600)
        # Opened for both directions, so that a writer in the host never waits and we never read an end of file.
        requests = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.selector.register(requests, selectors.EVENT_READ, self._host_request)
        self.power.on()
        while not self.done:
            timeout = None if self.stop_deadline is None else max(0.0, self.stop_deadline - time.monotonic())
            for key, _ in self.selector.select(timeout):
                if key.fd in self.selector.get_map():  # an event before it may have ended what it belongs to
                    key.data(key.fileobj)
            if self.stop_deadline is not None and time.monotonic() >= self.stop_deadline:
                log("the host did not stop in time and is killed")
                self.stop_deadline = None
                self.power.kill()
            if self.power.state is State.OFF:
                self.stop_deadline = None
                follow, self.then = self.then, None
                if follow is not None:
                    follow()
                elif self.power.boots == 1 and self.power.failure:
                    self.done = True  # it never came up
            if self.power.state in (State.RUNNING, State.OFF):
                ready(self.power.failure or "")
            self._answer_waiting()

    def _answer_waiting(self) -> None:
        for channel, finished in list(self.waiting):
            if finished():
                self.waiting.remove((channel, finished))
                channel.answer(self._status())

    # -- what comes in ---------------------------------------------------------------------------------------

    def _accept(self, server: Any) -> None:
        with contextlib.suppress(BlockingIOError):
            sock, _ = server.accept()
            sock.setblocking(False)
            channel = control.Channel(sock)
            self.selector.register(sock, selectors.EVENT_READ, lambda _: self._readable(channel))

    def _readable(self, channel: control.Channel) -> None:
        try:
            request = channel.receive()
        except (OSError, ValueError):
            self.selector.unregister(channel.sock)
            channel.sock.close()
            return
        if request is None:
            return
        self.selector.unregister(channel.sock)
        command = str(request.pop("command", ""))
        try:
            finished = self._command(command, request)
        except LinkwrightError as error:
            channel.answer({"error": error.to_json()})
        except Exception as error:  # the lab's hardware must not go away because of one bad request
            log(f"{command}: {error!r}")
            channel.answer({"error": {"message": f"{command}: {error!r}", "code": "lab-internal"}})
        else:
            self.waiting.append((channel, finished))

    def _host_request(self, descriptor: int) -> None:
        """Somebody in the host ran /run/hostlab/restart."""
        words = os.read(descriptor, 4096).decode(errors="replace").split()
        log(f"the host asks: {' '.join(words)}")
        if "crash" in words and self.power.state in (State.RUNNING, State.BOOTING):
            self._crash(back=True)
            return
        if "restart" in words and self.power.state in (State.RUNNING, State.BOOTING):
            if self.crash_on_restart:
                self.crash_on_restart = False
                self._crash(back=True)
            else:
                self._stop(self.power.on)

    # -- commands --------------------------------------------------------------------------------------------

    def _command(self, command: str, arguments: dict[str, Any]) -> Callable[[], bool]:
        """Begin ``command``; the returned function says when it is done."""
        boots = self.power.boots
        if command == "status":
            return lambda: True
        if command == "wait":  # until boot number `boot` is ready, and its agent for the n-th time
            boot, starts = int(arguments.get("boot", boots)), int(arguments.get("agent_starts", 0))
            return lambda: (
                (self.power.boots >= boot and self.power.state is State.OFF)
                or (
                    self.power.boots >= boot
                    and self.power.state is State.RUNNING
                    and (not starts or (self.power.agent_ready and self.power.agent_starts >= starts))
                )
            )
        if command == "restart":
            self._stop(self.power.on)
        elif command == "crash":
            self._crash(back=bool(arguments.get("back", True)))
            if not arguments.get("back", True):
                return lambda: self.power.state is State.OFF
        elif command == "boot":
            if self.power.state is not State.OFF:
                return lambda: True
            self.power.on()
        elif command == "down":
            self._stop(self._end)
            return lambda: self.done
        elif command == "crash-on-next-restart":
            self.crash_on_restart = True
            return lambda: True
        elif command == "fault":
            self.hardware.fault(arguments)
            return lambda: True
        else:
            raise LinkwrightError(f"the supervisor has no command {command!r}", code="lab-unknown-command")
        return lambda: self.power.boots > boots and self.power.state in (State.RUNNING, State.OFF)

    def _stop(self, then: Callable[[], None]) -> None:
        """Orderly: process 1 is told; ``then`` follows when all is off."""
        self._follow(then)
        if self.power.state is not State.OFF:
            self.power.stop()
            self.stop_deadline = time.monotonic() + STOP_LIMIT_S

    def _crash(self, *, back: bool) -> None:
        self._follow(self.power.on if back else None)
        if self.power.state is not State.OFF:
            self.power.kill()

    def _follow(self, then: Callable[[], None] | None) -> None:
        """What comes when the host is off; nothing comes in the way of `down`."""
        if self.then != self._end:
            self.then = then

    def _end(self) -> None:
        self.done = True

    def _status(self) -> dict[str, Any]:
        return {
            "name": self.dirs.name,
            "state": self.power.state.value,
            "failure": self.power.failure,
            "boots": self.power.boots,
            "boot_id": self.power.boot_id,
            "started": self.power.started,
            "boot_s": self.power.boot_s,
            "agent_ready": self.power.agent_ready,
            "agent_starts": self.power.agent_starts,
            "init_pid": self.power.init_pid,
            "supervisor_pid": os.getpid(),
            "cpu": self.cpu,
            "environ": self.power.environ,
            "adapters": self.hardware.describe(),
        }


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _take_lock(dirs: HostDirs) -> int:
    descriptor = os.open(dirs.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.truncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def main(arguments: list[str]) -> int:
    if os.fork():
        return 0  # detached: whoever started us need not reap us
    dirs = HostDirs(arguments[0], Path(arguments[1]), Path(arguments[2]))
    pipe = int(arguments[3])
    os.set_inheritable(pipe, False)
    told = False

    def ready(failure: str) -> None:
        """Once: whoever ran `lab up` learns that the host is up (empty), or why it is not."""
        nonlocal told
        if not told:
            told = True
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, json.dumps({"failure": failure}).encode() + b"\n")
            os.close(pipe)

    try:
        lock = _take_lock(dirs)
    except BlockingIOError:
        ready("another supervisor has this host")
        return 1
    # SIGTERM is `down` in a hurry: the default action ends this process, and the host with it.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    supervisor = None
    try:
        spec = json.loads(dirs.spec.read_text())
        on_cpu = cpu.take()
        # Before any thread exists: both apply to the calling thread, and later threads inherit them.
        mounts.unshare(mounts.CLONE_NEWNS | mounts.CLONE_NEWNET)
        mounts.make_private()
        disk.prepare(dirs.disk, dirs.name)
        supervisor = Supervisor(dirs, spec, on_cpu)
        supervisor.run(ready)
        return 0
    except LinkwrightError as error:
        log(str(error))
        ready(str(error))
        return 1
    except Exception as error:
        import traceback

        traceback.print_exc()
        ready(repr(error))
        return 1
    finally:
        if supervisor is not None:
            supervisor.power.kill_and_wait()
            supervisor.hardware.close()
            supervisor._answer_waiting()
        os.close(lock)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
