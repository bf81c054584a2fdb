"""After the activation: is the mode there, is the network there, give everything back; and what follows when not.

A verdict has one of four consequences: a restart where a reset did not help (method Auto), the site's power-cycle
hook, the way back to the old mode (``onFailure: Rollback``, once), or the end: FAILED, until a person's retry.
"""

from __future__ import annotations

import time

import msgspec

from ..firmware.base import mode_of_link_type
from ..model.plan import Attach, Plan, Question, SetVfs
from ..model.records import AttachmentState, ModeChange, Phase, Setting
from ..model.values import parse_duration
from . import verify
from .acts import Acts, outsiders, wishes_of
from .hands import Hands
from .hooks import Hooks
from .ledger import Ledger
from .world import World

DRIVER_LIMIT_S = 30.0  # mlx5 probes in 2 to 10 s a card; a card that needs more is looked at by a person
REATTACH_GRACE_S = 30.0  # how long containers may take to start again before a change is called done
MENDS_BY_ITSELF = ("no-subnet-manager", "link-down", "guid-zero")


class Aftermath:
    """Used from the reconcile loop only."""

    def __init__(
        self, world: World, hands: Hands, ledger: Ledger, hooks: Hooks, acts: Acts
    ) -> None:
        self._world = world
        self._hands = hands
        self._ledger = ledger
        self._hooks = hooks
        self._acts = acts

    def advance(self, change: ModeChange, question: Question) -> bool:
        """BOOTED → VERIFY_MODE → VERIFY_FABRIC → FUNCTIONS. True when it moved."""
        match change.station:
            case Phase.BOOTED:
                self._world.firmware.forget()
                self._ledger.move(change, Phase.VERIFY_MODE)
                return True
            case Phase.VERIFY_MODE if change.phase is Phase.VERIFY_MODE:
                verdict = verify.mode_verdict(change, question.inventory, question.now)
                if verdict.ok:
                    verdict = verify.settings_verdict(change, question.inventory)
                if verdict.wait:
                    self._world.firmware.forget()
                return self._judge(change, verdict, DRIVER_LIMIT_S, question)
            case Phase.VERIFY_FABRIC:
                return self._fabric(change, question)
        return False

    def _fabric(self, change: ModeChange, question: Question) -> bool:
        if change.phase is Phase.WAITING and change.reason_code == "hook-stopped":
            return False
        spec = question.desired.host.spec
        for port_id in change.ports:
            port = question.inventory.port(port_id)
            if port is not None and spec.allow.functions and not question.desired.frozen_by:
                self._hands.raise_port(port)
        verdict = verify.fabric_verdict(change, question.inventory)
        if verdict.ok and change.returning_from is None:
            asked = self._hooks.ask(change, "post-verify", question, Phase.VERIFY_FABRIC)
            if asked != "go":
                return asked == "news"
        limit = spec.subnet_manager_timeout if verdict.code == "no-subnet-manager" else spec.link_timeout
        return self._judge(change, verdict, parse_duration(limit), question)

    def _judge(self, change: ModeChange, verdict: verify.Verdict, limit_s: float, question: Question) -> bool:
        if verdict.ok:
            then = Phase.VERIFY_FABRIC if change.station is Phase.VERIFY_MODE else Phase.FUNCTIONS
            self._ledger.move(change, then)
            return True
        waited = time.time() - change.phase_since
        if verdict.wait and waited < limit_s and change.phase is not Phase.WAITING:
            self._ledger.awaits(change, verdict.text, verdict.awaited, limit_s)
            self._ledger.look_within(min(1.0, limit_s - waited))
            return False
        rolls_back = wishes_of(change, question).on_failure == "Rollback" and change.returning_from is None
        if verdict.code in MENDS_BY_ITSELF and change.returning_from is not None:
            # What ran before is not held back: the missing network may be what the first verdict was about.
            cause = f"{change.cause} In {change.wanted.value} mode too: {verdict.text}."
            self._ledger.move(change, Phase.FUNCTIONS, cause=cause)
            return True
        if verdict.code in MENDS_BY_ITSELF and not (rolls_back and change.phase is not Phase.WAITING):
            self._ledger.look_within(5.0)
            if change.phase is Phase.WAITING and change.reason_code == verdict.code:
                return False
            text = f"{verdict.text}. {verify.evidence(change, question.inventory)}"
            return self._ledger.wait(change, change.station, verdict.code, text, verdict.next_step)
        self._failed(change, verdict, question)
        return True

    # -- when it did not work --------------------------------------------------------------------------------

    def _failed(self, change: ModeChange, verdict: verify.Verdict, question: Question) -> None:
        text = verdict.text
        if "wanted" not in text:
            text = f"{text.rstrip('.')}. {verify.evidence(change, question.inventory)}"
        if change.returning_from is not None:
            self._way_back_failed(change, verdict, text)
            return
        spec, beyond = question.desired.host.spec, outsiders(change, question)
        wishes = wishes_of(change, question)
        mode = change.station is Phase.VERIFY_MODE
        if mode and change.method == "FirmwareReset" and wishes.method == "Auto" and "Reboot" not in change.tried:
            self._acts.fall_back(change, question, verdict.code, f"{text}.", at=Phase.RESTARTING)
            return
        mends = verdict.code in verify.POWER_CODES and "PowerCycle" not in change.tried and spec.allow.restart
        if mends and not beyond and self._hooks.present("power-cycle"):
            anew = self._acts.anew(change, question)
            self._ledger.move(change, Phase.STAGED, method="PowerCycle", cause=f"{text}.", **anew)
            return
        if wishes.on_failure == "Rollback" and self._way_back(change, verdict, text, question):
            return
        self._ledger.fail(change, verdict.code, text, verdict.next_step)

    def _way_back(self, change: ModeChange, verdict: verify.Verdict, text: str, question: Question) -> bool:
        """Begin the return to what ran before. False when that is unknown, or would interrupt others."""
        old = next((s.current for s in change.settings if s.name.startswith("LINK_TYPE")), None)
        wanted = mode_of_link_type(old) or change.wanted
        if any(s.current is None for s in change.settings) or outsiders(change, question, change.method):
            return False
        self._ledger.move(
            change,
            Phase.INTENT,
            wanted=wanted,
            returning_from=change.wanted,
            settings=tuple(_turned(s) for s in change.settings),
            cause=f"{verdict.code}: {text.rstrip('.')}.",
            detail=f"{text}. Returns to {wanted.value}",
            tried=(),
            activations=0,
            method="Reboot" if change.method == "PowerCycle" else change.method,
            **self._acts.anew(change, question),
        )
        return True

    def _way_back_failed(self, change: ModeChange, verdict: verify.Verdict, text: str) -> None:
        said = f"{change.cause} The way back to {change.wanted.value} failed too ({verdict.code}): {text}"
        self._ledger.fail(forward(change), "rollback-failed", said, verdict.next_step)

    # -- giving back -----------------------------------------------------------------------------------------

    def settle(self, change: ModeChange, plan: Plan, question: Question) -> bool:
        """FUNCTIONS → REATTACH → DONE, when the plan holds nothing more for the change's ports."""
        ports = set(change.ports)
        vfs = [s for s in plan.steps if isinstance(s, SetVfs) and s.port in ports]
        attach = [s for s in plan.steps if isinstance(s, Attach) and s.target in change.targets]
        if change.phase is Phase.FUNCTIONS and not vfs:
            self._ledger.move(change, Phase.REATTACH)
            return True
        if change.phase is not Phase.REATTACH or attach:
            return False
        missing = _not_back(change, question)
        grace = change.phase_since + REATTACH_GRACE_S - time.time()
        if missing and grace > 0:
            names = ", ".join(missing)
            self._ledger.awaits(change, f"waiting for containers to start: {names}", names, REATTACH_GRACE_S)
            self._ledger.look_within(grace)
            return False
        detail = f"{', '.join(missing)}: gets its interface when it starts" if missing else ""
        if change.returning_from is None:
            self._ledger.done(change, detail)
            return True
        self._ledger.fail(
            forward(change),
            "rolled-back",
            f"{change.cause} It was returned to {change.wanted.value} once (onFailure: Rollback), and targets "
            f"have their interfaces in that mode. {detail}".rstrip(),
            f'When the cause is gone: linkwright retry {change.policy} --reason "…"; or change the policy.',
            returned_to=change.wanted,
        )
        return True


def _not_back(change: ModeChange, question: Question) -> list[str]:
    back = {a.target for a in question.records.attachments if a.state is AttachmentState.ATTACHED}
    declared = {t.name for t in question.desired.targets}
    return [t for t in change.targets if t in declared and t not in back]


def _turned(setting: Setting) -> Setting:
    """The same parameter, back to what ran; turned twice it is what it was."""
    return msgspec.structs.replace(
        setting, value=setting.current, current=setting.value, before=setting.value
    )


def forward(change: ModeChange) -> ModeChange:
    """The record of a return, told again as the change that failed."""
    if change.returning_from is None:
        return change
    settings = tuple(_turned(s) for s in change.settings)
    return msgspec.structs.replace(change, wanted=change.returning_from, returning_from=None, settings=settings)
