"""The last gate before a plan leaves the planner: what host.yaml allows, and a freeze (interlock rule 4).

What is held back is still shown (``Plan.withheld``), with the line of host.yaml that would allow it: a host whose
file is missing observes, and says what it would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..model.plan import (
    Approval,
    Attach,
    Detach,
    Problem,
    ResetAdapter,
    RestartHost,
    SetVfs,
    Step,
    WriteFirmware,
)
from ..model.records import ModeChange
from .decided import Decided
from .reshape import Local
from .restart import Part

HOST_FILE = "/etc/linkwright/host.yaml"


@dataclass
class Held:
    steps: tuple[Step, ...] = ()
    withheld: tuple[Step, ...] = ()
    changes: tuple[ModeChange, ...] = ()
    approvals: tuple[Approval, ...] = ()
    problems: list[Problem] = field(default_factory=list)


def hold_back(decided: Decided, local: Local, activated: Sequence[Part], put_back: Sequence[Step]) -> Held:
    """Join the parts in order, and take out what may not be done. A change is done whole or not at all."""
    allow = decided.view.host.allow
    out, frozen = Held(), decided.view.question.desired.frozen_by
    needs_of = [_needed_for(part.steps) for part in activated]
    may = [not frozen and all(getattr(allow, name) for name in needs) for needs in needs_of]
    now = any(part.now and ok for part, ok in zip(activated, may, strict=True))
    # Before an activation that is agreed nothing is given: it would be taken away again at once.
    taken = [s for s in local.detach if s.forget and s.needs is None] if now else list(local.steps)
    parts: list[tuple[list[Step], list[str]]] = [
        (list(put_back), ["firmware"]),
        (list(taken), ["functions"]),
        *((list(part.steps), needs) for part, needs in zip(activated, needs_of, strict=True)),
    ]
    steps: list[Step] = []
    withheld: list[Step] = []
    missing: dict[str, list[Step]] = {}
    for part, needs in parts:
        lacks = [name for name in needs if not getattr(allow, name)]
        if part and (lacks or frozen):
            withheld += part
            for name in lacks:
                missing.setdefault(name, []).extend(_those(part, name))
        else:
            steps += part
    out.steps, out.withheld = tuple(steps), tuple(withheld)
    passed = [part for part, ok in zip(activated, may, strict=True) if ok]
    out.changes = tuple(change for part in passed for change in part.changes)
    if not frozen:
        out.approvals = tuple(approval for part in passed for approval in part.approvals)
        if allow.functions and not now:
            out.approvals = (*local.approvals, *out.approvals)
    out.problems += [_not_allowed(decided, name, found) for name, found in sorted(missing.items()) if found]
    if frozen:
        out.problems.append(_frozen(frozen, len(withheld)))
    return out


def _needed_for(steps: Sequence[Step]) -> list[str]:
    """A change takes interfaces and gives them back, so it needs ``functions`` as well when there are any."""
    firmware = ["firmware"] if any(isinstance(s, WriteFirmware) for s in steps) else []
    functions = ["functions"] if any(isinstance(s, Detach | SetVfs | Attach) for s in steps) else []
    reset = ["reset"] if any(isinstance(s, ResetAdapter) for s in steps) else []
    restart = ["restart"] if any(isinstance(s, RestartHost) for s in steps) else []
    return [*firmware, *functions, *reset, *restart]


def _those(steps: Sequence[Step], name: str) -> list[Step]:
    kinds = {
        "firmware": ("write",),
        "functions": ("vfs", "attach", "detach"),
        "reset": ("reset",),
        "restart": ("restart",),
    }
    return [s for s in steps if s.__struct_config__.tag in kinds[name]]


def _not_allowed(decided: Decided, name: str, steps: list[Step]) -> Problem:
    count = f"{len(steps)} step" + ("s" if len(steps) > 1 else "")
    return Problem(
        severity="refused",
        code="not-allowed",
        rule=4,
        subject=f"host {decided.view.question.inventory.host}",
        text=f"{count} would need spec.allow.{name}, which {HOST_FILE} does not give.",
        next_step=f"To allow it, write in {HOST_FILE}: spec: {{allow: {{{name}: true}}}}",
    )


def _frozen(by: str, count: int) -> Problem:
    return Problem(
        severity="waiting",
        code="frozen",
        rule=4,
        subject="this host",
        text=f"frozen by {by}; {count} step{'s wait' if count != 1 else ' waits'}.",
        holder=by,
        next_step="When it may go on: linkwright unfreeze",
    )
