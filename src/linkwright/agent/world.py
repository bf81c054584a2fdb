"""Everything one agent works with, and one look at it all: the Question that the planner answers.

Looking is read-only and may run in several threads at once (the reconcile loop, a plan asked for over the API).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from .. import discovery, owners
from ..discovery import known
from ..firmware import open_firmware
from ..kernel.links import Links
from ..kernel.netns import inode_of_path
from ..kernel.rdma import Rdma
from ..kernel.system import System
from ..model import load
from ..model.documents import HostConfig, Target
from ..model.errors import Busy, InvalidInput, LinkwrightError
from ..model.inventory import Inventory
from ..model.plan import Desired, Plan, Question, Records, TargetState
from ..store.db import Store
from ..targets import podman
from ..targets.steps import Moment
from .memory import RememberedFirmware
from .offers import Offers
from .progress import Progress
from .wakeups import Wakeups

T = TypeVar("T")


class World:
    """The agent's senses and memory. ``plan`` and ``question`` are the newest ones of the reconcile loop."""

    def __init__(self, system: System, store: Store) -> None:
        self.system = system
        self.store = store
        self.firmware = RememberedFirmware(open_firmware(system))
        self._offers = Offers(self.firmware)
        self.links = Links(system.netlink)
        self.rdma = Rdma(system.netlink)
        self.progress = Progress()
        self.wakeups = Wakeups()
        self.question: Question | None = None
        self.plan: Plan | None = None
        self.failures: dict[tuple[str, str], LinkwrightError] = {}  # (kind, subject) -> why the last try failed
        self.watch: Callable[[Moment, str, str], None] = lambda moment, subject, step: None  # around each step
        self.settled = False  # nothing more to do until something happens
        self.work: SimpleQueue[tuple[Callable[[Any], Any], Future[Any]]] = SimpleQueue()
        self._asked = 0
        self._lock = threading.Lock()

    @property
    def asked(self) -> int:
        """Counts what people asked for; a pass that began before the newest request has not settled it."""
        with self._lock:
            return self._asked

    def ask(self, reason: str) -> None:
        """Something was asked for and is stored: look again. Failed steps are tried at once."""
        with self._lock:
            self._asked += 1
            self.settled = False
            self.failures.clear()
        self.wakeups.wake(reason)

    def in_loop(self, work: Callable[[Any], T], limit_s: float = 120.0) -> T:
        """Have ``work`` done by the reconcile loop (it gets its ``Hands``), which alone changes things; its
        answer.

        Raises what ``work`` raises, Busy ``agent-busy`` when the loop has something longer to do.
        """
        answer: Future[T] = Future()
        self.work.put((work, answer))
        self.wakeups.wake("work")
        try:
            return answer.result(limit_s)
        except TimeoutError:
            answer.cancel()
            raise Busy(
                f"the agent is at work for more than {limit_s:.0f} s",
                code="agent-busy",
                next_step="Look what it does: linkwright status --watch. Then try again.",
            ) from None

    def host_config(self) -> tuple[HostConfig, str]:
        """host.yaml as it is now, and why it could not be read: a broken file allows nothing."""
        try:
            return load.host_config(self.system.etc / "host.yaml"), ""
        except InvalidInput as error:
            return HostConfig(), str(error)

    def desired(self) -> Desired:
        host, _ = self.host_config()
        return Desired(
            policies=self.store.policies(),
            targets=self.store.targets(),
            host=host,
            generations=self.store.generations(),
            frozen_by=self.store.frozen_by(),
        )

    def records(self) -> Records:
        return Records(
            attachments=self.store.attachments(),
            changes=self.store.changes(),
            approvals=self.store.approvals(),
        )

    def look(self, desired: Desired | None = None, *, fresh: bool = False) -> Question:
        """One reading of intent, records and reality. ``fresh`` asks the cards again."""
        if fresh:
            self.firmware.forget()
        desired = desired or self.desired()
        records = self.records()
        self.firmware.wants_uptime = any(c.open and c.activations for c in records.changes)
        inventory = discovery.observe(self.system, self.firmware, desired.host, records.attachments)
        found = owners.find(self.system, inventory.adapters)
        inventory = known.compared(msgspec.structs.replace(inventory, owners=found), self.store.cards())
        inventory = self._offers.added(inventory, desired)
        return Question(
            desired=desired,
            inventory=inventory,
            targets=self.target_states(desired.targets),
            records=records,
            now=time.time(),
        )

    def look_at_kernel(self, question: Question) -> Inventory:
        """Only what the kernel shows, right now: for a check just before an effect."""
        return discovery.observe(
            self.system, None, question.desired.host, self.store.attachments(), with_firmware=False
        )

    def target_states(self, targets: Iterable[Target]) -> dict[str, TargetState]:
        return {target.name: target_state(self.system, target) for target in targets}


def target_state(system: System, target: Target) -> TargetState:
    """Does the target run, and in which network namespace."""
    container = target.spec.container
    if container is UNSET:
        return TargetState(state="unknown", detail="no kind of target that this version knows")
    if container.netns is None:
        return podman.state(container.name or target.name, proc=system.proc)
    inode = inode_of_path(Path(container.netns))
    if inode is None:
        return TargetState(state="absent", netns_path=container.netns, detail=f"{container.netns} does not exist")
    if inode == inode_of_path(system.proc / "self/ns/net"):
        return TargetState(state="host-network", netns_path=container.netns, detail="the host's own namespace")
    return TargetState(state="running", netns_path=container.netns, netns_inode=inode)
