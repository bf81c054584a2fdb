"""Audit on request: looking in any thread, repairing in the reconcile loop, so that it never races with a step."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from .. import audit
from ..audit import Finding
from ..audit.repair import Repairer
from ..model.errors import Busy, LinkwrightError, Refused
from ..model.plan import Plan, Question
from ..model.records import HistoryEntry
from ..planner import plan
from .hands import Hands
from .world import World

log = logging.getLogger(__name__)

PATIENCE_S = 20.0


def findings(world: World) -> dict[str, Any]:
    """The shape of ``GET /v1/audit``. Looked at between two steps of the loop, so that nothing is half-way in it;
    while the loop has something long to do, beside it, and then ``settled`` is false."""
    try:
        question, made, seen, found = world.in_loop(lambda hands: _look(world), PATIENCE_S)
    except Busy:
        question, made, seen, found = _look(world)
    return _answer(world, question, made, seen, found)


def repair(world: World, keys: Sequence[str], who: str, why: str) -> dict[str, Any]:
    """``POST /v1/audit``: put right what is safe, and the named findings too. One that fails stops no other."""
    repaired, failed = world.in_loop(lambda hands: _repair(world, hands, frozenset(keys), who, why))
    answer = findings(world) | {"repaired": repaired, "failed": failed}
    world.ask("audit")
    return answer


def _look(world: World) -> tuple[Question, Plan, audit.Seen, tuple[Finding, ...]]:
    question, seen = world.look(fresh=True), audit.look(world.system)
    made = plan(question)
    return question, made, seen, audit.findings(question, made, seen, world.store.open_operations())


def _answer(
    world: World, question: Question, made: Plan, seen: audit.Seen, found: Sequence[Finding]
) -> dict[str, Any]:
    """``planned``: what the agent would do now by itself; empty when it has come to rest."""
    return {
        "host": question.inventory.host,
        "settled": world.settled,
        "planned": [msgspec.to_builtins(step) for step in made.steps if step.needs is None],
        "findings": [msgspec.to_builtins(f) | {"key": f.key} for f in found],
    }


def _repair(
    world: World, hands: Hands, keys: frozenset[str], who: str, why: str
) -> tuple[list[dict[str, str]], list[dict[str, Any]]]:
    question, _, seen, found = _look(world)
    _allowed(question)
    wanted = [f for f in found if f.repair and (f.safe or f.key in keys)]
    repaired: list[dict[str, str]] = []
    failed: list[dict[str, Any]] = []
    for finding in wanted:
        world.progress.emit("step", finding.where, f"repair: {finding.repair}")
        try:
            Repairer(hands.context(question), world.firmware, question, seen).repair(finding)
        except (LinkwrightError, OSError) as error:
            log.error("%s: %s", finding.key, error)
            body = error.to_json() if isinstance(error, LinkwrightError) else {"message": str(error)}
            failed.append(body | {"key": finding.key})
            continue
        repaired.append({"key": finding.key, "repair": finding.repair})
        world.store.add_history(
            HistoryEntry(at=time.time(), who=who, what=f"audit repair: {finding.where}: {finding.repair}", why=why)
        )
    return repaired, failed


def _allowed(question: Question) -> None:
    if question.desired.frozen_by:
        raise Refused(
            f"this host is frozen ({question.desired.frozen_by})",
            rule=4,
            code="frozen",
            next_step="Look at the findings, then: linkwright unfreeze, and repair again.",
        )
    if not question.desired.host.spec.allow.functions:
        raise Refused(
            "host.yaml does not allow functions to be changed",
            rule=4,
            code="functions-not-allowed",
            where="/etc/linkwright/host.yaml",
            next_step="Set spec.allow.functions: true, then repair again.",
        )
