"""Why an interface is not connected: one answer, the nearest cause first. Pure: from what was planned and seen.

The order is the order in which a person would have to clear things away: what just failed, what is wrong with the
target itself, what holds the whole host, a mode change under way, a yes that is missing, its policy, its group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..model.documents import Target
from ..model.errors import LinkwrightError
from ..model.plan import Plan, Problem, Question
from ..model.records import Attachment, AttachmentState, ModeChange, Phase
from ..model.values import port_label

BEFORE_RESTART = (Phase.INTENT, Phase.STAGED, Phase.DRAINING, Phase.RESTARTING)
POLICY_KNOWS_MORE = ("no-port", "no-usable-port")
_WORST_FIRST = {"refused": 0, "waiting": 1, "note": 2}


def why_not_connected(
    target: Target,
    interface: str,
    kept: Attachment | None,
    question: Question,
    made: Plan,
    problems: Sequence[Problem],
    failure: LinkwrightError | None = None,
) -> Problem | None:
    """The one cause to show. ``kept``: its record; ``problems``: the plan's, and what else stands in the way now.
    None: nothing is in the way, it is connected in the next pass."""
    subject = f"target {target.name}"
    if failure is not None:
        return _said(subject, failure.code, failure.message, failure.next_step)
    policy = [p for p in problems if p.subject == f"policy {target.spec.policy}" and p.severity != "note"]
    policy.sort(key=lambda p: _WORST_FIRST[p.severity])
    own = _own(target, interface, problems)
    if own is not None:
        return policy[0] if own.code in POLICY_KNOWS_MORE and policy else own
    if kept is not None and kept.state is AttachmentState.QUARANTINED:
        text = f"{interface} is quarantined: {kept.reason or 'its release failed'}"
        return _said(subject, "quarantined", text, "Look: linkwright audit")
    found = (
        _host(target, question, problems)
        or _change(target, kept, question.records.changes, question.inventory.boot_id)
        or _yes(target, kept, made, subject)
        or (policy[0] if policy else None)
        or _group(target, problems)
    )
    if found is None and kept is not None and kept.state is AttachmentState.ATTACHING:
        return _said(subject, "attaching", f"{interface} is being attached", "")
    return found


def _own(target: Target, interface: str, problems: Iterable[Problem]) -> Problem | None:
    """The target's problem that is about this interface, else one that is about none in particular."""
    mine = [p for p in problems if p.subject == f"target {target.name}" and p.severity != "note"]
    mine.sort(key=lambda p: _WORST_FIRST[p.severity])
    others = {i.name for i in target.spec.interfaces} - {interface}
    named = [p for p in mine if _names(p.text, interface)]
    general = [p for p in mine if not any(_names(p.text, other) for other in others)]
    return next(iter([*named, *general]), None)


def _names(text: str, interface: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(interface)}(?![\w-])", text) is not None


def _host(target: Target, question: Question, problems: Iterable[Problem]) -> Problem | None:
    """A broken host.yaml, a freeze, or a host that allows no work on functions."""
    for code in ("host-config-invalid", "frozen"):
        found = next((p for p in problems if p.code == code), None)
        if found is not None:
            return found
    if question.desired.frozen_by:
        return _said("this host", "frozen", f"frozen by {question.desired.frozen_by}", "linkwright unfreeze")
    if not question.desired.host.spec.allow.functions:
        return _said(
            f"target {target.name}",
            "not-allowed",
            "this host only observes: /etc/linkwright/host.yaml does not allow functions",
            "To allow it, write in /etc/linkwright/host.yaml: spec: {allow: {functions: true}}",
        )
    return None


def _change(
    target: Target, kept: Attachment | None, changes: Iterable[ModeChange], boot_id: str
) -> Problem | None:
    """A mode change on its port, or one whose restart is still to come on this host."""
    for change in changes:
        concerns = change.policy == target.spec.policy or (kept is not None and kept.port in change.ports)
        subject = f"policy {change.policy}"
        where = ", ".join(map(port_label, change.ports)) or "this host"
        if concerns and change.phase in (Phase.FAILED, Phase.WAITING):
            word = "failed" if change.phase is Phase.FAILED else "waits"
            return _said(
                subject,
                change.reason_code or "change-failed",
                f"the change of {where} to {change.wanted.value} {word}: {change.detail}",
                change.next_step or "Look: linkwright status",
            )
        if concerns and change.open and change.phase not in (Phase.PLANNED, Phase.APPROVED):
            detail = f": {change.detail}" if change.detail else ""
            text = f"{where} is changing to {change.wanted.value} ({change.phase.value.replace('-', ' ')}{detail})"
            return _said(subject, "change-in-progress", text, "Look: linkwright status --watch")
    for change in changes:
        if change.phase in BEFORE_RESTART and change.boot_id in (None, boot_id):
            text = f"this host is about to restart for policy {change.policy}; it is given back afterwards"
            return _said(f"policy {change.policy}", "restart-ahead", text, "Look: linkwright status --watch")
    return None


def _yes(target: Target, kept: Attachment | None, made: Plan, subject: str) -> Problem | None:
    """A yes that is missing for its policy's change or for another form of its port."""
    ports = {d.port for d in made.decisions if d.policy == target.spec.policy}
    if kept is not None:
        ports = {kept.port}
    for approval in made.approvals:
        kind, _, rest = approval.key.partition(":")
        mine = rest.split(":", 1)[0] == target.spec.policy
        if mine or (kind == "convert" and any(rest.startswith(f"{port}:") for port in ports)):
            return _said(
                subject,
                "approval-needed",
                f"waits for a yes: {approval.text}",
                f"Say yes: linkwright approve {target.spec.policy}",
            )
    return None


def _group(target: Target, problems: Iterable[Problem]) -> Problem | None:
    if target.spec.group is None:
        return None
    return next((p for p in problems if p.subject == f"group {target.spec.group}"), None)


def _said(subject: str, code: str, text: str, next_step: str) -> Problem:
    return Problem(severity="waiting", code=code, subject=subject, text=text, next_step=next_step)
