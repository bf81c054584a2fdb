"""Start and stop of the daemon: one agent a host, ready when it has looked once and answers on its socket.

Modes: the daemon; ``--once`` (settle and leave, for scripts); ``--once --boot-phase`` (what must be true before
containers and guests start, bounded in time).
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from ..kernel.system import System
from ..model.errors import Busy, NeedsPerson
from ..model.records import Phase
from ..store.damaged import Salvaged, open_store
from ..store.db import Store
from .loop import Loop, boot_phase
from .rebuild import rebuild
from .wakeups import LinkEvents
from .world import World

log = logging.getLogger(__name__)


def run(
    *, once: bool = False, boot_phase_only: bool = False, timeout_s: float = 90.0, verbose: bool = False
) -> int:
    """Returns the exit code. Raises Busy when another agent runs on this host, NeedsPerson without root."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr
    )
    if os.geteuid() != 0:
        raise NeedsPerson("the agent needs root", code="not-root", next_step="Run it as root (systemd does).")
    system = System.from_environment(os.environ)
    with only_one(system.run), _opened(system) as (store, salvaged):
        world = World(system, store)
        if crash_folder := os.environ.get("LINKWRIGHT_CRASH"):
            from . import crashpoints

            crashpoints.install(world, Path(crash_folder))
        if salvaged is not None:
            rebuild(world, salvaged)
        loop = Loop(world)
        if boot_phase_only:
            ready = boot_phase(world, loop, timeout_s)
            log.info("boot phase: %s", "ready" if ready else "the daemon goes on with what is open")
            return 0
        if once:
            return _once(world, loop)
        return _serve(world, loop)


@contextlib.contextmanager
def _opened(system: System) -> Iterator[tuple[Store, Salvaged | None]]:
    store, salvaged = open_store(system.state / "state.db")
    with contextlib.closing(store):
        yield store, salvaged


def _once(world: World, loop: Loop) -> int:
    loop.settle()
    if world.failures:
        for error in world.failures.values():
            log.error("%s: %s", error.kind, error)
        return next(iter(world.failures.values())).exit_code
    if any(c.phase is Phase.FAILED for c in world.store.changes()):
        return 1
    waits = any(c.open for c in world.store.changes()) or (world.plan is not None and bool(world.plan.approvals))
    return 4 if waits else 0


def _serve(world: World, loop: Loop) -> int:
    from ..targets.podman import Events
    from .api import Server

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: world.wakeups.stop())
    links = LinkEvents(world.system, world.wakeups.wake)
    containers = Events(lambda name, what: world.wakeups.wake(f"container {name} {what}"))
    server = Server(world, world.system.run / "agent.sock")
    links.start()
    containers.start()
    server.start()
    notify("READY=1\nSTATUS=observing")
    log.info("ready on %s", world.system.run / "agent.sock")
    try:
        loop.run()
    finally:
        notify("STOPPING=1")
        server.stop()
        containers.stop()
        links.stop()
    return 0


@contextlib.contextmanager
def only_one(run_dir: Path) -> Iterator[None]:
    """Hold the host's agent lock; raises Busy with the holder's pid."""
    run_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
    fd = os.open(run_dir / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            raise Busy(
                f"an agent runs already (pid {holder})",
                code="agent-runs",
                where=str(run_dir),
                next_step="Use it: linkwright status",
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


def notify(state: str) -> None:
    """sd_notify(3): one datagram to $NOTIFY_SOCKET; nothing without systemd."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client, contextlib.suppress(OSError):
        client.sendto(state.encode(), "\0" + path[1:] if path.startswith("@") else path)
