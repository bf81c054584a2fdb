"""What podman says of a container, and its events. The container's name is an argument, never in a shell line.

podman's own words are checked against the kernel: after a host crash it may call a dead container running, with
a pid that is gone or belongs to somebody else, so the namespace is only believed when /proc shows it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from linkwright.model.plan import TargetState

log = logging.getLogger(__name__)

INSPECT_LIMIT_S = 20.0
INSPECT_BYTES = 4 << 20
_RESTART_AFTER_S = (0.2, 1.0, 5.0, 30.0)
_TELLING = frozenset({"create", "start", "restart", "stop", "died", "remove", "rename", "pause", "unpause"})


class _State(msgspec.Struct, rename="pascal"):
    status: str = ""
    pid: int = 0


class _HostConfig(msgspec.Struct, rename="pascal"):
    network_mode: str = ""


class _Inspected(msgspec.Struct, rename="pascal"):
    state: _State = msgspec.field(default_factory=_State)
    host_config: _HostConfig = msgspec.field(default_factory=_HostConfig)


class _Event(msgspec.Struct, rename="pascal"):
    name: str = ""
    status: str = ""


def state(name: str, *, proc: Path = Path("/proc"), podman: str = "podman") -> TargetState:
    """The container now. ``unknown`` with ``detail`` when podman cannot be asked; nothing is raised for it.

    ``netns_inode`` is that of ``/proc/PID/ns/net`` and is set exactly when ``state`` is ``running``.
    """
    try:
        done = subprocess.run(
            [podman, "container", "inspect", "--", name],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=INSPECT_LIMIT_S, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return TargetState(state="unknown", detail="podman is not installed")
    except subprocess.TimeoutExpired:
        return TargetState(state="unknown", detail=f"podman did not answer within {INSPECT_LIMIT_S:.0f} s")
    said = done.stderr[:2000].decode(errors="replace").strip()
    if done.returncode != 0:
        if "no such container" in said.lower():
            return TargetState(state="absent", detail=f"podman knows no container {name}")
        return TargetState(state="unknown", detail=f"podman: {said or f'exit code {done.returncode}'}")
    if len(done.stdout) > INSPECT_BYTES:
        return TargetState(state="unknown", detail=f"podman answered with {len(done.stdout)} bytes")
    try:
        found = msgspec.json.decode(done.stdout, type=list[_Inspected])[0]
    except (msgspec.MsgspecError, IndexError) as error:
        return TargetState(state="unknown", detail=f"podman's answer is not understood: {error}")
    return _from_inspected(found, proc)


def _from_inspected(found: _Inspected, proc: Path) -> TargetState:
    if found.host_config.network_mode == "host":
        return TargetState(state="host-network", detail="it uses the host's own network")
    pid = found.state.pid
    if pid <= 0 or found.state.status not in ("running", "paused"):
        return TargetState(state="stopped", detail=f"podman says {found.state.status or 'not running'}")
    path = proc / str(pid) / "ns/net"
    try:
        inode = path.stat().st_ino
        own = (proc / "self/ns/net").stat().st_ino
    except OSError:
        return TargetState(state="stopped", detail=f"podman says {found.state.status}, but pid {pid} is gone")
    if inode == own:
        return TargetState(state="stopped", detail=f"pid {pid} that podman names is another process by now")
    return TargetState(
        state="running", netns_path=str(path), netns_inode=inode, pid=pid, detail=found.state.status
    )  # fmt: skip


class Events:
    """A ``podman events`` child, read by a thread: ``tell(container, what)`` for each event that matters.

    The child is started again whenever it ends (with growing pauses while it cannot be started); after each
    new start ``tell("*", "lost")`` says that events may have been missed, so that everything is looked at once.
    """

    def __init__(self, tell: Callable[[str, str], None], *, podman: str = "podman") -> None:
        self._tell = tell
        self._argv = (
            podman, "events", "--stream", "--format", "json", "--filter", "type=container"
        )  # fmt: skip
        self._stop = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="podman-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the child and the thread."""
        self._stop.set()
        with self._guard:
            if self._child is not None:
                self._child.terminate()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            heard = self._follow()
            failures = 0 if heard else failures + 1
            self._stop.wait(_RESTART_AFTER_S[min(failures, len(_RESTART_AFTER_S) - 1)])

    def _follow(self) -> bool:
        """Read one child until it ends; True if it told anything."""
        with self._guard:
            if self._stop.is_set():
                return False
            try:
                child = subprocess.Popen(
                    self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
            except OSError as error:
                log.info("podman events: %s", error)
                return False
            self._child = child
        self._tell("*", "lost")
        heard = False
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                heard = True
                try:
                    event = msgspec.json.decode(line, type=_Event)
                except msgspec.MsgspecError:
                    log.debug("podman events: not understood: %r", line[:200])
                    continue
                if event.status in _TELLING:
                    self._tell(event.name, event.status)
        code = child.wait()
        with self._guard:
            self._child = None
        if not self._stop.is_set():
            log.info("podman events ended (%s)", os.strerror(-code) if code < 0 else f"exit code {code}")
        return heard
