"""The reconcile loop: look, move changes on, plan, take steps; until there is nothing to do, then wait for events.

One thread. Everything else (API, events) only stores wishes and wakes it, so steps never race with each other.
"""

from __future__ import annotations

import logging
import time

from ..discovery import known
from ..kernel import boot
from ..model.errors import LinkwrightError
from ..model.plan import Plan, Question
from ..model.records import AttachmentState, Phase
from ..planner import plan
from ..targets.recovery import finish_rebinds, recover
from . import restoring, uninstalling
from .engine import Engine
from .executor import Executor
from .hands import Hands
from .world import World

log = logging.getLogger(__name__)

TICK_S = 300.0  # the safety look when no event came
RETRY_S = 15.0  # failed steps are tried again after this, besides at every event that concerns them
MOST_PASSES = 200  # a bound on one burst; a plan that never empties is a fault, said in the log


class Loop:
    """``run`` until stopped, or ``settle`` once."""

    def __init__(self, world: World) -> None:
        self._world = world
        hands = Hands(world)
        self._hands = hands
        self._engine = Engine(world, hands)
        self._executor = Executor(world, hands, self._engine)
        self._recovered = False

    def run(self) -> None:
        reasons: set[str] = set()
        while not self._world.wakeups.stopping:
            if reasons - {"link", "work"}:
                self._world.failures.clear()
            self._work()
            asked, self._world.settled = self._world.asked, False
            self.settle()
            if asked == self._world.asked and not self._world.wakeups.stopping:
                self._world.settled = not self._in_flight()
                self._world.progress.emit("settled", settled=not self._in_flight())
            reasons = self._world.wakeups.wait(self._pause())
            if not reasons:
                self._world.failures.clear()

    def _work(self) -> None:
        """What others asked the loop to do between two passes."""
        while not self._world.work.empty():
            work, answer = self._world.work.get()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(work(self._hands))
            except Exception as error:  # the one who asked gets it
                answer.set_exception(error)

    def settle(self) -> None:
        """Passes until one changes nothing."""
        if not self._recovered:
            system, store = self._world.system, self._world.store
            for said in [*finish_rebinds(system, store), *recover(store, boot.boot_id(system))]:
                log.info("recovered: %s", said)
            self._recovered = True
        for _ in range(MOST_PASSES):
            if self._world.wakeups.stopping:
                return
            try:
                if not self.one_pass():
                    return
            except LinkwrightError as error:
                log.error("pass failed: %s", error)
                self._world.progress.emit("failed", error.where, f"{error.kind}: {error}")
                self._world.failures[("pass", error.code)] = error
                return
            except OSError as error:
                log.exception("pass failed")
                self._world.failures[("pass", "kernel-error")] = LinkwrightError(
                    str(error), code="kernel-error", next_step="See the agent's log."
                )
                return
        log.error("still not settled after %d passes; waiting for the next event", MOST_PASSES)

    def one_pass(self) -> bool:
        question = self._world.look()
        self._world.question = question
        if self._hands.forget_vanished(question):
            return True
        self._remember_cards(question)
        if self._engine.advance(question):
            return True
        made = plan(question)
        self._world.plan = made
        self._world.failures.pop(("pass", "kernel-error"), None)
        acted = self._executor.take(made, question)
        if not acted:
            acted = self._engine.settle(made, question)
        if not acted:
            acted = restoring.finish(self._world, made, question)
        if not acted:
            acted = uninstalling.carry_on(self._world, self._hands, made, question)
        if not acted:
            self._drop_used_approvals(made, question)
        return acted

    def _remember_cards(self, question: Question) -> None:
        """First sight of a card, so that another one in its place is noticed: a record, no change of the host."""
        fresh = known.to_remember(question.inventory, self._world.store.cards(), question.now)
        if fresh:
            self._world.store.put_cards(fresh)

    def prepare_slots(self, question: Question) -> None:
        """Boot phase: every assigned VF has its identity before its target starts."""
        if not question.desired.host.spec.allow.functions or question.desired.frozen_by:
            return
        interfaces = {(t.name, i.name): i for t in question.desired.targets for i in t.spec.interfaces}
        for attachment in question.records.attachments:
            interface = interfaces.get((attachment.target, attachment.interface))
            if interface is None or attachment.state is not AttachmentState.ASSIGNED:
                continue
            try:
                self._hands.prepare_slot(attachment, interface, question)
            except LinkwrightError as error:
                log.error("%s %s: %s", attachment.target, attachment.interface, error)

    def _drop_used_approvals(self, made: Plan, question: Question) -> None:
        """A yes is for one thing once: when nothing is left to do, what was agreed to is done or moot."""
        if question.records.approvals and not (made.steps or made.withheld or self._world.failures):
            self._world.store.remove_approvals(question.records.approvals)

    def _in_flight(self) -> bool:
        return any(c.open and c.phase is not Phase.WAITING for c in self._world.store.changes())

    def _pause(self) -> float:
        pause = TICK_S
        if self._world.failures:
            pause = min(pause, RETRY_S)
        if self._engine.look_again_s is not None:
            pause = min(pause, self._engine.look_again_s)
        return pause


def boot_phase(world: World, loop: Loop, timeout_s: float) -> bool:
    """Recover as far as needed before containers and guests start: modes verified, VFs there with their identity.

    Bounded: after ``timeout_s`` the boot goes on and the daemon finishes the rest. True when nothing is open that
    a target would have to wait for.
    """
    end = time.monotonic() + timeout_s
    while True:
        loop.settle()
        waiting = [
            c for c in world.store.changes() if c.open and c.phase in (Phase.VERIFY_MODE, Phase.VERIFY_FABRIC)
        ]
        left = end - time.monotonic()
        if not waiting or left <= 0 or world.wakeups.stopping:
            break
        world.wakeups.wait(min(left, loop._pause()))
    if world.question is not None:
        loop.prepare_slots(world.look())
    return not waiting
