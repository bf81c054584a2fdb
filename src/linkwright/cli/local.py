"""Looking without the agent: this process reads the host itself, and the agent's file read-only.

Used when no agent runs or when a captured tree is looked at (``--sysroot``). Nothing is changed. What the
caller may not read (mostly: not root) is left out and said, never guessed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from linkwright.agent.requests import with_documents
from linkwright.agent.world import World
from linkwright.kernel.system import System
from linkwright.model.documents import LinkPolicy, Target
from linkwright.model.errors import LinkwrightError
from linkwright.model.inventory import Port
from linkwright.model.plan import Plan, Question
from linkwright.planner import plan
from linkwright.planner.untouchable import untouchable
from linkwright.planner.view import view
from linkwright.store.db import Store

from .views import NicsView


@dataclass
class LocalHost:
    """This host, or the captured one, as this process can see it. ``hints``: what could not be read, and why."""

    world: World
    configured: bool  # is there a host.yaml?
    hints: list[str] = field(default_factory=list)

    def nics(self) -> NicsView:
        """One look; desired modes come from the policies in the agent's file."""
        question = self.world.look()
        allow = question.desired.host.spec.allow if self.configured else None
        return NicsView(inventory=question.inventory, decisions=plan(question).decisions, allow=allow)

    def usable_ports(self) -> list[Port]:
        """The ports that nothing forbids to work on, whatever policies there are."""
        seen = view(self.world.look())
        return [port for port in seen.ports.values() if untouchable(seen, seen.adapters[port.id], port) is None]

    def plan(self, documents: Iterable[LinkPolicy | Target]) -> tuple[Question, Plan]:
        """What the agent would answer to POST /v1/plan."""
        question = self.world.look(with_documents(self.world.desired(), documents))
        return question, plan(question)


@contextmanager
def local_host(sysroot: str | None = None) -> Iterator[LocalHost]:
    """Raises InvalidInput when ``sysroot`` is no captured tree."""
    system = System.from_environment(os.environ, sysroot=sysroot)
    hints: list[str] = []
    store = _store(system, hints)
    try:
        world = World(system, store)
        host = LocalHost(world, configured=_exists(system.etc / "host.yaml"), hints=hints)
        _, broken = world.host_config()
        if broken:
            host.hints.append(f"host.yaml is not valid, so it allows nothing: {broken}")
        if os.geteuid() != 0 and not system.captured:
            host.hints.append(
                "Not root: firmware (NEXT, CURRENT) and other processes' use cannot be read. Try sudo."
            )
        yield host
    finally:
        store.close()


def _store(system: System, hints: list[str]) -> Store:
    """The agent's file; an empty one for a captured tree, or when it cannot be read (said)."""
    nowhere = Path("/nonexistent/linkwright/state.db")
    if system.captured:
        return Store(nowhere, read_only=True)
    try:
        return Store(system.state / "state.db", read_only=True)
    except LinkwrightError as error:
        hints.append(f"Policies and targets are not shown: {error}")
        return Store(nowhere, read_only=True)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # there is one, but we may not look
