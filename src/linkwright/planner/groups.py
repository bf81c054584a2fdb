"""Targets that talk to each other: one mode, one fabric, one change (interlock rule 8).

The policies of a group change together or not at all. A change that would leave members of a group in different
modes is refused with the members named; what they have now is left as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from ..model.plan import Problem
from ..model.values import PortId, port_label
from .decided import Decided


@dataclass(frozen=True)
class Group:
    """``ports``: where the members' interfaces are, with the member that is there. ``staying``: those of them
    whose function is left as it is, so that its mode is not this plan's to change."""

    name: str
    members: tuple[str, ...]
    policies: tuple[str, ...]
    ports: dict[PortId, str]
    staying: dict[PortId, str]


def groups(decided: Decided) -> list[Group]:
    """Groups with at least two members on this host, by name."""
    view = decided.view
    members: dict[str, list[str]] = {}
    for target in view.targets.values():
        if target.spec.group is not None and target.spec.policy in view.policies:
            members.setdefault(target.spec.group, []).append(target.name)
    return [
        Group(
            name=name,
            members=tuple(names),
            policies=tuple(sorted({view.targets[n].spec.policy for n in names})),
            ports={port: key[0] for key, port in decided.placement.port_of.items() if key[0] in names},
            staying={r.port: key[0] for key, r in decided.placement.staying.items() if key[0] in names},
        )
        for name, names in sorted(members.items())
        if len(names) > 1
    ]


def disagreements(decided: Decided, found: list[Group]) -> tuple[dict[str, Problem], list[Problem]]:
    """Policies whose mode may not change because of a group, each with the reason; and all reasons."""
    blocked: dict[str, Problem] = {}
    problems: list[Problem] = []
    for group in found:
        why = _modes_differ(decided, group) or _fabrics_differ(decided, group) or _cannot_follow(decided, group)
        if why is not None:
            blocked = dict.fromkeys(group.policies, why) | blocked
            problems.append(why)
    return blocked, problems


def bound_to(found: list[Group], policy: str) -> set[str]:
    """The policies that must change with this one, itself included: groups that share a policy are one unit."""
    unit = {policy}
    while True:
        more = unit.union(*(g.policies for g in found if unit & set(g.policies)))
        if more == unit:
            return unit
        unit = more


def told_to_policy(policy: str, why: Problem) -> Problem:
    """A group's refusal, said to a policy whose change it stops."""
    return msgspec.structs.replace(why, subject=f"policy {policy}", text=f"{why.subject}: {why.text}")


def held_with(
    found: list[Group], policy: str, stopped: Mapping[str, Problem], also: Collection[str]
) -> Problem | None:
    """Why this policy's change waits for another of its unit that may not begin."""
    other = next((p for p in sorted(bound_to(found, policy)) if p != policy and (p in stopped or p in also)), None)
    if other is None:
        return None
    why = f" ({stopped[other].code})" if other in stopped else ""
    return Problem(
        severity="waiting",
        code="group-held",
        rule=8,
        subject=f"policy {policy}",
        text=f"its targets talk to those of policy {other}, whose change cannot begin{why}; they change together.",
        next_step=f"Settle policy {other} first: linkwright status",
    )


def _refused(group: Group, code: str, text: str, next_step: str) -> Problem:
    return Problem(
        severity="refused", code=code, rule=8, subject=f"group {group.name}", text=text, next_step=next_step
    )


def _modes_differ(decided: Decided, group: Group) -> Problem | None:
    view = decided.view
    wants = {name: view.targets[name].spec.policy for name in group.members}
    if len({view.policies[p].spec.link_mode for p in wants.values()}) < 2:
        return None
    said = ", ".join(f"{n} {view.policies[p].spec.link_mode.value} (policy {p})" for n, p in wants.items())
    return _refused(
        group,
        "group-mode",
        f"its members talk to each other and need one mode, but: {said}; no mode is changed for them.",
        "Give their policies the same linkMode, or take one of the targets out of the group.",
    )


def _fabrics_differ(decided: Decided, group: Group) -> Problem | None:
    """Two members whose fabrics are all known and have none in common cannot reach each other."""
    fabrics: dict[str, set[str | None]] = {}
    for key, port in decided.placement.port_of.items():
        if key[0] in group.members:
            fabrics.setdefault(key[0], set()).add(decided.view.ports[port].fabric)
    known = sorted((n, f) for n, f in fabrics.items() if None not in f)
    for number, (name, here) in enumerate(known):
        for other, there in known[number + 1 :]:
            if not here & there:
                return _refused(
                    group,
                    "group-fabric",
                    f"{name} is on {_words(here)}, {other} on {_words(there)}: they cannot reach each other; "
                    "no mode is changed for them.",
                    "Name the same fabric in spec.interfaces[].fabric of both, or correct fabrics in host.yaml.",
                )
    return None


def _cannot_follow(decided: Decided, group: Group) -> Problem | None:
    """A member's port that cannot come along, while another member's port would change."""
    modes = {port: decided.modes[port] for port in group.ports}
    if not any(m.activate for m in modes.values()):
        return None
    stuck = {p: group.ports[p] for p, m in modes.items() if m.problem is not None} | group.staying
    if not stuck:
        return None
    port, member = min(stuck.items())
    return _refused(
        group,
        "group-incomplete",
        f"{', '.join(group.members)} talk to each other, and the mode of {port_label(port)}, which {member} has, "
        "cannot change now; none of them changes.",
        f"See what is said of {port_label(port)}, or take {member} out of the group.",
    )


def _words(fabrics: set[str | None]) -> str:
    return " and ".join(sorted(f or "an unknown fabric" for f in fabrics))
