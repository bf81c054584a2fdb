"""Steps that need no restart: take back, change VF counts, give (S2, S22). Interlock rules 1 and 2.

Order: every take-back, then VF counts, then every give, so that no function is given before it is free. An
interface that keeps its slot keeps its record (``forget=False``); one that gets another slot gives the old up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model.documents import Interface, Target
from ..model.inventory import Port
from ..model.plan import Approval, Attach, Detach, Problem, SetVfs, Step
from ..model.records import Attachment, AttachmentState
from ..model.values import LinkMode, PortId, port_label
from .approvals import convert_approval, convert_key
from .decided import Decided
from .vfs import Shape, slot_taken
from .view import Key, foreign, strangers


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


def local_steps(decided: Decided) -> Local:
    out = Local()
    if decided.restart_ahead is not None:
        return out
    _forget(decided, out)
    reshaped: dict[PortId, Reshape] = {}
    for port, shape in decided.shapes.items():
        if port not in decided.in_change:
            change = _reshape(decided, port, shape, out)
            if change is not None:
                reshaped[port] = change
    declared = decided.view.declared()
    for key, port in decided.placement.port_of.items():
        if port not in decided.in_change and key in decided.shapes[port].slots:
            _interface(decided, key, *declared[key], reshaped.get(port), out)
    order = {key: number for number, key in enumerate(declared)}
    out.detach.sort(key=lambda s: (s.target, s.interface))
    out.attach.sort(key=lambda s: order[s.target, s.interface.name])
    return out


def _forget(decided: Decided, out: Local) -> None:
    """Records whose target or interface nobody declares any more."""
    view = decided.view
    declared = view.declared()
    for key, record in view.records.items():
        if key in declared or record.port in decided.in_change or record.state is AttachmentState.QUARANTINED:
            continue
        what = f"{record.interface} on {port_label(record.port)}"
        subject = f"target {record.target}"
        why = decided.matching.why_not.get(record.port)
        if why is not None or record.port not in view.ports:
            out.problems.append(
                Problem(
                    severity="waiting",
                    code="left-as-it-is" if why else "port-absent",
                    subject=subject,
                    text=f"{what} is not taken back: {why or 'this host does not show the port now'}.",
                    next_step="Look: linkwright nics",
                )
            )
            continue
        gone = "its target is gone" if record.target not in view.targets else "its target no longer asks for it"
        out.detach.append(_detach(decided, record, gone, forget=True))


def _detach(
    decided: Decided, record: Attachment, reason: str, *, forget: bool, needs: str | None = None
) -> Detach:
    return Detach(
        target=record.target,
        interface=record.interface,
        port=record.port,
        vf_index=record.vf_index,
        forget=forget,
        reason=reason,
        needs=needs,
        interrupts=decided.view.interrupted(record),
    )


def _reshape(decided: Decided, port_id: PortId, shape: Shape, out: Local) -> Reshape | None:
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


def _interface(
    decided: Decided, key: Key, target: Target, interface: Interface, reshape: Reshape | None, out: Local
) -> None:
    """Bring one declared interface to its slot: release what is stale, give what is missing."""
    view, port = decided.view, decided.view.ports[decided.placement.port_of[key]]
    index, record = decided.shapes[port.id].slots[key], view.records.get(key)
    here = record is not None and record.port == port.id
    moved = record is not None and (record.port, record.vf_index) != (port.id, index)
    if record is not None and here and moved and reshape is None:
        # Another form of the same port that cannot be had now (firmware first, or somebody is in the way):
        # the present slot is as good as before.
        moved, index = False, record.vf_index
    needs = reshape.key if reshape is not None else None
    rebuilt = reshape is not None and reshape.count != port.num_vfs
    if not moved and not rebuilt:
        _keep_up(decided, record, target, interface, port, index, out)
        return
    if needs is not None:
        out.pending.add(key)
        if record is not None and here:  # until the yes comes, what is there serves on
            _keep_up(decided, record, target, interface, port, record.vf_index, out)
        elif record is None and index is not None and index < port.num_vfs:
            out.pending.discard(key)
            _keep_up(decided, None, target, interface, port, index, out)
    if record is not None and moved:
        why = "it gets another function of the port" if here else "it gets another port"
        out.detach.append(_detach(decided, record, why, forget=True, needs=needs))
    elif record is not None and view.live(record):
        out.detach.append(_detach(decided, record, "its VF is made anew", forget=False, needs=needs))
    if view.state(target.name).state == "running":
        _give(decided, target, interface, port, index, out, needs=needs)
    else:
        _not_running(decided, target, interface, out)


def _keep_up(
    decided: Decided,
    record: Attachment | None,
    target: Target,
    interface: Interface,
    port: Port,
    index: int | None,
    out: Local,
) -> None:
    """The slot is as it should be: compare the record with the target's namespace and with the kernel."""
    view = decided.view
    state = view.state(target.name)
    if record is not None and view.live(record):
        if state.state == "unknown":
            return
        same = state.netns_inode is None or record.netns_inode in (None, state.netns_inode)
        if state.state == "running" and same and record.state is AttachmentState.ATTACHED and view.held(record):
            return
        if not (state.state == "running" and same and record.state is AttachmentState.ATTACHING):
            out.detach.append(_detach(decided, record, _stale(state.state, same), forget=False))
    if state.state != "running":
        _not_running(decided, target, interface, out)
        return
    _give(decided, target, interface, port, index, out, needs=None)


def _stale(state: str, same: bool) -> str:
    if state != "running":
        return "its container does not run any more; the slot stays its own"
    return "its function is back on the host" if same else "its container runs in a new namespace"


def _give(
    decided: Decided,
    target: Target,
    interface: Interface,
    port: Port,
    index: int | None,
    out: Local,
    *,
    needs: str | None,
) -> None:
    """One Attach, if the port speaks the right mode, the function exists by then and nobody else has it."""
    view, mode, policy = decided.view, decided.modes[port.id], target.spec.policy
    if not mode.usable or decided.view.state(target.name).state != "running":
        return
    planned = {s.port: s.count for s in out.vfs if s.needs in (None, needs)}
    count = planned.get(port.id, port.num_vfs)
    exists = index < count if index is not None else count == 0
    if not exists:
        return
    function = view.function(port.id, index)
    who = [h.detail for h in foreign(function)] if function is not None else []
    taken = slot_taken(view, port.id, index)
    if taken is not None:
        who.append(f"{taken.target} {taken.interface} (quarantined)")
    if who:
        out.problems.append(_function_in_use(port, target, interface, index, who[0]))
        return
    spec = view.policies[policy].spec
    roce_mtu = spec.roce.mtu if spec.roce is not None and mode.desired is LinkMode.ROCE else None
    out.attach.append(
        Attach(
            target=target.name,
            interface=interface,
            policy=policy,
            generation=view.generation(policy),
            port=port.id,
            vf_index=index,
            mode=mode.desired,
            mtu=interface.mtu if interface.mtu is not None else roce_mtu,
            reason=f"{target.name} runs and has no {interface.name} yet",
            needs=needs,
        )
    )


def _not_running(decided: Decided, target: Target, interface: Interface, out: Local) -> None:
    state = decided.view.state(target.name)
    subject = f"target {target.name}"
    if state.state == "host-network":
        out.problems.append(
            Problem(
                severity="refused",
                code="host-network",
                subject=subject,
                text=f"its container uses the host's own network: there is nothing to move {interface.name} into.",
                next_step="Run it with a network namespace of its own (podman run --network none, or a bridge).",
            )
        )
        return
    unknown = state.state == "unknown"
    detail = f" ({state.detail})" if state.detail else ""
    out.problems.append(
        Problem(
            severity="waiting",
            code="container-unknown" if unknown else "container-not-running",
            subject=subject,
            text=f"container state cannot be read{detail}" if unknown else "container does not run",
            next_step="Look at the container's runtime." if unknown else f"{interface.name} comes when it starts.",
        )
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


def _function_in_use(port: Port, target: Target, interface: Interface, index: int | None, who: str) -> Problem:
    label = "PF" if index is None else f"VF {index}"
    return Problem(
        severity="refused",
        code="function-in-use",
        rule=2,
        subject=f"target {target.name}",
        text=f"{label} of {port_label(port.id)} is not given to {interface.name}: it is held by {who}.",
        holder=who,
        next_step="Stop it or detach it first.",
    )
