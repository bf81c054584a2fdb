"""What the firmware must be told, in whose name, and whether it may be: drafts of mode changes (S4).

LINK_TYPE is a setting of a port; SRIOV_EN and NUM_OF_VFS belong to the adapter and hold for all its PFs, so they
are the maximum of what its ports need and are never lowered here. One policy has one change at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..firmware.base import link_type_name, link_type_of
from ..model.documents import LinkPolicySpec
from ..model.inventory import Adapter
from ..model.plan import Problem
from ..model.records import ModeChange, Phase, Setting
from ..model.values import LinkMode, PciAddress, PortId, port_label
from .decided import Decided, moving


@dataclass
class Draft:
    """One policy's change. ``settings``: wanted values that are not current, each with its Next Boot before.
    ``writes``: those of them that Next Boot does not have yet. ``put_back``: writes that need no restart."""

    policy: str
    ports: list[PortId] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    put_back: list[Setting] = field(default_factory=list)

    @property
    def writes(self) -> tuple[Setting, ...]:
        return tuple(s for s in self.settings if s.before != s.value)


def drafts(decided: Decided) -> tuple[list[Draft], list[Problem]]:
    """One draft for each policy whose ports need a write or an activation; and what stands in the way."""
    problems: list[Problem] = []
    out: list[Draft] = []
    for policy in decided.view.policies:
        draft = Draft(policy)
        for port in decided.matching.ports_of(policy):
            if port not in decided.in_change:
                _mode(decided, port, draft)
                _vf_settings(decided, port, draft, problems)
        last = decided.view.changes.get(policy)
        if last is not None and decided.view.wanted_mode(policy) == last.returned_to:
            problems.append(_rolled_back(last))
        if draft.settings or draft.put_back:
            out.append(draft)
    return out, problems


def writer(decided: Decided, adapter: Adapter) -> PciAddress:
    """The PF through which an adapter's settings are written: its first port that may be touched."""
    return next(
        decided.view.ports[p].pf.address
        for p in decided.matching.policy_of
        if decided.view.adapters[p].id == adapter.id
    )


def _mode(decided: Decided, port_id: PortId, draft: Draft) -> None:
    mode, port, adapter = decided.modes[port_id], decided.view.ports[port_id], decided.view.adapters[port_id]
    if not mode.write and not mode.activate:
        return
    setting = Setting(
        pf=writer(decided, adapter),
        name=link_type_name(port.number),
        value=link_type_of(mode.desired),
        before=link_type_of(port.next_mode) if port.next_mode is not None else None,
        current=link_type_of(port.current_mode) if port.current_mode is not None else None,
    )
    if mode.activate:
        draft.ports.append(port_id)
        draft.settings.append(setting)
    else:
        draft.put_back.append(setting)


def _vf_settings(decided: Decided, port_id: PortId, draft: Draft, problems: list[Problem]) -> None:
    view, shape = decided.view, decided.shapes[port_id]
    port, adapter = view.ports[port_id], view.adapters[port_id]
    if shape.firmware is None or decided.modes[port_id].problem is not None:
        return  # VFs of a port that cannot have its mode serve nobody
    if adapter.num_vfs_next is None or adapter.num_vfs_current is None:
        problems.append(_cannot_have(draft.policy, port_id, shape.firmware, port.total_vfs, adapter))
        return
    needed = max(
        [s.firmware for p, s in decided.shapes.items() if s.firmware and view.adapters[p].id == adapter.id]
    )
    pf = writer(decided, adapter)
    settings: list[Setting] = []
    if adapter.sriov_enabled_current is False:
        before = None if adapter.sriov_enabled_next is None else str(int(adapter.sriov_enabled_next))
        settings.append(Setting(pf=pf, name="SRIOV_EN", value="1", before=before, current="0"))
    if adapter.num_vfs_current < needed:
        value, before = str(max(needed, adapter.num_vfs_next)), str(adapter.num_vfs_next)
        current = str(adapter.num_vfs_current)
        settings.append(Setting(pf=pf, name="NUM_OF_VFS", value=value, before=before, current=current))
    if not settings:
        problems.append(
            Problem(
                severity="waiting",
                code="vfs-missing",
                subject=f"policy {draft.policy}",
                text=f"the firmware of {port_label(port_id)} allows {adapter.num_vfs_current} VFs, the kernel "
                f"{port.total_vfs}; {shape.firmware} are needed.",
                next_step="Look at dmesg: the BIOS may lack room for SR-IOV (IOMMU, MMIO above 4G).",
            )
        )
        return
    if port_id not in draft.ports:
        draft.ports.append(port_id)
    draft.settings += [s for s in settings if s not in draft.settings]


def _cannot_have(policy: str, port: PortId, count: int, has: int, adapter: Adapter) -> Problem:
    why = adapter.faults[0] if adapter.faults else "its firmware has no such setting, or it cannot be read now"
    return Problem(
        severity="waiting",
        code="vfs-not-possible",
        subject=f"policy {policy}",
        text=f"{port_label(port)} needs {count} VFs; the kernel allows {has}, and the card cannot be told to "
        f"allow more: {why}.",
        next_step=f"Name more ports in spec.nicSelector of {policy}, or ask for fewer functions.",
    )


def forbidden(decided: Decided, draft: Draft) -> Problem | None:
    """Why this change may not begin: interlock rule 3 (one activation), a change under way."""
    view = decided.view
    spec, generation = view.policies[draft.policy].spec, view.generation(draft.policy)
    other = next((c for c in view.changes.values() if moving(c)), None)
    if other is not None:
        return _waits(
            draft.policy,
            "change-in-progress",
            f"the change of policy {other.policy} generation {other.generation} is not finished "
            f"({other.phase.value}); this one follows it.",
            "Look: linkwright status --watch",
        )
    last = view.changes.get(draft.policy)
    if last is not None and last.generation == generation and last.wanted == spec.link_mode:
        if last.phase is Phase.FAILED:
            return _waits(
                draft.policy,
                last.reason_code or "change-failed",
                f"generation {generation} to {last.wanted.value} failed: "
                f"{last.detail or 'no reason is recorded'}.",
                last.next_step or f'When the cause is gone: linkwright retry {draft.policy} --reason "…"',
            )
        again = _activated(decided, draft, last)
        if last.phase is Phase.DONE and again:
            return _waits(
                draft.policy,
                "already-activated",
                f"generation {generation} was activated once already, and {again} is not current any more: "
                "somebody else changed it.",
                f'Find out who; then: linkwright retry {draft.policy} --reason "…"',
            )
    return None


def _activated(decided: Decided, draft: Draft, last: ModeChange) -> str:
    """A setting that this generation's activation brought already, and that is needed again; empty: none."""
    card = {p.pf.address: a.id for a in decided.view.question.inventory.adapters for p in a.ports}
    done = {(card.get(s.pf, s.pf), s.name, s.value) for s in last.settings if last.activations}
    return next((s.name for s in draft.settings if (card.get(s.pf, s.pf), s.name, s.value) in done), "")


def _rolled_back(last: ModeChange) -> Problem:
    """Targets have their functions in the old mode; the policy's own mode is tried again only on a retry."""
    text = f"generation {last.generation} to {last.wanted.value} failed: {last.detail}"
    return _waits(last.policy, last.reason_code, text, last.next_step)


def _waits(policy: str, code: str, text: str, next_step: str) -> Problem:
    return Problem(
        severity="waiting", code=code, rule=3, subject=f"policy {policy}", text=text, next_step=next_step
    )


def asks_person(spec: LinkPolicySpec) -> bool:
    """Does the change need a yes?"""
    return spec.activation.approval == "Manual"


def in_words(decided: Decided, draft: Draft) -> str:
    """``InfiniBand on 0000:3b:00.0 p1 (was RoCE) and 8 VFs``: for approvals and reasons."""
    modes = [
        f"{decided.modes[p].desired.value} on {port_label(p)}"
        + (f" (was {_was(decided, p).value})" if decided.modes[p].activate else "")
        for p in draft.ports
        if decided.modes[p].activate
    ]
    vfs = sorted({s.value for s in draft.settings if s.name == "NUM_OF_VFS"})
    if vfs:
        modes.append(f"up to {vfs[-1]} VFs a port")
    elif any(s.name == "SRIOV_EN" for s in draft.settings):
        modes.append("VFs")
    return " and ".join(modes)


def _was(decided: Decided, port: PortId) -> LinkMode:
    found = decided.view.ports[port]
    return found.current_mode or decided.modes[port].desired
