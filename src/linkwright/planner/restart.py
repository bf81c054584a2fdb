"""The parts of a plan that activate what was written: one restart of the host for all its NICs, or resets of
single adapters, or nothing of ours where somebody else restarts (interlock rules 2, 3).

Order: every write, then every take-back in the scope (a restart interrupts every attachment of the host, on
whatever card), ONE restart, the verification of each port, VF counts, every interface given back on its old slot.
A step that may not be taken yet names what it waits for in ``needs``: a yes, a window (``window:POLICY``) or the
end of those who hold functions (``drain:POLICY``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from ..firmware import commands
from ..model.plan import (
    Approval,
    Attach,
    Detach,
    Problem,
    Question,
    ResetAdapter,
    RestartHost,
    SetVfs,
    Step,
    Verify,
    WriteFirmware,
)
from ..model.records import ModeChange, Setting
from ..model.values import PciAddress, PortId, port_label
from .activation import Way, adapters_of, closed, external_note, ports_of, waits_for_holders, way_of
from .afterwards import comes_back
from .approvals import change_approval, change_key
from .decided import Decided
from .groups import Group, bound_to
from .modechange import Draft, asks_person, in_words, writer
from .reshape import Local
from .view import host_own


@dataclass
class Part:
    """What is activated in one way. ``now``: a change of it is agreed and interrupts, so it is what comes next."""

    steps: list[Step] = field(default_factory=list)
    changes: list[ModeChange] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)
    now: bool = False


@dataclass
class Activations:
    parts: list[Part] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True)
class _Yes:
    """``asked``: a draft's own missing yes. ``keys``: what it waits for, its unit and its window included."""

    asked: dict[str, str | None]
    keys: dict[str, str | None]


def activations(
    decided: Decided,
    local: Local,
    wanted: list[Draft],
    found: list[Group],
    after: Callable[[Question], Iterable[Step]],
) -> Activations:
    """``wanted``: the drafts that may begin. ``after``: the steps that follow on the host as it comes back.

    Drafts of one way share one part: one restart of the host for all its NICs, one round of resets."""
    out = Activations()
    ways = {d.policy: way_of(decided, d) for d in wanted}
    changes = {d.policy: _change(decided, d, ways[d.policy], local) for d in wanted}
    yes = _missing_yes(decided, changes, found, out)
    for way in ("External", "FirmwareReset", "Reboot"):
        mine = [d for d in wanted if ways[d.policy] == way]
        if not mine:
            continue
        part = Part()
        for draft in mine:
            if yes.asked[draft.policy] is not None:
                words, beside = in_words(decided, draft), _own_traffic(decided) if way == "Reboot" else []
                spec = decided.view.policies[draft.policy].spec
                part.approvals.append(change_approval(changes[draft.policy], words, beside, spec.activation))
        # A change whose own yes is there, and which waits for another of its unit, is not offered to the executor.
        names = [d.policy for d in mine if yes.keys[d.policy] is None or yes.asked[d.policy] is not None]
        part.changes = [changes[name] for name in names]
        for key in sorted({yes.keys[d.policy] or "" for d in mine}):
            drafts = [d for d in mine if (yes.keys[d.policy] or "") == key]
            writing = [changes[d.policy] for d in drafts if d.writes]
            why = "; ".join(f"policy {c.policy}, generation {c.generation}" for c in writing)
            part.steps += writes([s for d in drafts for s in d.writes], why, needs=key or None)
        if way == "External":
            out.problems += [external_note(d.policy) for d in mine]
        else:
            _interrupting(decided, local, mine, way, yes, after, part, out)
        out.parts.append(part)
    return out


def _missing_yes(
    decided: Decided, changes: dict[str, ModeChange], found: list[Group], out: Activations
) -> _Yes:
    asked: dict[str, str | None] = {}
    blocked: dict[str, str | None] = {}
    for policy, change in changes.items():
        key = change_key(change) if asks_person(decided.view.policies[policy].spec) else None
        asked[policy] = None if key in decided.view.question.records.approvals else key
        shut = closed(decided, policy)
        if shut is not None:
            out.problems.append(shut.problem)
        blocked[policy] = asked[policy] or (shut.key if shut is not None else None)
    keys: dict[str, str | None] = {}
    for policy in changes:  # a unit of several policies needs every yes before any of it begins
        unit = [policy, *sorted(bound_to(found, policy) & set(changes))]
        keys[policy] = next((blocked[p] for p in unit if blocked[p] is not None), None)
    return _Yes(asked=asked, keys=keys)


def _interrupting(
    decided: Decided,
    local: Local,
    mine: list[Draft],
    way: Way,
    yes: _Yes,
    after: Callable[[Question], Iterable[Step]],
    part: Part,
    out: Activations,
) -> None:
    """Take back, activate, verify, give back."""
    part.now = any(yes.keys[d.policy] is None for d in mine)
    active = [d for d in mine if not part.now or yes.keys[d.policy] is None]
    first = None if part.now else yes.keys[mine[0].policy]
    adapters = {a.id: a for d in active for a in adapters_of(decided, d)}
    scope = None if way == "Reboot" else ports_of(list(adapters.values()))
    targets = interrupted(decided, local, scope)
    waits = [waits_for_holders(d.policy, decided.view.policies[d.policy].spec, targets) for d in active]
    if all(waits) and waits:  # one that detaches interrupts for all: there is one restart
        out.problems += [w for w in waits if w is not None]
        first, targets = first or f"drain:{active[0].policy}", ()
    else:
        part.steps += _drain(decided, local, first, scope)
    what = "; ".join(in_words(decided, d) for d in active)
    reason = f"the card takes a new setting only on a reset: {what}"
    if way == "Reboot":
        part.steps.append(RestartHost(reason=reason, needs=first, interrupts=targets))
    for adapter in adapters.values() if way == "FirmwareReset" else ():
        pf = writer(decided, adapter)
        part.steps.append(
            ResetAdapter(pf=pf, command=commands.reset(pf), reason=reason, needs=first, interrupts=targets)
        )
    for draft in mine:
        needs = yes.keys[draft.policy] or first
        why = "before anybody gets a function of it"
        part.steps += [
            Verify(port=p, mode=decided.modes[p].desired, reason=why, needs=needs) for p in draft.ports
        ]
    drained = {(s.target, s.interface) for s in part.steps if isinstance(s, Detach)}
    back_after = "given back after the restart" if way == "Reboot" else "given back after the reset"
    for step in after(comes_back(decided.view.question, active, scope)):
        if scope is not None and (not isinstance(step, SetVfs | Attach) or step.port not in scope):
            continue
        back = isinstance(step, Attach) and (step.target, step.interface.name) in drained
        reason = back_after if back else step.reason
        part.steps.append(msgspec.structs.replace(step, needs=first, interrupts=(), reason=reason))


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


def interrupted(decided: Decided, local: Local, scope: frozenset[PortId] | None = None) -> tuple[str, ...]:
    """Every target that has an interface in the scope (None: on this host), or gets one in this same pass."""
    view = decided.view
    leaving = {(s.target, s.interface) for s in local.detach if s.forget and s.needs is None}
    have = {
        name
        for key, r in view.records.items()
        if key not in leaving and (scope is None or r.port in scope)
        for name in view.interrupted(r)
    }
    given = {s.target for s in local.attach if s.needs is None and (scope is None or s.port in scope)}
    return tuple(sorted(have | given))


def _change(decided: Decided, draft: Draft, way: Way, local: Local) -> ModeChange:
    view = decided.view
    spec = view.policies[draft.policy].spec
    everyone = interrupted(decided, local)
    targets = everyone
    if way == "FirmwareReset":
        targets = interrupted(decided, local, ports_of(adapters_of(decided, draft)))
    if way == "External" or spec.activation.drain == "Wait":
        targets = ()  # nobody is interrupted by us
    falls_back = way == "FirmwareReset" and spec.activation.method == "Auto" and spec.activation.drain == "Detach"
    return ModeChange(
        policy=draft.policy,
        generation=view.generation(draft.policy),
        wanted=view.wanted_mode(draft.policy),
        method=way,
        ports=tuple(draft.ports),
        settings=tuple(sorted(draft.settings, key=lambda s: (s.pf, _order(s.name)))),
        targets=targets,
        also_interrupts=tuple(t for t in everyone if t not in targets) if falls_back else (),
    )


def _own_traffic(decided: Decided) -> list[str]:
    return [
        f"{port_label(port.id)} ({', '.join(sorted({h.detail for h in host_own(port)}))})"
        for port in decided.view.ports.values()
        if host_own(port)
    ]


def _drain(decided: Decided, local: Local, needs: str | None, scope: frozenset[PortId] | None) -> list[Step]:
    """Take back everything in the scope that will be attached by then; the slots stay."""
    view, what = decided.view, "restart" if scope is None else "reset"
    leaving = {(s.target, s.interface) for s in local.detach if s.forget and s.needs is None}
    found: dict[tuple[str, str], Detach] = {}
    for key, record in view.records.items():
        if key not in leaving and view.live(record) and (scope is None or record.port in scope):
            found[key] = Detach(
                target=record.target,
                interface=record.interface,
                port=record.port,
                vf_index=record.vf_index,
                reason=f"the {what} takes it; its slot is kept",
                needs=needs,
                interrupts=view.interrupted(record),
            )
    if needs is not None:  # the steps without a yes come first: what they give is interrupted as well
        for step in local.attach:
            if step.needs is None and (scope is None or step.port in scope):
                found[step.target, step.interface.name] = Detach(
                    target=step.target,
                    interface=step.interface.name,
                    port=step.port,
                    vf_index=step.vf_index,
                    reason=f"the {what} takes it; its slot is kept",
                    needs=needs,
                    interrupts=(step.target,),
                )
    return [found[key] for key in sorted(found)]
