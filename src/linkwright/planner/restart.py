"""The part of a plan that goes through a restart of the host: one for all its NICs (interlock rules 2, 3).

Order: every write, then every take-back (a restart interrupts every attachment of the host, on whatever card),
ONE restart, the verification of each port, VF counts, and every interface given back on its old slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from ..firmware import commands
from ..model.inventory import Adapter, Holder, Port
from ..model.plan import Approval, Attach, Detach, Problem, Question, RestartHost, Step, Verify, WriteFirmware
from ..model.records import AttachmentState, ModeChange, Setting
from ..model.values import LinkMode, PciAddress, port_label
from .approvals import change_approval, change_key
from .decided import Decided
from .groups import Group, bound_to
from .modechange import Draft, asks_person, in_words
from .reshape import Local
from .view import host_own


@dataclass
class Restart:
    """``now``: a change is agreed, so the restart is what this plan does next."""

    steps: list[Step] = field(default_factory=list)
    changes: list[ModeChange] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    now: bool = False


def through_restart(
    decided: Decided,
    local: Local,
    wanted: list[Draft],
    found: list[Group],
    after: Callable[[Question], Iterable[Step]],
) -> Restart:
    """``wanted``: the drafts that may begin. ``after``: the steps that follow on the host as it comes back."""
    out = Restart()
    targets = interrupted(decided, local)
    waiting = {d.policy for d in wanted if _drains(decided, d, targets, out)}
    wanted = [d for d in wanted if not bound_to(found, d.policy) & waiting]
    if not wanted:
        return out
    changes = {d.policy: _change(decided, d, targets) for d in wanted}
    keys: dict[str, str | None] = {}
    for draft in wanted:
        change = changes[draft.policy]
        key = change_key(change) if asks_person(decided.view.policies[draft.policy].spec) else None
        keys[draft.policy] = None if key in decided.view.question.records.approvals else key
        if keys[draft.policy] is not None:
            out.approvals.append(change_approval(change, in_words(decided, draft), _own_traffic(decided)))
    asked = dict(keys)
    for policy in keys:  # a unit of several policies needs every yes before any of it begins
        unit = sorted(bound_to(found, policy) & set(keys))
        keys[policy] = next((asked[p] for p in unit if asked[p] is not None), None)
    # A change whose own yes is there, and which waits for another of its unit, is not offered to the executor.
    out.changes = [changes[p] for p in keys if keys[p] is None or asked[p] is not None]
    out.now = any(key is None for key in keys.values())
    first = None if out.now else keys[wanted[0].policy]
    for key in sorted({k or "" for k in keys.values()}):
        drafts = [d for d in wanted if (keys[d.policy] or "") == key]
        writing = [changes[d.policy] for d in drafts if d.writes]
        why = "; ".join(f"policy {c.policy}, generation {c.generation}" for c in writing)
        out.steps += writes([s for d in drafts for s in d.writes], why, needs=key or None)
    out.steps += _drain(decided, local, first)
    what = "; ".join(in_words(decided, d) for d in wanted if not out.now or keys[d.policy] is None)
    out.steps.append(
        RestartHost(
            reason=f"the card takes a new setting only on a reset: {what}", needs=first, interrupts=targets
        )
    )
    for draft in wanted:
        for port in draft.ports:
            mode = decided.modes[port].desired
            out.steps.append(
                Verify(
                    port=port,
                    mode=mode,
                    reason="before anybody gets a function of it",
                    needs=keys[draft.policy],
                )
            )
    active = [d for d in wanted if not out.now or keys[d.policy] is None]
    drained = {(s.target, s.interface) for s in out.steps if isinstance(s, Detach)}
    for step in after(_after(decided.view.question, decided, active)):
        back = isinstance(step, Attach) and (step.target, step.interface.name) in drained
        reason = "given back after the restart" if back else step.reason
        out.steps.append(msgspec.structs.replace(step, needs=first, interrupts=(), reason=reason))
    return out


def writes(settings: Iterable[Setting], reason: str, needs: str | None) -> list[WriteFirmware]:
    """One command for each adapter, with all its settings."""
    by_pf: dict[PciAddress, dict[str, Setting]] = {}
    for setting in settings:
        by_pf.setdefault(setting.pf, {}).setdefault(setting.name, setting)
    return [
        WriteFirmware(
            pf=pf,
            settings=tuple(found[name] for name in sorted(found, key=_order)),
            command=commands.write(pf, {name: found[name].value for name in sorted(found, key=_order)}),
            reason=reason,
            needs=needs,
        )
        for pf, found in sorted(by_pf.items())
    ]


def _order(name: str) -> tuple[bool, bool, str]:
    """LINK_TYPE by port, then SRIOV_EN before NUM_OF_VFS, as people write them."""
    return (not name.startswith("LINK_TYPE"), name == "NUM_OF_VFS", name)


def interrupted(decided: Decided, local: Local) -> tuple[str, ...]:
    """Every target that has an interface on this host, or gets one in this same pass: a restart takes it away."""
    view = decided.view
    leaving = {(s.target, s.interface) for s in local.detach if s.forget and s.needs is None}
    have = {
        name for key, r in view.records.items() if key not in leaving for name in view.interrupted(r)
    }
    return tuple(sorted(have | {s.target for s in local.attach if s.needs is None}))


def _change(decided: Decided, draft: Draft, targets: tuple[str, ...]) -> ModeChange:
    view = decided.view
    return ModeChange(
        policy=draft.policy,
        generation=view.generation(draft.policy),
        wanted=view.policies[draft.policy].spec.link_mode,
        ports=tuple(draft.ports),
        settings=tuple(sorted(draft.settings, key=lambda s: (s.pf, _order(s.name)))),
        targets=targets,
    )


def _own_traffic(decided: Decided) -> list[str]:
    return [
        f"{port_label(port.id)} ({', '.join(sorted({h.detail for h in host_own(port)}))})"
        for port in decided.view.ports.values()
        if host_own(port)
    ]


def _drains(decided: Decided, draft: Draft, targets: tuple[str, ...], out: Restart) -> bool:
    """``drain: Wait``: the change does not interrupt; it waits until nobody holds a function of the host."""
    if decided.view.policies[draft.policy].spec.activation.drain != "Wait" or not targets:
        return False
    out.problems.append(
        Problem(
            severity="waiting",
            code="drain-waits",
            subject=f"policy {draft.policy}",
            text=f"drain: Wait: the change begins when {', '.join(targets)} have ended.",
            holder=", ".join(targets),
            next_step="Stop them, or set spec.activation.drain to Detach.",
        )
    )
    return True


def _drain(decided: Decided, local: Local, needs: str | None) -> list[Step]:
    """Take back everything that will be attached by then; the slots stay."""
    view = decided.view
    leaving = {(s.target, s.interface) for s in local.detach if s.forget and s.needs is None}
    found: dict[tuple[str, str], Detach] = {}
    for key, record in view.records.items():
        if key not in leaving and view.live(record):
            found[key] = Detach(
                target=record.target,
                interface=record.interface,
                port=record.port,
                vf_index=record.vf_index,
                reason="the restart takes it; its slot is kept",
                needs=needs,
                interrupts=view.interrupted(record),
            )
    if needs is not None:  # the steps without a yes come first: what they give is interrupted as well
        for step in local.attach:
            if step.needs is None:
                found[step.target, step.interface.name] = Detach(
                    target=step.target,
                    interface=step.interface.name,
                    port=step.port,
                    vf_index=step.vf_index,
                    reason="the restart takes it; its slot is kept",
                    needs=needs,
                    interrupts=(step.target,),
                )
    return [found[key] for key in sorted(found)]


def _after(question: Question, decided: Decided, active: list[Draft]) -> Question:
    """The host as it comes back: what was next is current, VFs and attachments are gone, slots are kept."""
    settings = [s for d in active for s in d.settings]
    adapters = tuple(_rebooted(a, settings, decided) for a in question.inventory.adapters)
    records = tuple(
        msgspec.structs.replace(r, state=AttachmentState.ASSIGNED, before=None, netns_inode=None)
        if r.state is not AttachmentState.QUARANTINED
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


def _rebooted(adapter: Adapter, settings: list[Setting], decided: Decided) -> Adapter:
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
