"""PF or VFs for each port, which VF each interface has, and how many VFs that takes (interlock rule 1).

The form follows from the declared interfaces of the port, running or not: one gives the PF, more give VFs. A port
that has VFs keeps them; a person asks for the PF again with ``assign: PF``. VF indexes are sticky.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..model.inventory import Function, Port
from ..model.plan import Problem
from ..model.records import Attachment, AttachmentState
from ..model.values import PortId, port_label
from .matching import Matching
from .slots import Placement, vf_limit
from .view import Key, View, foreign

VFIO_DRIVERS = ("vfio-pci", "mlx5_vfio_pci")


@dataclass
class Shape:
    """What one port is to be. ``count``: its VFs. ``slots``: interface → VF index (None: the PF).

    ``firmware``: the VF count that the card's settings must allow first, by an activation; None: they do.
    ``stuck``: the present VF count must stay, for the reason in the problems.
    """

    form: Literal["PF", "VF"] | None = None
    count: int = 0
    slots: dict[Key, int | None] = field(default_factory=dict)
    firmware: int | None = None
    stuck: bool = False


def shapes(view: View, matching: Matching, placement: Placement) -> tuple[dict[PortId, Shape], list[Problem]]:
    """Shape every port that belongs to a policy."""
    problems: list[Problem] = []
    keys: dict[PortId, list[Key]] = {port: [] for port in matching.policy_of}
    for key in view.declared():
        port = placement.port_of.get(key)
        if port is not None:
            keys[port].append(key)
    out: dict[PortId, Shape] = {}
    for port, policy in matching.policy_of.items():
        staying = {r.vf_index for r in placement.staying.values() if r.port == port}
        out[port] = _shape(view, port, policy, keys[port], staying, problems)
        out[port].stuck |= bool(staying)  # it would have to be released for another VF count, and it may not
    return out, problems


def _shape(
    view: View,
    port_id: PortId,
    policy: str,
    keys: list[Key],
    staying: set[int | None],
    problems: list[Problem],
) -> Shape:
    port, functions = view.ports[port_id], view.policies[policy].spec.functions
    records = [view.records[key] for key in keys if key in view.records]
    has_vfs = port.num_vfs > 0 or bool(staying) or any(r.vf_index is not None for r in records)
    if functions.assign == "PF":
        return Shape(form="PF", slots=dict.fromkeys(keys)) if keys else Shape(count=port.num_vfs)
    wants_vfs = functions.assign == "VF" or len(keys) > 1 or (bool(keys) and has_vfs)
    if not wants_vfs:
        return Shape(form="PF" if keys else None, count=port.num_vfs, slots=dict.fromkeys(keys))
    shape = Shape(form="VF" if keys or functions.num_vfs is not None else None)
    limit = functions.num_vfs if functions.num_vfs is not None else vf_limit(view, port_id)
    blocked = _not_ours(view, port) | {i for i in staying if i is not None}
    _give_indexes(view, port, keys, blocked, limit, shape, problems)
    used = blocked | {i for i in shape.slots.values() if i is not None}
    _count(view, port, policy, used, shape, problems)
    return shape


def _not_ours(view: View, port: Port) -> set[int]:
    """VF indexes that nobody may be given: held or reserved by others, or quarantined."""
    ours = {r.vf_index for r in view.records.values() if r.port == port.id and view.live(r)}
    quarantined = {
        r.vf_index
        for r in view.records.values()
        if r.port == port.id and r.state is AttachmentState.QUARANTINED and r.vf_index is not None
    }
    return quarantined | {
        f.vf_index
        for f in port.vfs
        if f.vf_index is not None and f.vf_index not in ours and (foreign(f) or _reserved(f))
    }


def _reserved(function: Function) -> bool:
    """Set aside for a guest by somebody else, even if no guest holds it at this moment."""
    return function.driver in VFIO_DRIVERS or function.driver_override not in (None, "", "(null)")


def _give_indexes(
    view: View,
    port: Port,
    keys: list[Key],
    blocked: set[int],
    limit: int,
    shape: Shape,
    problems: list[Problem],
) -> None:
    """Sticky indexes first; the lowest free one for everybody else."""
    taken = set(blocked)
    for key in keys:
        record = view.records.get(key)
        if record is not None and record.vf_index is not None and record.vf_index not in taken:
            shape.slots[key] = record.vf_index
            taken.add(record.vf_index)
    for key in sorted(keys, key=lambda k: k not in view.records):  # whoever has a function already comes first
        if key in shape.slots:
            continue
        index = next(i for i in range(len(taken) + 1) if i not in taken)
        if index >= limit:
            problems.append(_no_vf(port, key, limit, blocked))
            shape.stuck |= key in view.records
            continue
        shape.slots[key] = index
        taken.add(index)


def _count(
    view: View, port: Port, policy: str, used: set[int], shape: Shape, problems: list[Problem]
) -> None:
    functions, limit = view.policies[policy].spec.functions, vf_limit(view, port.id)
    needed = max(used, default=-1) + 1
    if functions.num_vfs is None:
        shape.count = max(port.num_vfs, needed)
    elif functions.num_vfs < needed:
        problems.append(_in_use(view, port, policy, functions.num_vfs, used))
        shape.count = max(port.num_vfs, needed)
    else:
        shape.count = functions.num_vfs
    if shape.count > limit:
        problems.append(_over_limit(port, policy, shape.count, limit))
        shape.stuck, shape.count = True, port.num_vfs
    elif shape.count > port.total_vfs:
        shape.firmware = shape.count


def holders_of_vf(view: View, port: Port, index: int) -> str:
    """Who has this VF, in words."""
    for record in view.records.values():
        if record.port == port.id and record.vf_index == index:
            return f"{record.target} {record.interface}"
    function = next((f for f in port.vfs if f.vf_index == index), None)
    if function is None:
        return "nobody"
    held = ", ".join(h.detail for h in foreign(function))
    return held or f"driver {function.driver_override or function.driver}"


def _in_use(view: View, port: Port, policy: str, wanted: int, used: set[int]) -> Problem:
    highest, count = max(used), f"{len(used)} VF{'s' if len(used) > 1 else ''}"
    who = holders_of_vf(view, port, highest)
    return Problem(
        severity="refused",
        code="vfs-in-use",
        rule=2,
        subject=f"policy {policy}",
        text=f"{port_label(port.id)} has {count} in use; numVfs {port.num_vfs} → {wanted} would remove "
        f"VF {highest}, which is held by {who}.",
        holder=who,
        next_step=f"Detach it first, or keep numVfs at {highest + 1} or more.",
    )


def _over_limit(port: Port, policy: str, count: int, limit: int) -> Problem:
    return Problem(
        severity="refused",
        code="num-vfs-limit",
        subject=f"policy {policy}",
        text=f"{port_label(port.id)} would need {count} VFs; the card allows {limit}.",
        next_step=f"Lower spec.functions.numVfs of {policy}, or name more ports in its nicSelector.",
    )


def _no_vf(port: Port, key: Key, limit: int, blocked: set[int]) -> Problem:
    others = f", {len(blocked)} of them by others" if blocked else ""
    return Problem(
        severity="refused",
        code="no-free-vf",
        subject=f"target {key[0]}",
        text=f"{key[1]} gets no function: all {limit} VFs of {port_label(port.id)} are taken{others}.",
        next_step="Raise spec.functions.numVfs of its policy, or detach another target.",
    )


def slot_taken(view: View, port: PortId, vf_index: int | None) -> Attachment | None:
    """A quarantined record on this very function: it is nobody's until somebody frees it."""
    return next(
        (
            r
            for r in view.records.values()
            if r.port == port and r.vf_index == vf_index and r.state is AttachmentState.QUARANTINED
        ),
        None,
    )
