"""Deciding, without doing: ``plan(question)`` is a pure function of one value (interlock rule 9).

::

    selectors   a nicSelector and a port, field by field
    matching    which policy each port belongs to; protection; conflicts       rules 4, 7
    modes       the four readings compared                                     S4
    slots       a port for each declared interface                             S2, 1:N
    vfs         PF or VFs, VF indexes and counts                               rule 1
    attach      steps that need no restart                                     rule 2
    modechange  what the firmware must be told, and whether it may be          rules 2, 3
    groups      targets that talk to each other change together                rule 8
    activation  restart, reset or somebody else's restart; windows             rules 2, 3
    restart     the steps through one restart of the host, or through resets   rules 2, 3
    gates       what host.yaml and a freeze hold back                          rule 4

The same question gives the same plan, in whatever order its parts come.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..model.plan import Plan, Problem, Question, Step
from ..model.records import Attachment
from .activation import forbidden_by_use
from .attach import local_steps
from .decided import Decided, decide
from .gates import hold_back
from .groups import Group, disagreements, groups, held_with, told_to_policy
from .modechange import Draft, drafts, forbidden
from .reshape import Local
from .restart import activations, writes
from .view import view

__all__ = ["plan"]

PUT_BACK = "it is staged and no policy wants it; putting it back needs no restart"
_SEVERITY = {"refused": 0, "waiting": 1, "note": 2}


def plan(question: Question) -> Plan:
    """What to do, in order, with reasons, and what stands in the way. Raises nothing on any valid question."""
    decided = decide(view(question))
    local = local_steps(decided)
    wanted, problems = drafts(decided)
    put_back = [s for d in wanted for s in d.put_back]
    found = groups(decided)
    allowed, why_not = _may_begin(decided, [d for d in wanted if d.settings], found)
    activated = activations(decided, local, allowed, found, _local_only)
    held = hold_back(decided, local, activated.parts, writes(put_back, PUT_BACK, needs=None))
    said = (*decided.problems, *local.problems, *problems, *why_not, *activated.problems, *held.problems)
    return Plan(
        steps=held.steps,
        decisions=decided.decisions(),
        changes=held.changes,
        assignments=_assignments(decided, local),
        problems=_ordered(said),
        approvals=held.approvals,
        untouched=tuple(f"{port} ({why})" for port, why in sorted(_untouched(decided).items())),
        withheld=held.withheld,
        matches=decided.matching.explained(),
    )


def _may_begin(decided: Decided, wanted: list[Draft], found: list[Group]) -> tuple[list[Draft], list[Problem]]:
    """The changes that no rule forbids, each with all that must change with it; and why others may not begin."""
    blocked, problems = disagreements(decided, found)
    stopped: dict[str, Problem] = {}
    for draft in wanted:
        why = forbidden(decided, draft) or forbidden_by_use(decided, draft)
        if why is not None:
            stopped[draft.policy] = why
    allowed: list[Draft] = []
    for draft in wanted:
        if draft.policy in stopped:
            problems.append(stopped[draft.policy])
            continue
        if draft.policy in blocked:
            problems.append(told_to_policy(draft.policy, blocked[draft.policy]))
            continue
        held = held_with(found, draft.policy, stopped, blocked)
        if held is not None:
            problems.append(held)
        else:
            allowed.append(draft)
    return allowed, problems


def _local_only(question: Question) -> Iterable[Step]:
    local = local_steps(decide(view(question)))
    return [*local.vfs, *local.attach]  # what was there was taken back before the restart


def _untouched(decided: Decided) -> dict[str, str]:
    return {port.replace("/", " p"): why for port, why in decided.matching.protected.items()}


def _assignments(decided: Decided, local: Local) -> tuple[Attachment, ...]:
    """The slot of every declared interface. A record that is live or waits for a yes keeps the slot it has."""
    seen = decided.view
    out: list[Attachment] = []
    for key, (target, interface) in seen.declared().items():
        record, port = seen.records.get(key), decided.placement.port_of.get(key)
        if port is None or key not in decided.shapes[port].slots:
            out += [record] if record is not None else []
            continue
        index = decided.shapes[port].slots[key]
        generation = seen.generation(target.spec.policy)
        if record is None and key not in local.pending:
            function = seen.function(port, index)
            out.append(
                Attachment(
                    target=target.name,
                    interface=interface.name,
                    policy=target.spec.policy,
                    generation=generation,
                    port=port,
                    vf_index=index,
                    adapter=seen.adapters[port].id,
                    function=function.address if function is not None else None,
                    since=seen.question.now,
                )
            )
        elif record is not None:
            same = (record.port, record.vf_index) == (port, index)
            out.append(msgspec.structs.replace(record, generation=generation) if same else record)
    return tuple(out)


def _ordered(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Each once; refusals first."""
    return tuple(
        sorted(set(problems), key=lambda p: (_SEVERITY[p.severity], p.subject, p.code, p.text))
    )
