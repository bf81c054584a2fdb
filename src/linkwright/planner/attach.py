"""Steps that need no restart: take back, change VF counts, give (S2, S22). Interlock rules 1 and 2.

Order: every take-back, then VF counts, then every give, so that no function is given before it is free. An
interface that keeps its slot keeps its record (``forget=False``); one that gets another slot gives the old up.
"""

from __future__ import annotations

import hashlib

import msgspec

from ..model.documents import Interface, Target
from ..model.inventory import Port
from ..model.plan import Attach, Detach, Problem
from ..model.records import Attachment, AttachmentState
from ..model.values import LinkMode, PortId, port_label
from .decided import Decided
from .names import device_with_name, rdma_name_taken
from .reshape import Local, Reshape, reshape
from .vfs import slot_taken
from .view import Key, foreign

NEW = "it runs and has no interface yet"
CHANGED = "its document changed; it is given anew"


def local_steps(decided: Decided) -> Local:
    out = Local()
    if decided.restart_ahead is not None:
        return out
    _forget(decided, out)
    reshaped: dict[PortId, Reshape] = {}
    for port, shape in decided.shapes.items():
        if port not in decided.in_change:
            change = reshape(decided, port, shape, out)
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
    """Records whose target or interface nobody declares any more, or whose new policy has no place for it."""
    view = decided.view
    declared = view.declared()
    kept = decided.placement.port_of.keys() | decided.placement.staying.keys()
    for key, record in view.records.items():
        if key in kept or record.port in decided.in_change or record.state is AttachmentState.QUARANTINED:
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
        gone = "its target is gone"
        if record.target in view.targets:
            gone = "its target no longer asks for it" if key not in declared else "its policy has no port for it"
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
    reason = NEW
    if record is not None and moved:
        why = "it gets another function of the port" if here else "it gets a function of another port"
        out.detach.append(_detach(decided, record, why, forget=True, needs=needs))
        reason = f"instead of {_label(record.vf_index)}" + ("" if here else f" of {port_label(record.port)}")
    elif record is not None and view.live(record):
        out.detach.append(_detach(decided, record, "the VFs are made anew", forget=False, needs=needs))
        reason = "on the VF made anew"
    if view.state(target.name).state == "running":
        _give(decided, target, interface, port, index, out, needs=needs, reason=reason)
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
        pid = view.pid_inside(record) if state.state == "absent" else None
        if pid is not None:
            out.problems.append(_renamed(record, pid))
            return
        same = state.netns_inode is None or record.netns_inode in (None, state.netns_inode)
        right = same and record.wish in ("", wish_of(interface))
        if state.state == "running" and right and record.state is AttachmentState.ATTACHED and view.held(record):
            return
        if not (state.state == "running" and right and record.state is AttachmentState.ATTACHING):
            gone = view.function(record.port, record.vf_index) is None
            why = CHANGED if same and not right and not gone else _stale(state.state, same, gone)
            out.detach.append(_detach(decided, record, why, forget=False))
    if state.state != "running":
        _not_running(decided, target, interface, out)
        return
    _give(decided, target, interface, port, index, out, needs=None)


def wish_of(interface: Interface) -> str:
    """Names one version of an interface's document: another one is given anew, on the same slot."""
    return hashlib.sha256(msgspec.json.encode(interface)).hexdigest()[:16]


def _stale(state: str, same: bool, gone: bool) -> str:
    if gone:
        return "its function is gone (a reload of the driver?)"
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
    reason: str = NEW,
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
    key = (target.name, interface.name)
    if key in decided.placement.nameless:
        return
    other = device_with_name(view, port, index, interface)
    if other:
        out.problems.append(rdma_name_taken(key, interface.rdma_name or "", other))
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
            reason=reason,
            needs=needs,
        )
    )


def _label(vf_index: int | None) -> str:
    return "PF" if vf_index is None else f"VF {vf_index}"


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
            text=f"container state cannot be read{detail}" if unknown else f"container does not run{detail}",
            next_step="Look at the container's runtime." if unknown else "It gets its interfaces when it starts.",
        )
    )


def _renamed(record: Attachment, pid: int) -> Problem:
    """podman rename changes the name of a container that works: no reason to take its interface away."""
    return Problem(
        severity="waiting",
        code="container-renamed",
        subject=f"target {record.target}",
        text=f"there is no container of this name now, but the one that has {record.interface} lives on (pid "
        f"{pid}): renamed, or its namespace is shared.",
        next_step=f"It keeps the interface until another one of this name runs, or until: linkwright detach "
        f"{record.target}",
    )


def _function_in_use(port: Port, target: Target, interface: Interface, index: int | None, who: str) -> Problem:
    return Problem(
        severity="refused",
        code="function-in-use",
        rule=2,
        subject=f"target {target.name}",
        text=f"{_label(index)} of {port_label(port.id)} is not given to {interface.name}: it is held by {who}.",
        holder=who,
        next_step="Stop it or detach it first.",
    )
