"""What a host shows after an activation, as far as a plan can tell: the question that the second half answers."""

from __future__ import annotations

import msgspec

from ..model.inventory import Adapter, Holder, Port
from ..model.plan import Question
from ..model.records import AttachmentState, Setting
from ..model.values import LinkMode, PortId
from .modechange import Draft


def comes_back(question: Question, active: list[Draft], scope: frozenset[PortId] | None) -> Question:
    """The host after the activation: what was next is current, VFs and attachments are gone, slots are kept.
    ``scope``: the ports of the adapters that are reset; None: the host restarts."""
    settings = [s for d in active for s in d.settings]
    adapters = tuple(
        _reset(a, settings) if scope is None or a.ports[0].id in scope else a for a in question.inventory.adapters
    )
    records = tuple(
        msgspec.structs.replace(r, state=AttachmentState.ASSIGNED, before=None, netns_inode=None)
        if r.state is not AttachmentState.QUARANTINED and (scope is None or r.port in scope)
        else r
        for r in question.records.attachments
    )
    carried_out = {d.policy for d in active}
    others = tuple(c for c in question.records.changes if c.policy not in carried_out)
    return msgspec.structs.replace(
        question,
        inventory=msgspec.structs.replace(question.inventory, adapters=adapters),
        records=msgspec.structs.replace(question.records, attachments=records, changes=others),
    )


def _reset(adapter: Adapter, settings: list[Setting]) -> Adapter:
    mine = {s.name: s.value for s in settings if s.pf in {p.pf.address for p in adapter.ports}}
    modes = {"1": LinkMode.INFINIBAND, "2": LinkMode.ROCE}
    num_vfs = int(mine["NUM_OF_VFS"]) if "NUM_OF_VFS" in mine else adapter.num_vfs_next
    sriov = True if "SRIOV_EN" in mine else adapter.sriov_enabled_next

    def port(old: Port) -> Port:
        told = mine.get(f"LINK_TYPE_P{old.number}")
        mode = modes[told] if told else old.next_mode or old.current_mode
        total = num_vfs if num_vfs is not None and sriov is not False else old.total_vfs
        kept: tuple[Holder, ...] = tuple(h for h in old.pf.holders if not h.ours)
        return msgspec.structs.replace(
            old,
            pf=msgspec.structs.replace(old.pf, holders=kept, net_elsewhere=False),
            vfs=(),
            num_vfs=0,
            total_vfs=max(total, old.total_vfs) if "NUM_OF_VFS" not in mine else total,
            next_mode=mode,
            current_mode=mode,
            observed_mode=mode or old.observed_mode,
        )

    return msgspec.structs.replace(
        adapter,
        ports=tuple(port(p) for p in adapter.ports),
        sriov_enabled_current=sriov,
        sriov_enabled_next=sriov,
        num_vfs_current=num_vfs,
        num_vfs_next=num_vfs,
    )
