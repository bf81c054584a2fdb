"""``linkwright uninstall --restore``: this host as it was found. Targets released, VF counts, Next Boot.

Asked for once, it is carried out by the reconcile loop: the documents are gone, so the ordinary plan releases
every target; then what planner.undo says is done, one step a pass. Nothing is restarted: the cards load their old
values at whatever restart comes next.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from ..model.errors import LinkwrightError, Refused
from ..model.plan import Plan, Problem, Question, SetVfs, WriteFirmware
from ..model.records import AttachmentState, HistoryEntry
from ..planner.decided import moving
from ..planner.undo import undo_steps
from ..store.db import Store
from . import backup
from .asfound import as_found, taken_back
from .hands import Hands
from .restoring import NOTE as RESTORING
from .world import World

NOTE = "uninstalling"


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What an uninstall would do now. ``key`` names whom it interrupts; ``running``: it is under way."""

    policies: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    interrupts: tuple[str, ...] = ()
    steps: tuple[SetVfs | WriteFirmware, ...] = ()
    problems: tuple[Problem, ...] = ()
    running: bool = False
    key: str = ""


def running(store: Store) -> str:
    """Who asked for it and why, while it is under way; empty otherwise."""
    return store.notes(NOTE).get("", "")


def offer(world: World, question: Question) -> Offer:
    """``steps`` as they follow once every target is released."""
    held = sorted({a.target for a in question.records.attachments if a.state is not AttachmentState.ASSIGNED})
    steps, problems = undo_steps(_released(question), as_found(world.store))
    return Offer(
        policies=tuple(sorted(p.name for p in question.desired.policies)),
        targets=tuple(sorted(t.name for t in question.desired.targets)),
        interrupts=tuple(held),
        steps=tuple(steps),
        problems=tuple(problems),
        running=bool(running(world.store)),
        key=f"uninstall:{','.join(held)}",
    )


def _released(question: Question) -> Question:
    """The host without our attachments: what undo_steps may count on by then."""

    def free(value: Any) -> Any:
        return msgspec.structs.replace(value, holders=tuple(h for h in value.holders if not h.ours))

    adapters = tuple(
        msgspec.structs.replace(
            a,
            ports=tuple(
                msgspec.structs.replace(p, pf=free(p.pf), vfs=tuple(free(f) for f in p.vfs)) for p in a.ports
            ),
        )
        for a in question.inventory.adapters
    )
    return msgspec.structs.replace(
        question,
        inventory=msgspec.structs.replace(question.inventory, adapters=adapters),
        records=msgspec.structs.replace(question.records, attachments=()),
    )


def begin(world: World, question: Question, key: str, who: str, why: str) -> None:
    """Store it whole: every document goes, and the way back begins. Raises Refused."""
    offered, spec = offer(world, question), question.desired.host.spec
    change = next((c for c in question.records.changes if moving(c)), None)
    if question.desired.frozen_by:
        raise _refused("frozen", f"this host is frozen by {question.desired.frozen_by}", "linkwright unfreeze")
    if change is not None:
        text = f"the change of policy {change.policy} is not finished ({change.phase.value})"
        raise _refused("change-in-progress", text, "Wait for it: linkwright status --watch")
    lacks = [n for n in ("functions", "firmware") if not getattr(spec.allow, n)] if _anything(offered) else []
    if lacks:
        text = f"/etc/linkwright/host.yaml does not allow {' and '.join(lacks)}"
        line = ", ".join(f"{name}: true" for name in lacks)
        raise _refused("not-allowed", text, f"Write in it: spec: {{allow: {{{line}}}}}, and ask again.")
    if key != offered.key:
        who_is = ", ".join(offered.interrupts) or "nobody"
        raise _refused("plan-changed", f"it would interrupt {who_is} now", "Look again: linkwright uninstall")
    store = world.store
    with store.transaction():
        store.put_note(NOTE, f"{who}: {why}" if why else who)
        for policy in store.policies():
            store.delete_policy(policy.name)
            store.drop_note(f"{RESTORING}{policy.name}")
            _note(store, who, f"delete LinkPolicy {policy.name}", why or "uninstall --restore", policy)
        for target in store.targets():
            store.delete_target(target.name)
            _note(store, who, f"delete Target {target.name}", why or "uninstall --restore", target)
        store.add_history(HistoryEntry(at=time.time(), who=who, what="uninstall --restore", why=why))


def _anything(offered: Offer) -> bool:
    return bool(offered.steps or offered.targets or offered.interrupts)


def _note(store: Store, who: str, what: str, why: str, document: object) -> None:
    before = msgspec.json.encode(document).decode()
    store.add_history(HistoryEntry(at=time.time(), who=who, what=what, why=why, before=before))


def _refused(code: str, text: str, next_step: str) -> Refused:
    return Refused(text, rule=4, code=code, where="uninstall", next_step=next_step)


def carry_on(world: World, hands: Hands, made: Plan, question: Question) -> bool:
    """One step of the way back, after the plan has released the targets. True when something was done."""
    asked = running(world.store)
    if not asked or made.steps or question.records.attachments or question.desired.frozen_by:
        return False
    steps, _ = undo_steps(question, as_found(world.store))
    for step in steps:
        subject = step.port if isinstance(step, SetVfs) else step.pf
        if ("uninstall", subject) in world.failures:
            continue
        try:
            what = _take(world, hands, step, question)
        except LinkwrightError as error:
            world.failures["uninstall", subject] = error
            world.progress.emit("failed", subject, f"{error.kind}: {error}")
            continue
        world.progress.emit("done", subject, what)
        entry = HistoryEntry(at=time.time(), who="agent", what=f"{what}: {subject}", why=step.reason)
        world.store.add_history(entry)
        return True
    if steps:
        return False  # what failed is tried again with the next look
    with world.store.transaction():
        world.store.drop_note(NOTE)
        taken_back(world.store, None)
        world.store.add_history(
            HistoryEntry(at=time.time(), who="agent", what="this host is as it was found", why=asked)
        )
    return True


def _take(world: World, hands: Hands, step: SetVfs | WriteFirmware, question: Question) -> str:
    if isinstance(step, SetVfs):
        hands.set_vfs(step, question)
        return f"VFs {step.before} → {step.count}"
    backup.keep(world, step.pf)
    world.firmware.write(step.pf, {s.name: s.value for s in step.settings})
    return "put back " + " ".join(f"{s.name}={s.value}" for s in step.settings)
