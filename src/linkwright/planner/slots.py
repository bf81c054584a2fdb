"""Which port each declared interface of each target gets (S2, 1:N): sticky first, distinct ports, then balance.

Ports are decided for all declared targets, running or not, so that starting a container never moves another.
Slots that exist are placed before new ones: a new target with an early name takes nobody's place.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..model.documents import Interface, Target
from ..model.plan import Problem
from ..model.records import Attachment, AttachmentState
from ..model.values import PortId, port_label
from .matching import Matching
from .modes import PortMode
from .names import conflicts
from .view import Key, View

TOTAL_VFS_LIMIT = 65535
"""TotalVFs of the PCI Express SR-IOV capability has 16 bits."""


@dataclass
class Placement:
    """``port_of``: interface → its port. ``staying``: interfaces whose present function is left as it is.
    ``nameless``: interfaces that cannot have the name they ask for, so they are given nothing new."""

    port_of: dict[Key, PortId] = field(default_factory=dict)
    staying: dict[Key, Attachment] = field(default_factory=dict)
    nameless: dict[Key, Problem] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def place(view: View, matching: Matching, modes: dict[PortId, PortMode]) -> Placement:
    """Choose a port for every declared interface whose policy is here."""
    nameless = conflicts(view)
    out = Placement(nameless=nameless, problems=list(nameless.values()))
    new: list[tuple[Target, Interface]] = []
    for key, (target, interface) in view.declared().items():
        record = view.records.get(key)
        if target.spec.policy not in view.policies:
            out.problems.append(_no_policy(target))
            if record is not None:
                out.staying[key] = record
        elif record is None:
            if key not in nameless:
                new.append((target, interface))
        elif _stays(view, matching, target, record):
            out.staying[key] = record
            out.problems += _staying_problem(view, matching, record)
        elif _fits(view, matching, target, interface, record) and not _pf_given(view, target, record, out):
            out.port_of[key] = record.port
        else:
            new.append((target, interface))
    for target, interface in new:
        _place_new(view, matching, modes, target, interface, out)
    return out


def _stays(view: View, matching: Matching, target: Target, record: Attachment) -> bool:
    """Leave the function where it is: its port must not be touched, cannot be seen, or cannot be judged now."""
    if record.state is AttachmentState.QUARANTINED or record.port not in view.ports:
        return True
    if record.port in matching.why_not or target.spec.policy in matching.uncertain.get(record.port, ()):
        return True
    unmatched = matching.policy_of.get(record.port) != record.policy
    # No person changed the policy, and yet it does not name the port any more: the hardware's or the fabric's
    # words changed, which is no reason to take an interface from a target that works.
    return (
        unmatched and record.policy == target.spec.policy and record.generation == view.generation(record.policy)
    )


def _fits(view: View, matching: Matching, target: Target, interface: Interface, record: Attachment) -> bool:
    if record.policy != target.spec.policy or matching.policy_of.get(record.port) != record.policy:
        return False
    fabric = view.ports[record.port].fabric
    return interface.fabric is None or fabric is None or fabric == interface.fabric


def _pf_given(view: View, target: Target, record: Attachment, out: Placement) -> bool:
    """``assign: PF`` came after the port was shared: the PF goes to the first of those who have a function."""
    pf_only = view.policies[target.spec.policy].spec.functions.assign == "PF"
    return pf_only and record.port in out.port_of.values()


def _place_new(
    view: View,
    matching: Matching,
    modes: dict[PortId, PortMode],
    target: Target,
    interface: Interface,
    out: Placement,
) -> None:
    policy = target.spec.policy
    ports = matching.ports_of(policy)
    on_fabric = [p for p in ports if interface.fabric in (None, view.ports[p].fabric)]
    usable = [p for p in on_fabric if not modes[p].hopeless]
    load = Counter(out.port_of.values()) + Counter(r.port for r in out.staying.values())
    free = [p for p in usable if load[p] < capacity(view, p, policy)]
    if not free:
        out.problems.append(_no_port(view, target, interface, ports, on_fabric, usable))
        record = view.records.get((target.name, interface.name))
        if record is not None and record.policy == policy and matching.policy_of.get(record.port) == policy:
            out.staying[target.name, interface.name] = record  # no better place: what it has is not taken away
        return
    mine = Counter(port for (name, _), port in out.port_of.items() if name == target.name)
    mates = _fabrics_of_group(view, target, interface, out)

    def cost(port: PortId) -> tuple[int, int, int, PortId]:
        apart = bool(mates) and view.ports[port].fabric not in mates
        return mine[port], int(apart), load[port], port

    out.port_of[target.name, interface.name] = min(free, key=cost)


def _fabrics_of_group(view: View, target: Target, interface: Interface, out: Placement) -> set[str]:
    """The fabrics on which the others of the group have the same interface already (interlock rule 8)."""
    if target.spec.group is None or interface.fabric is not None:
        return set()
    found: set[str] = set()
    for (name, interface_name), port in out.port_of.items():
        other = view.targets[name]
        fabric = view.ports[port].fabric
        if other.spec.group == target.spec.group and interface_name == interface.name and fabric is not None:
            found.add(fabric)
    return found


def capacity(view: View, port: PortId, policy: str) -> int:
    """How many interfaces the port can serve under this policy."""
    functions = view.policies[policy].spec.functions
    if functions.assign == "PF":
        return 1
    limit = vf_limit(view, port)
    vfs = limit if functions.num_vfs is None else min(limit, functions.num_vfs)
    return vfs if functions.assign == "VF" else max(1, vfs)


def vf_limit(view: View, port: PortId) -> int:
    """The most VFs the port can ever have: the firmware's limit where it is known, and what the kernel allows now.

    mstconfig tells the limit only when it refuses a larger value; a card whose NUM_OF_VFS can be read has none
    that we know of, and refuses before anybody is interrupted.
    """
    adapter, now = view.adapters[port], view.ports[port].total_vfs
    if adapter.num_vfs_limit is not None:
        return max(adapter.num_vfs_limit, now)
    return now if adapter.num_vfs_next is None else TOTAL_VFS_LIMIT


def _no_policy(target: Target) -> Problem:
    return Problem(
        severity="waiting",
        code="policy-missing",
        subject=f"target {target.name}",
        text=f"policy {target.spec.policy} does not exist here; what the target has is left as it is.",
        next_step=f"Apply LinkPolicy {target.spec.policy}, or name another in spec.policy.",
    )


def _staying_problem(view: View, matching: Matching, record: Attachment) -> list[Problem]:
    what, where = f"{record.interface} on {port_label(record.port)}", port_label(record.port)
    subject = f"target {record.target}"
    if record.state is AttachmentState.QUARANTINED:
        return [
            Problem(
                severity="refused",
                code="quarantined",
                rule=5,
                subject=subject,
                text=f"{what} is quarantined: {record.reason or 'its release failed'}.",
                next_step="Look: linkwright audit. Free it: linkwright audit --repair",
            )
        ]
    if record.port not in view.ports:
        return [
            Problem(
                severity="waiting",
                code="port-absent",
                subject=subject,
                text=f"{what}: this host does not show the port now; its slot is kept.",
                next_step="Look: linkwright nics",
            )
        ]
    why = matching.why_not.get(record.port)
    text = f"{what} is left as it is: {why}." if why else f"{what} stays: its policy no longer names {where}."
    return [
        Problem(
            severity="note",
            code="left-as-it-is",
            subject=subject,
            text=text,
            next_step="Look: linkwright plan --explain",
        )
    ]


def _no_port(
    view: View,
    target: Target,
    interface: Interface,
    ports: list[PortId],
    on_fabric: list[PortId],
    usable: list[PortId],
) -> Problem:
    policy = target.spec.policy
    subject = f"target {target.name}"
    if not ports:
        return Problem(
            severity="waiting",
            code="no-port",
            subject=subject,
            text=f"{interface.name} gets no function: policy {policy} has no port on this host to give.",
            next_step="See why: linkwright plan --explain",
        )
    if not on_fabric:
        has = ", ".join(f"{port_label(p)} ({view.ports[p].fabric or 'fabric not told'})" for p in ports)
        return Problem(
            severity="refused",
            code="no-port-on-fabric",
            subject=subject,
            text=f"{interface.name} asks for fabric {interface.fabric}; policy {policy} has {has}.",
            next_step="Correct spec.interfaces[].fabric, or fabrics in /etc/linkwright/host.yaml.",
        )
    if not usable:
        return Problem(
            severity="refused",
            code="no-usable-port",
            subject=subject,
            text=f"{interface.name} gets no function: {', '.join(map(port_label, on_fabric))} cannot take the "
            f"mode of policy {policy}.",
            next_step=f"See what is refused for policy {policy}.",
        )
    return _all_taken(view, target, interface, usable)


def _all_taken(view: View, target: Target, interface: Interface, ports: list[PortId]) -> Problem:
    policy, where = target.spec.policy, ", ".join(map(port_label, ports))
    functions = view.policies[policy].spec.functions
    if functions.assign == "PF":
        return Problem(
            severity="refused",
            code="pf-taken",
            rule=1,
            subject=f"target {target.name}",
            text=f"{interface.name} gets no function: policy {policy} gives PFs only (assign: PF), and the PF of "
            f"{where} serves another interface.",
            next_step=f"Set spec.functions.assign of {policy} to Auto, or name more ports in its nicSelector.",
        )
    return Problem(
        severity="refused",
        code="no-free-vf",
        subject=f"target {target.name}",
        text=f"{interface.name} gets no function: every VF that policy {policy} gives on {where} is taken "
        f"({', '.join(str(capacity(view, p, policy)) for p in ports)}).",
        next_step=f"Raise spec.functions.numVfs of {policy}, or name more ports in its nicSelector.",
    )
