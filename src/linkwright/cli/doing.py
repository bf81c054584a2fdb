"""What apply, attach, delete, approve and retry share: ask for a yes, send, follow, and say how it ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from linkwright.model.errors import NeedsPerson

from . import output as out
from .api import Agent
from .render.text import Line, line

if TYPE_CHECKING:
    from linkwright.model.plan import Approval, Plan

    from .views import Applied, StatusView


def ask_for_yes(made: Plan, command: str, yes: bool) -> list[str]:
    """The approval keys of the plan, once a person (or --yes) agreed to what they interrupt.

    Raises NeedsPerson when nobody can be asked, with ``command`` as what to type, or when the answer is no.
    """
    from .render.plan import approval_lines

    keys = [approval.key for approval in made.approvals]
    if not keys or yes:
        return keys
    if not sys.stdin.isatty():
        texts = "\n".join(approval.text for approval in made.approvals)
        raise NeedsPerson(
            f"this needs a yes, and nobody can be asked here:\n{texts}",
            code="approval-needed",
            next_step=f"Agree with: {command}",
        )
    out.show([line(("This needs a yes:", "wait")), *approval_lines(made, out.width())], sys.stderr)
    sys.stderr.write("Go on? [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if answer.strip().lower() not in ("y", "yes"):
        raise NeedsPerson("nothing was changed", code="approval-needed", next_step=f"Agree later with: {command}")
    return keys


def refused() -> int:
    """The plan, with its reasons, is on the screen already; the exit code."""
    out.show([line(("Refused: nothing was applied. The reasons stand above.", "bad"))], sys.stderr)
    return 3


def stored_lines(applied: Applied) -> list[Line]:
    """What was stored, for --no-wait."""
    names = ", ".join(f"{name.replace('/', ' ')} generation {n}" for name, n in applied.generations.items())
    return [line(f"Stored: {names or 'nothing new'}. Look: linkwright status --watch")]


def follow(agent: Agent, cursor: int, *, policies: Collection[str], targets: Collection[str], output: str) -> int:
    """Follow until settled, then show how the named policies and targets are; the exit code."""
    from .follow import Follower

    outcome = Follower(agent, cursor, quiet=output != "table").until_settled()
    if outcome == "interrupted":
        return 130
    if outcome == "restarting":
        return 0
    return ending(agent, policies=policies, targets=targets, output=output)


def ending(agent: Agent, *, policies: Collection[str], targets: Collection[str], output: str) -> int:
    """One screen about the named policies and targets, and 0 done, 1 failed, 4 waits for a person."""
    from .views import StatusView, read

    raw = agent.get("/v1/status")
    status = read(raw, StatusView)
    if output != "table":
        out.emit(raw, output)
    else:
        from .render.status import ending_lines

        out.show(ending_lines(status, policies, targets, time.time(), out.width()))
    return exit_code(status, policies, targets)


def exit_code(status: StatusView, policies: Collection[str], targets: Collection[str]) -> int:
    """From the mode changes of the policies, and from the problems and interfaces of policies and targets."""
    from linkwright.model.records import Phase

    changes = [change for change in status.changes if change.policy in policies]
    if any(change.phase is Phase.FAILED for change in changes):
        return 1
    concerned = [target for target in status.targets if target.name in targets]
    states = {interface.state for target in concerned for interface in target.interfaces}
    if "quarantined" in states:
        return 1
    subjects = {f"policy {name}" for name in policies} | {f"target {name}" for name in targets}
    subjects |= {f"{t.name} {i.name}" for t in concerned for i in t.interfaces}
    ports = {i.port for t in concerned for i in t.interfaces if i.port}
    subjects |= ports | {f"port {port}" for port in ports}
    mine = [problem for problem in status.problems if problem.subject in subjects]
    if any(problem.severity == "refused" for problem in mine):
        return 3
    waits = any(change.open for change in changes) or any(problem.severity == "waiting" for problem in mine)
    waits = waits or any(asked_for(each, policies) for each in status.approvals)
    return 4 if waits or any(target.state != "attached" for target in concerned) else 0


def asked_for(approval: Approval, policies: Collection[str]) -> bool:
    """Is it the yes to a mode change of one of these policies?"""
    kind, _, rest = approval.key.partition(":")
    return kind == "change" and rest.split(":", 1)[0] in policies


def cursor_of(answer: Any) -> int:
    """The event number after which the effects of a request are told."""
    return int(answer.get("cursor") or 0) if isinstance(answer, dict) else 0
