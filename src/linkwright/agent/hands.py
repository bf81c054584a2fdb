"""The agent's hands: carry out one planned step. Each call is complete or leaves a journal record and raises.

Nothing here decides. Before a step with an effect on holders the kernel is looked at again by the layer that
acts (targets/, kernel/), because the plan is some milliseconds old.
"""

from __future__ import annotations

import msgspec

from ..kernel import sriov
from ..model.documents import Interface
from ..model.errors import HardwareFault, Refused, Vanished
from ..model.inventory import Function, Inventory, Port
from ..model.plan import Attach, Detach, Question, SetVfs
from ..model.records import Attachment, AttachmentState
from ..model.values import port_label
from ..planner.view import HOST_KINDS
from ..targets import container, functions
from ..targets.context import Context
from .world import World


class Hands:
    """One per agent; used from the reconcile loop only."""

    def __init__(self, world: World) -> None:
        self._world = world

    def context(self, question: Question) -> Context:
        world = self._world
        return Context(
            system=world.system,
            store=world.store,
            links=world.links,
            rdma=world.rdma,
            boot_id=question.inventory.boot_id,
            host_rdma_netns=question.inventory.rdma_netns,
            watch=world.watch,
        )

    def set_vfs(self, step: SetVfs, question: Question) -> None:
        """Refused while the kernel shows a holder of any function of the port (interlock rule 2). What the host
        itself does with the PF goes on while VFs come and go; whether the port may be used, the plan says."""
        port = _port(self._world.look_at_kernel(question), step.port)
        holders = [
            holder
            for function in port.functions
            for holder in function.holders
            if not (function.is_pf and holder.kind in HOST_KINDS)
        ]
        if holders:
            holder = holders[0]
            raise Refused(
                f"the number of VFs cannot change from {port.num_vfs} to {step.count} while {holder.detail} "
                "uses a function of this port",
                rule=2,
                code="function-in-use",
                where=port_label(step.port),
                holder=holder.detail,
                next_step="Detach it first, or keep the number of VFs.",
            )
        functions.prepare_pf(self.context(question), port)
        sriov.set_num_vfs(self._world.system, port.pf.address, step.count)

    def attach(self, step: Attach, question: Question) -> Attachment:
        store = self._world.store
        kept = store.attachment(step.target, step.interface.name)
        if kept is None:
            raise Vanished(
                "its slot is not recorded any more",
                code="slot-vanished",
                where=f"{step.target} {step.interface.name}",
                next_step="It is planned again by itself.",
            )
        port, adapter = _port(question.inventory, step.port), question.inventory.adapter_of(step.port)
        if adapter is not None and kept.before is None and kept.adapter != adapter.id:
            # Its system image GUID is read on the host only; a record made while it was away has less of it.
            kept = store.put_attachment(msgspec.structs.replace(kept, adapter=adapter.id))
        function = slot(port, step.vf_index)
        context = self.context(question)
        mode = step.mode or port.observed_mode
        if step.vf_index is not None:
            kept = functions.prepare_vf(context, port, function, kept, step.interface, mode)
        return container.attach(
            context, kept, step.interface, function, mode, question.targets[step.target], step.mtu
        )

    def detach(self, step: Detach, question: Question) -> None:
        store = self._world.store
        kept = store.attachment(step.target, step.interface)
        if kept is None:
            return
        if kept.state is not AttachmentState.ASSIGNED:
            kept = container.detach(self.context(question), kept)
        if kept.state is AttachmentState.QUARANTINED:
            raise HardwareFault(
                f"could not be released and is quarantined: {kept.reason}",
                code="release-failed",
                where=f"{step.target} {step.interface}",
                next_step="Mend what is named; the release is tried again by itself.",
            )
        if step.forget and kept.state is AttachmentState.ASSIGNED:
            store.delete_attachment(step.target, step.interface)

    def forget_vanished(self, question: Question) -> bool:
        """Records of functions that the host does not have any more (a card that fell off the bus, VFs that
        another tool took away): what is left of each is its slot, as after a restart. True when there was one."""
        context, found = self.context(question), False
        devices = self._world.system.sys / "bus/pci/devices"
        for record in question.records.attachments:
            if record.before is None or record.boot_id != context.boot_id or record.function is None:
                continue
            port = question.inventory.port(record.port)
            shown = port is not None and any(f.vf_index == record.vf_index for f in port.functions)
            if not shown and not (devices / record.function).exists():
                left = container.detach(context, record)
                found = found or left.before is None
        return found

    def release(self, attachment: Attachment, question: Question) -> Attachment:
        """Take one interface back and keep its slot."""
        return container.detach(self.context(question), attachment)

    def prepare_slot(self, attachment: Attachment, interface: Interface, question: Question) -> None:
        """Give an assigned VF its identity before its target runs (boot phase)."""
        port = question.inventory.port(attachment.port)
        if port is None or attachment.vf_index is None or attachment.vf_index >= len(port.vfs):
            return
        functions.prepare_vf(
            self.context(question),
            port,
            slot(port, attachment.vf_index),
            attachment,
            interface,
            port.observed_mode,
        )

    def raise_port(self, port: Port) -> None:
        """Bring the PF's netdev up, so that its link can come up (an IB or RoCE port is down with it)."""
        netdev = port.pf.netdev
        if netdev is not None and not netdev.up:
            self._world.links.change(netdev.ifindex, up=True)


def slot(port: Port, vf_index: int | None) -> Function:
    """The function of a slot; raises Vanished."""
    for function in port.functions:
        if function.vf_index == vf_index:
            return function
    raise Vanished(
        f"has no VF {vf_index}; it has {port.num_vfs}",
        code="function-vanished",
        where=port_label(port.id),
        next_step="Look: linkwright nics",
    )


def _port(inventory: Inventory, port: str) -> Port:
    found = inventory.port(port)
    if found is None:
        raise Vanished(
            "is not on this host any more",
            code="port-vanished",
            where=port_label(port),
            next_step="Look: linkwright nics",
        )
    return found
