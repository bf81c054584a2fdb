"""The answer to "what is going on": one JSON value, made from the newest look and the store. Pure reading."""

from __future__ import annotations

from typing import Any

import msgspec

from .. import __version__
from ..model.documents import Target
from ..model.plan import Plan, Problem, Question
from ..model.records import Attachment, AttachmentState, ModeChange, Phase
from .reasons import why_not_connected
from .restoring import restoring
from .world import World

STATIONS = (
    Phase.PLANNED,
    Phase.APPROVED,
    Phase.INTENT,
    Phase.STAGED,
    Phase.DRAINING,
    Phase.RESTARTING,
    Phase.BOOTED,
    Phase.VERIFY_MODE,
    Phase.VERIFY_FABRIC,
    Phase.FUNCTIONS,
    Phase.REATTACH,
    Phase.DONE,
)


def status(world: World) -> dict[str, Any]:
    """The shape of ``GET /v1/status`` (docs/api.md)."""
    question, made = world.question, world.plan or Plan()
    attachments = {(a.target, a.interface): a for a in world.store.attachments()}
    changes = world.store.changes()
    generations = world.store.generations()
    on_the_way_back = restoring(world.store)
    host, broken = world.host_config()
    problems = list(made.problems)
    if broken:
        problems.insert(
            0, Problem(severity="refused", code="host-config-invalid", subject="host.yaml", text=broken)
        )
    problems += [_failure(subject, error.to_json()) for (_, subject), error in list(world.failures.items())]
    return {
        "host": question.inventory.host if question else "",
        "boot_id": question.inventory.boot_id if question else "",
        "version": __version__,
        "allow": msgspec.to_builtins(host.spec.allow),
        "frozen_by": world.store.frozen_by(),
        "settled": world.settled,
        "journal": [msgspec.to_builtins(operation) for operation in world.store.open_operations()],
        "policies": [
            {
                "name": policy.name,
                "generation": generations.get(policy.name, 0),
                "link_mode": policy.spec.link_mode.value,
                "ports": [d.port for d in made.decisions if d.policy == policy.name],
                "state": _policy_state(policy.name, changes, problems, policy.name in on_the_way_back),
                "problems": [msgspec.to_builtins(p) for p in problems if p.subject == f"policy {policy.name}"],
            }
            for policy in world.store.policies()
        ],
        "targets": [_target(target, attachments, problems, question, world) for target in world.store.targets()],
        "changes": [msgspec.to_builtins(c) | {"stations": stations(c)} for c in changes],
        "approvals": [msgspec.to_builtins(a) for a in made.approvals if a.key not in world.store.approvals()],
        "problems": [msgspec.to_builtins(p) for p in problems],
    }


def stations(change: ModeChange) -> list[dict[str, Any]]:
    """Every station with ``done``, ``now``, ``todo`` or ``failed``. A failed change is marked where it stood."""
    at = change.phase
    stopped = at in (Phase.FAILED, Phase.WAITING, Phase.ENDED)
    if stopped:
        at = change.stopped_at or Phase.INTENT
    reached = STATIONS.index(at) if at in STATIONS else 0  # a record that lost its station still shows the rest
    rows = []
    for index, phase in enumerate(STATIONS):
        if index < reached or change.phase is Phase.DONE:
            state = "done"
        elif index == reached:
            state = ("waiting" if change.phase is Phase.WAITING else "failed") if stopped else "now"
        else:
            state = "todo"
        row: dict[str, Any] = {"phase": phase.value, "state": state, "at": None, "detail": ""}
        if phase is Phase.APPROVED:
            row["detail"] = change.approved_by
        if index == reached:
            row["at"] = change.phase_since
            row["detail"] = change.detail
        rows.append(row)
    return rows


def _policy_state(
    name: str, changes: tuple[ModeChange, ...], problems: list[Problem], on_the_way_back: bool
) -> str:
    change = next((c for c in changes if c.policy == name), None)
    if change is not None and (change.open or change.phase is Phase.FAILED):
        return change.phase.value
    if any(p.severity == "refused" and p.subject == f"policy {name}" for p in problems):
        return "refused"
    if any(p.severity == "waiting" and p.subject == f"policy {name}" for p in problems):
        return "waiting"
    return "restoring" if on_the_way_back else "in force"


def _target(
    target: Target,
    attachments: dict[tuple[str, str], Attachment],
    problems: list[Problem],
    question: Question | None,
    world: World,
) -> dict[str, Any]:
    made = world.plan or Plan()
    interfaces = []
    for interface in target.spec.interfaces:
        kept = attachments.get((target.name, interface.name))
        error = world.failures.get(("Attach", f"{target.name} {interface.name}"))
        port = question.inventory.port(kept.port) if question and kept else None
        attached = kept is not None and kept.state is AttachmentState.ATTACHED
        why = None
        if question is not None and (error is not None or not attached):
            why = why_not_connected(target, interface.name, kept, question, made, problems, error)
        interfaces.append(
            {
                "name": interface.name,
                "port": kept.port if kept else None,
                "function": kept.function if kept else None,
                "vf_index": kept.vf_index if kept else None,
                "mode": port.observed_mode.value if port and port.observed_mode else None,
                "state": kept.state.value if kept else "waiting",
                "reason": why.text if why else (kept.reason if kept and not attached else ""),
                "code": why.code if why else "",
                "next_step": why.next_step if why else "",
                "since": kept.since if kept else None,
            }
        )
    connected = all(i["state"] == AttachmentState.ATTACHED.value for i in interfaces)
    seen = question.targets.get(target.name) if question else None
    return {
        "name": target.name,
        "policy": target.spec.policy,
        "interfaces": interfaces,
        "running": seen.state if seen else "unknown",
        "state": "attached" if connected else "waiting",
        "reason": "" if connected else next((str(i["reason"]) for i in interfaces if i["reason"]), ""),
    }


def _failure(subject: str, error: dict[str, Any]) -> Problem:
    return Problem(
        severity="refused" if error["kind"] == "Refused" else "waiting",
        code=error["code"],
        subject=subject,
        text=error["message"],
        rule=error.get("rule"),
        holder=error.get("holder", ""),
        next_step=error["next"],
    )
