"""PF ↔ VFs, and other VF counts, on a running host: whom it interrupts and whose yes it takes (rules 1 and 2).

A count changes only through 0, so every VF of the port is made anew, and whoever has one is interrupted: that
takes a yes which names the port, the form and those targets. Nobody there: it is free. Somebody else's: refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model.inventory import Port
from ..model.plan import Approval, Attach, Detach, Problem, SetVfs, Step
from ..model.records import Attachment, AttachmentState
from ..model.values import PortId, port_label
from .approvals import convert_approval, convert_key
from .decided import Decided
from .vfs import Shape
from .view import Key, strangers


@dataclass
class Local:
    """The steps by kind. ``pending``: interfaces whose new slot waits for a yes; their record is not changed."""

    detach: list[Detach] = field(default_factory=list)
    vfs: list[SetVfs] = field(default_factory=list)
    attach: list[Attach] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    pending: set[Key] = field(default_factory=set)

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.detach, *self.vfs, *self.attach)


@dataclass(frozen=True)
class Reshape:
    """A port whose VF count or form changes. ``key``: the yes it still needs, None when it is free or given."""

    count: int
    key: str | None
    interrupts: tuple[str, ...]


def reshape(decided: Decided, port_id: PortId, shape: Shape, out: Local) -> Reshape | None:
    """Does the port's VF count or form change now, whom does that interrupt, and who agreed?"""
    view, mode = decided.view, decided.modes[port_id]
    port = view.ports[port_id]
    if shape.form is None or shape.stuck or shape.firmware is not None or not mode.usable:
        return None
    counts = shape.count != port.num_vfs
    moved = [r for key, r in view.records.items() if _moves(decided, key, r) and r.port == port_id]
    if not counts and not moved:
        return None
    policy = decided.matching.policy_of[port_id]
    if counts:
        held = [h.detail for h in strangers(port)]
        quarantined = [
            f"{r.target} {r.interface} (quarantined)"
            for r in view.records.values()
            if r.port == port_id and r.state is AttachmentState.QUARANTINED
        ]
        if held or quarantined:
            out.problems.append(_in_use(port, policy, shape.count, (held + quarantined)[0]))
            shape.stuck = True
            return None
    users = view.users_on(port_id) if counts else moved
    interrupts = {name for r in users for name in view.interrupted(r)}
    if counts and port.num_vfs and interrupts:  # who gets one of the present VFs in this very pass counts as well
        interrupts |= {
            key[0]
            for key, index in shape.slots.items()
            if index is not None and index < port.num_vfs and view.state(key[0]).state == "running"
        }
    names = tuple(sorted(interrupts))
    form = shape.form if shape.form == "PF" or not port.num_vfs else f"VF{shape.count}"
    key = convert_key(port_id, form, names) if names else None
    if key is not None and key not in view.question.records.approvals:
        out.approvals.append(convert_approval(key, port_id, port.num_vfs, shape.count, names))
    else:
        key = None
    if counts:
        out.vfs.append(set_vfs(port, shape.count, policy, needs=key, interrupts=names))
    return Reshape(shape.count, key, names)


def _moves(decided: Decided, key: Key, record: Attachment) -> bool:
    """Has the interface another slot than its record says, on the same port?"""
    port = decided.placement.port_of.get(key)
    if port is None or port != record.port or key not in decided.shapes[port].slots:
        return False
    return decided.shapes[port].slots[key] != record.vf_index


def set_vfs(
    port: Port, count: int, policy: str, *, needs: str | None = None, interrupts: tuple[str, ...] = ()
) -> SetVfs:
    """The kernel refuses N → M with EBUSY (drivers/pci/pci-sysfs.c, sriov_numvfs_store): 0 stands between."""
    path = f"/sys/bus/pci/devices/{port.pf.address}/sriov_numvfs"
    write = ("echo", str(count), ">", path)
    between = ("echo", "0", ">", path, "&&") if port.num_vfs and count else ()
    return SetVfs(
        port=port.id,
        count=count,
        before=port.num_vfs,
        command=(*between, *write),
        reason=f"policy {policy} serves its targets on this port by {f'{count} VFs' if count else 'the PF'}",
        needs=needs,
        interrupts=interrupts,
    )


def _in_use(port: Port, policy: str, count: int, who: str) -> Problem:
    return Problem(
        severity="refused",
        code="function-in-use",
        rule=2,
        subject=f"policy {policy}",
        text=f"the VFs of {port_label(port.id)} cannot change from {port.num_vfs} to {count}: {who} uses a "
        "function of this port.",
        holder=who,
        next_step="Stop it or detach it first.",
    )
