"""Everything decided about one question before any step is made: the shared input of the step makers."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.plan import PortDecision, Problem
from ..model.records import ModeChange, Phase
from ..model.values import PortId
from .matching import Matching, match
from .modes import PortMode, assess
from .slots import Placement, place
from .vfs import Shape, shapes
from .view import View

RESTART_AHEAD = (Phase.INTENT, Phase.STAGED, Phase.DRAINING, Phase.RESTARTING)
GIVING_BACK = (Phase.FUNCTIONS, Phase.REATTACH)


@dataclass(frozen=True)
class Decided:
    """``in_change``: ports that an unfinished mode change works on; the change, not the planner, moves them.
    ``restart_ahead``: a change has begun whose restart is still to come; nothing new is given to anybody."""

    view: View
    matching: Matching
    modes: dict[PortId, PortMode]
    placement: Placement
    shapes: dict[PortId, Shape]
    in_change: dict[PortId, ModeChange]
    restart_ahead: ModeChange | None
    problems: tuple[Problem, ...]

    def decisions(self) -> tuple[PortDecision, ...]:
        return tuple(
            PortDecision(
                port=port,
                policy=policy,
                desired=self.modes[port].desired,
                form=self.shapes[port].form,
                num_vfs=self.shapes[port].count if self.shapes[port].form else None,
            )
            for port, policy in self.matching.policy_of.items()
        )


def decide(view: View) -> Decided:
    matching = match(view)
    modes = assess(view, matching)
    placement = place(view, matching, modes)
    shaped, vf_problems = shapes(view, matching, placement)
    under_way = [c for c in view.changes.values() if _holds_its_ports(view, c)]
    boot = view.question.inventory.boot_id
    ahead = [c for c in under_way if c.phase in RESTART_AHEAD and c.boot_id in (None, boot)]
    in_change = {
        port: change for change in under_way if change.phase not in GIVING_BACK for port in change.ports
    }
    mode_problems = [m.problem for port, m in modes.items() if m.problem is not None and port not in in_change]
    notes = [m.note for m in modes.values() if m.note is not None]
    return Decided(
        view=view,
        matching=matching,
        modes=modes,
        placement=placement,
        shapes=shaped,
        in_change=in_change,
        restart_ahead=ahead[0] if ahead else None,
        problems=(*matching.problems, *mode_problems, *notes, *placement.problems, *vf_problems, *_followed(view)),
    )


def moving(change: ModeChange) -> bool:
    """Its intent is stored and it is not finished: it is rolled forward by the engine, not planned again."""
    return change.open and change.phase not in (Phase.PLANNED, Phase.APPROVED, Phase.WAITING)


def _holds_its_ports(view: View, change: ModeChange) -> bool:
    """Moving; or begun and waiting for a person, unless the person changed the policy since: that is an answer."""
    waits = change.phase is Phase.WAITING and change.intent_at is not None
    return moving(change) or (waits and change.generation == view.generation(change.policy))


def _followed(view: View) -> list[Problem]:
    """Policies that were changed while a change of theirs was moving."""
    return [
        Problem(
            severity="waiting",
            code="change-in-progress",
            rule=3,
            subject=f"policy {c.policy}",
            text=f"generation {view.generation(c.policy)} follows the change of generation {c.generation}, "
            f"which is not finished ({c.phase.value}).",
            next_step="Look: linkwright status --watch",
        )
        for c in view.changes.values()
        if moving(c) and c.policy in view.policies and c.generation != view.generation(c.policy)
    ]
