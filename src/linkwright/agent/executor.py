"""Takes the steps of a plan that may be taken now, in the plan's order, and remembers why others were not.

A step fails alone: its error is kept for status, later steps of the same port or target are left for the next
pass, all others go on (interlock rule 7). The plan is never edited; the next pass makes a new one.
"""

from __future__ import annotations

import logging
import time

from msgspec.structs import replace

from ..model.errors import LinkwrightError, Vanished
from ..model.plan import Attach, Detach, Plan, Question, SetVfs, WriteFirmware
from ..model.records import HistoryEntry
from ..planner.approvals import change_key
from ..planner.attach import wish_of
from . import backup
from .asfound import keep_settings, keep_vfs
from .engine import Engine
from .hands import Hands
from .world import World

log = logging.getLogger(__name__)

Taken = SetVfs | Attach | Detach | WriteFirmware


class Executor:
    """Used from the reconcile loop only."""

    def __init__(self, world: World, hands: Hands, engine: Engine) -> None:
        self._world = world
        self._hands = hands
        self._engine = engine

    def take(self, plan: Plan, question: Question) -> bool:
        """Keep the slots, begin approved changes, else take the unlocked steps. True when something was done."""
        self._keep_slots(plan, question)
        if self._begin_changes(plan, question):
            return True
        spoiled: set[str] = set()
        acted = False
        in_changes = {setting for change in plan.changes for setting in change.settings}
        for step in plan.steps:
            if not isinstance(step, SetVfs | Attach | Detach | WriteFirmware):
                continue
            if step.needs is not None and step.needs not in question.records.approvals:
                continue
            if isinstance(step, WriteFirmware) and in_changes & set(step.settings):
                continue  # the engine writes it, after the change's intent is stored
            subject, scope = _subject(step), step.pf if isinstance(step, WriteFirmware) else step.port
            if scope in spoiled or (type(step).__name__, subject) in self._world.failures:
                spoiled.add(scope)
                continue
            if isinstance(step, SetVfs) and acted:
                return True  # holders were just released: VFs are made after a fresh look
            self._world.progress.emit("step", subject, describe(step))
            try:
                self._take(step, question)
            except Vanished as error:
                log.info("%s: %s", subject, error)
                self._fail(step, subject, error)
                return True  # the world is not what the plan saw
            except LinkwrightError as error:
                log.error("%s: %s", subject, error)
                self._fail(step, subject, error)
                spoiled.add(scope)
                continue
            except OSError as error:
                log.exception("%s", subject)
                self._fail(
                    step,
                    subject,
                    LinkwrightError(
                        str(error), code="kernel-error", where=subject, next_step="See the agent's log."
                    ),
                )
                spoiled.add(scope)
                continue
            acted = True
            self._world.progress.emit("done", subject, describe(step))
            self._note(step, subject)
            if isinstance(step, SetVfs):
                return True  # functions came and went: look before anything is attached to them
        return acted

    def _take(self, step: Taken, question: Question) -> None:
        match step:
            case WriteFirmware():
                backup.keep(self._world, step.pf)
                keep_settings(self._world.store, step.settings)
                self._world.firmware.write(step.pf, {s.name: s.value for s in step.settings})
            case SetVfs():
                keep_vfs(self._world.store, step.port, step.before)
                self._hands.set_vfs(step, question)
            case Attach():
                self._keep_wish(step)
                self._hands.attach(step, question)
            case Detach():
                self._hands.detach(step, question)

    def _keep_wish(self, step: Attach) -> None:
        """What it is given for, and whose an RDMA name is, stand in the record before the device has them."""
        kept, wish = self._world.store.attachment(step.target, step.interface.name), wish_of(step.interface)
        if kept is not None and (kept.wish, kept.rdma_name) != (wish, step.interface.rdma_name):
            self._world.store.put_attachment(replace(kept, wish=wish, rdma_name=step.interface.rdma_name))

    def _fail(self, step: Taken, subject: str, error: LinkwrightError) -> None:
        self._world.failures[(type(step).__name__, subject)] = error
        self._world.progress.emit("failed", subject, f"{error.kind}: {error}")

    def _note(self, step: Taken, subject: str) -> None:
        self._world.store.add_history(
            HistoryEntry(at=time.time(), who="agent", what=f"{describe(step)}: {subject}", why=step.reason)
        )

    def _keep_slots(self, plan: Plan, question: Question) -> None:
        """Store the slot of each declared interface before it is used, so that it stays the same one."""
        known = {(a.target, a.interface): a for a in question.records.attachments}
        fresh = []
        for wanted in plan.assignments:
            kept = known.get((wanted.target, wanted.interface))
            if kept is None:
                fresh.append(wanted)
            elif (kept.port, kept.vf_index) == (wanted.port, wanted.vf_index) and (
                (kept.policy, kept.generation) != (wanted.policy, wanted.generation)
            ):
                fresh.append(replace(kept, policy=wanted.policy, generation=wanted.generation))
        if fresh and question.desired.host.spec.allow.functions and not question.desired.frozen_by:
            with self._world.store.transaction():
                for attachment in fresh:
                    self._world.store.put_attachment(attachment)

    def _begin_changes(self, plan: Plan, question: Question) -> bool:
        """Those that wait for no yes: a key that was given is not among the plan's approvals any more."""
        missing = {a.key for a in plan.approvals}
        ready = [change for change in plan.changes if change_key(change) not in missing]
        given = self._world.store.approved_by() if ready else {}
        for change in ready:
            self._engine.begin(change, question, who=given.get(change_key(change)) or "approval: Auto")
        return bool(ready)


def _subject(step: Taken) -> str:
    match step:
        case SetVfs():
            return step.port
        case WriteFirmware():
            return step.pf
        case Attach():
            return f"{step.target} {step.interface.name}"
        case Detach():
            return f"{step.target} {step.interface}"


def describe(step: Taken) -> str:
    match step:
        case SetVfs():
            return f"VFs {step.before} → {step.count}"
        case Attach():
            return "attach" if step.vf_index is None else f"attach VF {step.vf_index}"
        case Detach():
            return "detach"
        case WriteFirmware():
            return "write " + " ".join(f"{s.name}={s.value}" for s in step.settings)
