"""One question, indexed: the lookups and readings of the kernel's state that all parts of the planner share.

Everything is sorted on the way in, so that no later part can depend on the order in which policies, targets,
adapters or records were given.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model.documents import HostConfigSpec, Interface, LinkPolicy, Target
from ..model.inventory import Adapter, Function, Holder, Port
from ..model.plan import Question, TargetState
from ..model.records import Attachment, AttachmentState, ModeChange, Phase
from ..model.values import LinkMode, PortId

Key = tuple[str, str]
"""(target, interface): the key of a slot."""

LIVE = (AttachmentState.ATTACHING, AttachmentState.ATTACHED, AttachmentState.DETACHING)
HOST_KINDS = ("route", "address", "upper", "rdma", "protected")
"""Holder kinds that mean the host itself; the others (netns, vfio, target) are somebody else."""
UNKNOWN_STATE = TargetState(state="unknown", detail="the runtime was not asked")


@dataclass(frozen=True)
class View:
    """``ports`` holds no secondary port: those are never offered. Dictionaries iterate in sorted order."""

    question: Question
    policies: dict[str, LinkPolicy]
    targets: dict[str, Target]
    ports: dict[PortId, Port]
    adapters: dict[PortId, Adapter]
    records: dict[Key, Attachment]
    changes: dict[str, ModeChange]

    @property
    def host(self) -> HostConfigSpec:
        return self.question.desired.host.spec

    def generation(self, policy: str) -> int:
        return self.question.desired.generations.get(policy, 0)

    def wanted_mode(self, policy: str) -> LinkMode:
        """The policy's mode; while its present generation is rolled back, the mode that was returned to."""
        last, mode = self.changes.get(policy), self.policies[policy].spec.link_mode
        if last is None or last.generation != self.generation(policy):
            return mode
        if last.open and last.returning_from is not None:
            return last.wanted
        return last.returned_to if last.phase is Phase.FAILED and last.returned_to is not None else mode

    def state(self, target: str) -> TargetState:
        return self.question.targets.get(target, UNKNOWN_STATE)

    def declared(self) -> dict[Key, tuple[Target, Interface]]:
        """Every declared interface: targets by name, interfaces in the order of the document."""
        return {(t.name, i.name): (t, i) for t in self.targets.values() for i in t.spec.interfaces}

    def live(self, record: Attachment) -> bool:
        """Does the record stand for work in this boot? A restart of the host undoes every attachment."""
        return record.state in LIVE and record.boot_id in (None, self.question.inventory.boot_id)

    def held(self, record: Attachment) -> bool:
        """Live, and the kernel does not show the function back in the host's own namespace, nor that it is gone: a
        reload of the driver or somebody's write of sriov_numvfs takes VFs away under their holders."""
        function = self.function(record.port, record.vf_index)
        if function is None and record.port in self.ports:
            return False
        at_home = function is not None and function.netdev is not None
        return self.live(record) and not at_home

    def pid_inside(self, record: Attachment) -> int | None:
        """A process in the namespace that has the function; None when there is none that we can see."""
        function = self.function(record.port, record.vf_index) if self.held(record) else None
        holders = function.holders if function is not None else ()
        return next((h.pid for h in holders if h.ours and h.target == record.target and h.pid is not None), None)

    def users_on(self, port: str) -> list[Attachment]:
        return [r for r in self.records.values() if r.port == port and self.live(r)]

    def interrupted(self, record: Attachment) -> tuple[str, ...]:
        """Whom it interrupts to take this interface away: nobody when nothing of the target runs."""
        state = self.state(record.target).state
        running = state in ("running", "unknown") or (state == "absent" and self.pid_inside(record) is not None)
        return (record.target,) if running and self.held(record) else ()

    def function(self, port: str, vf_index: int | None) -> Function | None:
        found = self.ports.get(PortId(port))
        if found is None:
            return None
        return next((f for f in found.functions if f.vf_index == vf_index), None)


def view(question: Question) -> View:
    """Index ``question``. Of two documents with one name the last in sorted order counts (stores keep one)."""
    desired, records = question.desired, question.records
    found = {
        p.id: (p, a) for a in question.inventory.adapters for p in a.ports if p.secondary_of is None
    }
    order = sorted(found)
    return View(
        question=question,
        policies={p.name: p for p in sorted(desired.policies, key=lambda p: p.name)},
        targets={t.name: t for t in sorted(desired.targets, key=lambda t: t.name)},
        ports={port: found[port][0] for port in order},
        adapters={port: found[port][1] for port in order},
        records={
            (r.target, r.interface): r
            for r in sorted(records.attachments, key=lambda r: (r.target, r.interface))
        },
        changes={c.policy: c for c in sorted(records.changes, key=lambda c: (c.policy, c.generation))},
    )


def foreign(function: Function) -> tuple[Holder, ...]:
    """Holders that no attachment of ours explains."""
    return tuple(h for h in function.holders if not h.ours)


def host_own(port: Port) -> tuple[Holder, ...]:
    """What the host itself does with this port: routes, addresses, uppers, RDMA users of the kernel."""
    return tuple(h for f in port.functions for h in foreign(f) if h.kind in HOST_KINDS)


def strangers(port: Port) -> tuple[Holder, ...]:
    """Namespaces and guests of somebody else that hold a function of this port."""
    return tuple(h for f in port.functions for h in foreign(f) if h.kind not in HOST_KINDS)
