"""Next Boot, written and put back: what a mode change does to a card before anybody is interrupted.

What was staged for a change that is given up is put back, whatever the reason: a later restart by somebody else
would load it otherwise. That also holds for a write that the card took only in part.
"""

from __future__ import annotations

import logging
import time

from ..firmware.base import same_value
from ..model.errors import Busy, LinkwrightError
from ..model.plan import Question
from ..model.records import ModeChange, Phase, Setting
from . import backup, verify
from .ledger import Ledger
from .world import World

log = logging.getLogger(__name__)

BUSY_S = 300.0  # a card that stays busy for longer is said to wait; it is asked again all the same
BUSY_PAUSES_S = (2.0, 30.0)


class Staging:
    """Used from the reconcile loop only."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger

    def uptimes(self, change: ModeChange, question: Question) -> dict[str, int]:
        """The firmware's uptime of each card of the change: the evidence that a later reset is measured by."""
        found: dict[str, int] = {}
        for port_id in change.ports:
            adapter, port = question.inventory.adapter_of(port_id), question.inventory.port(port_id)
            if adapter is None or port is None or adapter.id in found:
                continue
            try:
                uptime = self._world.firmware.measure_uptime_s(port.pf.address)
            except LinkwrightError as error:
                log.info("%s: firmware uptime unknown: %s", port_id, error)
                continue
            if uptime is not None:
                found[adapter.id] = uptime
        return found

    def stage(self, change: ModeChange, question: Question) -> bool:
        """INTENT → STAGED, or FAILED with everything put back. True when it moved."""
        said = list(change.said)
        for pf, settings in _by_pf(change.settings).items():
            values = {s.name: s.value for s in settings}
            self._world.progress.emit("step", pf, "write " + " ".join(f"{k}={v}" for k, v in values.items()))
            try:
                backup.keep(self._world, pf)
                written = self._world.firmware.write(pf, values)
            except Busy as error:
                return self._busy(change, pf, error)
            except LinkwrightError as error:
                self._refused(change, error, tuple(said), question)
                return True
            said += [" ".join(written.command), written.said]
        fields: dict[str, object] = {"said": tuple(said)}
        if not change.uptime_before:
            fields |= {"uptime_before": self.uptimes(change, question), "intent_at": time.time()}
        self._ledger.move(change, Phase.STAGED, **fields)
        return True

    def _busy(self, change: ModeChange, pf: str, error: Busy) -> bool:
        patience = time.time() - change.phase_since < BUSY_S and change.phase is not Phase.WAITING
        self._ledger.look_within(BUSY_PAUSES_S[0] if patience else BUSY_PAUSES_S[1])
        if patience:
            self._ledger.awaits(change, str(error), f"{pf}: the card to be free", BUSY_S)
            return False
        next_step = "It is tried again by itself. " + error.next_step
        return self._ledger.wait(change, Phase.INTENT, error.code, f"{pf}: {error.message}", next_step)

    def _refused(
        self, change: ModeChange, error: LinkwrightError, said: tuple[str, ...], question: Question
    ) -> None:
        """Interlock rule 5: a refused step undoes what came before it."""
        words = (getattr(error, "command", ""), getattr(error, "said", ""))
        text = f"{error.where}: {error.message}." if error.where else f"{error.message}."
        try:
            back = self.put_back(change)
            retry = f'linkwright retry {change.policy} --reason "…"'
            next_step = f"{error.next_step} Then: {retry}"
            if back:
                text += f" Put back for the next boot: {', '.join(back)}."
                next_step = f"Nobody was interrupted. When it is settled: {retry}"
        except LinkwrightError as stuck:
            text += f" And it could not be put back: {stuck.message}."
            next_step = f"Before any restart: {_by_hand(change)}"
        text += f" {verify.evidence(change, question.inventory)}"
        self._ledger.fail(
            change, error.code, text, next_step.strip(), said=tuple(w for w in (*said, *words) if w)
        )

    def put_back(self, change: ModeChange) -> list[str]:
        """Write the values from before over what this change staged; returns what was written
        (``LINK_TYPE_P1=2``). Idempotent. Raises what the card says, Busy included."""
        done: list[str] = []
        for pf, settings in _by_pf(change.settings).items():
            kept = [s for s in settings if s.before is not None and not same_value(s.before, s.value)]
            if not kept:
                continue
            self._world.firmware.forget()
            reading = self._world.firmware.query(pf, [s.name for s in kept])
            ours = {
                s.name: s.before
                for s in kept
                if s.before is not None
                and s.name in reading.params
                and same_value(reading.params[s.name].next, s.value)
            }
            if ours:
                self._world.progress.emit("step", pf, "put back " + " ".join(f"{k}={v}" for k, v in ours.items()))
                self._world.firmware.write(pf, ours)
                done += [f"{name}={value}" for name, value in ours.items()]
        return done


def _by_pf(settings: tuple[Setting, ...]) -> dict[str, list[Setting]]:
    found: dict[str, list[Setting]] = {}
    for setting in settings:
        found.setdefault(setting.pf, []).append(setting)
    return found


def _by_hand(change: ModeChange) -> str:
    return "; ".join(
        f"mstconfig -d {pf} set " + " ".join(f"{s.name}={s.before}" for s in settings if s.before is not None)
        for pf, settings in _by_pf(change.settings).items()
    )
