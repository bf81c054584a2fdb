"""Attach a function to a network namespace and take it back: the record, the journal, and the steps in between.

The intent with the before-values is on the disk before the first effect. A step that fails is a refusal: all is
undone, and the record is ASSIGNED again (or QUARANTINED, when the undoing failed too). A crash is not: the record
says ATTACHING or DETACHING, and calling the same function again goes on from what the kernel shows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec.structs import replace

from linkwright.model.documents import Interface
from linkwright.model.errors import LinkwrightError, Refused
from linkwright.model.inventory import Function
from linkwright.model.plan import TargetState
from linkwright.model.records import Attachment, AttachmentState
from linkwright.model.values import LinkMode, PciAddress, mac
from linkwright.store import Operation

from . import checks
from .aspects import Wish
from .context import Context
from .order import PfMtu, order_in, order_out
from .recovery import slot_only
from .scene import Namespace, Scene, host_fd, pinned, pinned_again
from .steps import Runner, Step, joined


def alias_of(target: str, interface: str) -> str:
    """The IFLA_IFALIAS that marks a netdev as ours; the kernel keeps 255 bytes of it."""
    return f"linkwright:{target}/{interface}"[:255]


def attach(
    ctx: Context,
    attachment: Attachment,
    interface: Interface,
    function: Function,
    mode: LinkMode | None,
    target_state: TargetState,
    mtu: int | None = None,
    namespace: Namespace | None = None,
) -> Attachment:
    """Give ``function`` to the target as ``interface``; returns the stored record, ATTACHED.

    Idempotent: what the kernel shows as done is not done again, and a function that is in the target's former
    namespace is taken from there first. ``mtu`` (bytes) is used when the interface names none. ``namespace``: the
    target's, pinned by the caller (``scene.pinned``), when it attaches several interfaces at once.

    Raises, with nothing changed: Refused ``name-taken``, ``rdma-name-taken``, ``host-network``, ``in-use``,
    ``held-elsewhere``, ``quarantined``; Vanished ``target-not-running``, ``netns-gone``, ``netns-changed``,
    ``netdev-vanished``; InvalidInput ``mtu-out-of-range``; HardwareFault ``mode-mismatch``. Raises whatever step
    failed, after all was undone, or with the record QUARANTINED and the reason in it.
    """
    current = _stored(ctx, attachment)
    if current.state is AttachmentState.QUARANTINED:
        raise Refused(
            f"{current.target} {current.interface} is quarantined: {current.reason}",
            rule=5,
            code="quarantined",
            where=current.function or current.port,
            next_step=f"Free it first: linkwright detach {current.target}, or linkwright audit --repair",
        )
    if namespace is None:
        with pinned(ctx, target_state) as opened:
            return attach(ctx, attachment, interface, function, mode, target_state, mtu, opened)
    if current.before is not None and (current.netns_inode, current.function) != (
        namespace.inode,
        function.address,
    ):
        current = detach(ctx, current)
        if current.state is AttachmentState.QUARANTINED:
            return attach(ctx, current, interface, function, mode, target_state, mtu, namespace)  # refuses
    with host_fd(ctx) as home:
        scene = Scene(ctx, function.address, home, namespace)
        return _attach(ctx, current, interface, function, mode, namespace, mtu, scene)


def _attach(
    ctx: Context,
    current: Attachment,
    interface: Interface,
    function: Function,
    mode: LinkMode | None,
    namespace: Namespace,
    mtu: int | None,
    scene: Scene,
) -> Attachment:
    netdev = checks.present(scene, function, current)
    wish = Wish(
        name=interface.name,
        alias=alias_of(current.target, current.interface),
        mtu=interface.mtu or mtu,
        mac=mac(text) if (text := interface.mac or current.mac) else None,
        addresses=interface.addresses,
        routes=interface.routes,
        rdma_name=interface.rdma_name,
    )
    checks.possible(scene, netdev, wish, mode)
    before = current.before or checks.before_values(scene, netdev)
    move_rdma = ctx.host_rdma_netns == "exclusive" and before.rdma_name is not None
    steps = order_in(scene, wish, before, infiniband=netdev.infiniband, move_rdma=move_rdma)
    if not function.is_pf and wish.mtu is not None and not netdev.infiniband:
        pf = PciAddress(current.port.partition("/")[0])
        steps.insert(0, PfMtu(Scene(ctx, pf, scene.host_fd, None), wish.mtu))
    was_attached = current.state is AttachmentState.ATTACHED
    if was_attached and all(step.is_done() for step in steps):
        return current
    if current.before is None:
        checks.free(scene, netdev, current)

    operation = _intend(
        ctx, "attach", current, AttachmentState.ATTACHING,
        netns_inode=namespace.inode, netns_path=namespace.path, function=function.address, before=before,
        rdma_moved=move_rdma,
    )  # fmt: skip
    current = _stored(ctx, current)
    runner = _runner(ctx, operation, current)
    try:
        runner.forward(steps)
    except LinkwrightError as problem:
        if was_attached:  # it works but for this; taking it away would help nobody
            _end(ctx, operation, replace(current, state=AttachmentState.ATTACHED, reason=str(problem)))
            raise
        released = _release(ctx, runner, operation, scene, wish, current, reason=str(problem))
        if released.state is AttachmentState.QUARANTINED:
            problem.message += f" Undoing it failed as well: {released.reason}"
        raise
    reason = ""
    if before.rdma_name is not None and not move_rdma:
        reason = f"RDMA device {before.rdma_name} stays visible in all namespaces (RDMA is in shared mode)"
    return _end(ctx, operation, replace(current, state=AttachmentState.ATTACHED, reason=reason))


def detach(ctx: Context, attachment: Attachment) -> Attachment:
    """Take it back: every value from before is restored; returns the stored record, ASSIGNED.

    Nothing is raised for what cannot be put back: the record is QUARANTINED with all reasons, and calling again
    tries again. Idempotent; a function that is gone (its VF was removed, the host restarted) is released. A
    ``attachment`` that is not the stored one any more (another function, another namespace) has no effect, so that
    a late release never touches what was given to somebody else.
    """
    current = ctx.store.attachment(attachment.target, attachment.interface)
    if current is None:
        return slot_only(attachment)
    if (current.function, current.netns_inode) != (attachment.function, attachment.netns_inode):
        return current
    if current.before is None or current.function is None:
        return (
            current if current.state is AttachmentState.ASSIGNED else ctx.store.put_attachment(slot_only(current))
        )
    if current.boot_id != ctx.boot_id:  # a restart has undone it all
        return ctx.store.put_attachment(slot_only(current))
    with host_fd(ctx) as home, pinned_again(ctx, current.netns_path, current.netns_inode) as namespace:
        scene = Scene(ctx, current.function, home, namespace)
        operation = _intend(ctx, "detach", current, AttachmentState.DETACHING)
        if not scene.exists and scene.netdev() is None:
            return _end(ctx, operation, slot_only(current))
        wish = Wish(name=current.interface, alias=alias_of(current.target, current.interface))
        return _release(ctx, _runner(ctx, operation, current), operation, scene, wish, current)


def _release(
    ctx: Context,
    runner: Runner,
    operation: Operation,
    scene: Scene,
    wish: Wish,
    current: Attachment,
    reason: str = "",
) -> Attachment:
    assert current.before is not None
    steps = order_out(scene, wish, current.before)
    problems = runner.backward(steps)
    if not problems:
        problems = _left_behind(steps, current)
    if not scene.exists and scene.netdev() is None:
        problems = []  # it went away in the middle
    if problems:
        return _end(
            ctx, operation, replace(current, state=AttachmentState.QUARANTINED, reason=joined(problems))
        )  # fmt: skip
    return _end(ctx, operation, slot_only(current, reason=reason))


def _left_behind(steps: Sequence[Step], current: Attachment) -> list[LinkwrightError]:
    """A last look, since each step was only seen right after its own effect."""
    left = [step.name for step in steps if not step.is_undone()]
    if not left:
        return []
    return [
        LinkwrightError(
            f"{', '.join(left)}: not as before, though the kernel reported no error.",
            code="left-behind",
            where=current.function or "",
            next_step="Something else changes this device too (udev, NetworkManager)?",
        )
    ]


def _runner(ctx: Context, operation: Operation, current: Attachment) -> Runner:
    subject = _subject(current)
    return Runner(operation, current.function or "", lambda moment, step: ctx.watch(moment, subject, step))


def _subject(attachment: Attachment) -> str:
    return f"{attachment.target}/{attachment.interface}"


def _intend(
    ctx: Context, kind: str, current: Attachment, state: AttachmentState, **fields: object
) -> Operation:  # fmt: skip
    """The write-ahead: record, before-values and open journal in one commit."""
    with ctx.store.transaction():
        operation = ctx.store.begin_operation(kind, _subject(current), ctx.boot_id)
        operation.intend()
        ctx.store.put_attachment(
            replace(current, state=state, boot_id=ctx.boot_id, since=time.time(), reason="", **fields)
        )
    return operation


def _end(ctx: Context, operation: Operation, record: Attachment) -> Attachment:
    with ctx.store.transaction():
        stored = ctx.store.put_attachment(replace(record, boot_id=ctx.boot_id, since=time.time()))
        operation.end()
    return stored


def _stored(ctx: Context, attachment: Attachment) -> Attachment:
    """The stored record; values from before a restart are void, since the restart undid what they speak of."""
    current = ctx.store.attachment(attachment.target, attachment.interface) or attachment
    if current.before is not None and current.boot_id != ctx.boot_id:
        return ctx.store.put_attachment(slot_only(current))
    return current
