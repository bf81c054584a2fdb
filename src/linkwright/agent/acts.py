"""The act of an activation: a restart of the host, a reset of single adapters, or a site's own power cycle.

Each is stored before it is done and done once for one value (interlock rule 3). A crash in between is judged by
evidence: by the boot id for a restart, by the firmware's own uptime for a reset.
"""

from __future__ import annotations

import time

from ..kernel import restart
from ..model.documents import Activation as Wishes
from ..model.errors import LinkwrightError
from ..model.inventory import Adapter
from ..model.plan import Question
from ..model.records import AttachmentState, ModeChange, Phase
from . import verify
from .hooks import Hooks
from .ledger import Ledger
from .staging import Staging
from .world import World

RESTART_LIMIT_S = 120.0


class Acts:
    """Used from the reconcile loop only."""

    def __init__(self, world: World, ledger: Ledger, hooks: Hooks, staging: Staging) -> None:
        self._world = world
        self._ledger = ledger
        self._hooks = hooks
        self._staging = staging

    def _begun(self, change: ModeChange, what: str) -> ModeChange:
        """Stored before the act; the same act taken up again after a crash is not a second one."""
        if what in change.tried and change.phase is Phase.RESTARTING:
            return change
        return self._ledger.move(
            change, Phase.RESTARTING, tried=(*change.tried, what), activations=change.activations + 1
        )

    def reset(self, changes: list[ModeChange], adapters: list[Adapter], question: Question) -> None:
        """Each adapter once, for all changes that wrote to it. A reset that is on record as begun, and by the
        firmware's uptime did not happen, was cut off by a crash: it is begun once more."""
        going = {c.policy: c for c in changes}
        for adapter in adapters:
            mine = [c for c in going.values() if adapter in verify.adapters(c, question.inventory)]
            what, done = f"FirmwareReset {adapter.id}", False
            if any(what in c.tried for c in mine):
                uptime = self._staging.uptimes(mine[0], question).get(adapter.id)
                done = uptime is not None and verify.was_reset(mine[0], adapter.id, uptime, time.time())
                what = what if done else f"{what} again"
            if not done and any(what in c.tried for c in mine):
                self._reset_failed(mine, going, question, f"{adapter.id}: the reset was cut off twice.")
                continue
            begun = [self._begun(c, what) for c in mine]
            going.update({c.policy: c for c in begun})
            if not done:
                self._reset_now(begun, adapter, going, question)
        for change in going.values():
            self._ledger.move(change, Phase.BOOTED)

    def _reset_now(
        self, mine: list[ModeChange], adapter: Adapter, going: dict[str, ModeChange], question: Question
    ) -> None:
        pf, text = verify.card(mine[0], adapter), ""
        self._world.progress.emit("step", pf, "reset the adapter", phase=Phase.DRAINING.value)
        try:
            done = self._world.firmware.reset(pf)
            words = (" ".join(done.command), done.said)
        except LinkwrightError as error:
            words = (getattr(error, "command", ""), getattr(error, "said", ""))
            text = f"{pf}: the reset failed: {error.message}."
        said = tuple(w for w in words if w)
        kept = [self._ledger.keep(c, said=(*c.said, *said)) for c in mine]
        going.update({c.policy: c for c in kept})
        if text:
            self._reset_failed(kept, going, question, text)

    def _reset_failed(
        self, mine: list[ModeChange], going: dict[str, ModeChange], question: Question, text: str
    ) -> None:
        for change in mine:
            going.pop(change.policy, None)
            self.fall_back(change, question, "reset-failed", text, at=Phase.RESTARTING)

    def restart(self, changes: list[ModeChange]) -> None:
        """The host, once for all of them."""
        changes = [self._begun(c, "Reboot") for c in changes]
        why = "; ".join(f"{c.policy}: {c.wanted.value}" for c in changes)
        self._world.progress.emit("step", "this host", f"restart ({why})", phase=Phase.RESTARTING.value)
        try:
            restart.restart_host(self._world.system, f"linkwright: {why}")
        except LinkwrightError as error:
            for change in changes:
                next_step = f'{error.next_step} Then: linkwright retry {change.policy} --reason "…"'
                self._ledger.wait(change, Phase.RESTARTING, error.code, error.message, next_step)
            return
        self._await_the_end(changes, "the restart was requested")

    def _await_the_end(self, changes: list[ModeChange], what: str) -> None:
        """The host goes down, and we with it; else a person is told."""
        self._world.wakeups.wait_stop(RESTART_LIMIT_S)
        if self._world.wakeups.stopping:
            return
        for change in changes:
            self._ledger.wait(
                change,
                Phase.RESTARTING,
                "restart-did-not-happen",
                f"{what} {RESTART_LIMIT_S:.0f} s ago and the host still runs. {change.cause}".rstrip(),
                "Restart or power-cycle the host by hand; it goes on by itself afterwards. "
                f'Or: linkwright retry {change.policy} --reason "…"',
            )

    def power_cycle(self, change: ModeChange, question: Question) -> None:
        """Let the site's own hook do it. Stored before, because the power may go while the hook runs."""
        begun = self._begun(change, "PowerCycle")
        if self._hooks.ask(begun, "power-cycle", question, Phase.RESTARTING) == "go":
            self._await_the_end([begun], "the power-cycle hook said yes")

    def fall_back(self, change: ModeChange, question: Question, code: str, text: str, at: Phase) -> None:
        """A reset that cannot be or did not help: with Auto the host restarts, else a person is waited for."""
        spec = question.desired.host.spec
        beyond = outsiders(change, question)
        may = wishes_of(change, question).method == "Auto" and spec.allow.restart
        if may and not beyond and "Reboot" not in change.tried:
            said = (*change.said, f"{text} So the host is restarted (method Auto).")
            targets = tuple(sorted({*change.targets, *change.also_interrupts}))
            self._ledger.move(
                change,
                Phase.STAGED,
                method="Reboot",
                said=said,
                targets=targets,
                also_interrupts=(),
                **self.anew(change, question),
            )
            return
        why = f" A restart would interrupt {', '.join(beyond)}, which nobody agreed to." if may and beyond else ""
        next_step = (
            "Restart the host when it suits: it goes on by itself afterwards. Or reset it once more: "
            f'linkwright retry {change.policy} --reason "…"'
        )
        text = f"{text}{why} {verify.evidence(change, question.inventory)}"
        self._ledger.wait(change, at, code, text, next_step)

    def anew(self, change: ModeChange, question: Question) -> dict[str, object]:
        """What evidence of a further activation is measured against."""
        uptimes = self._staging.uptimes(change, question)
        return {"boot_id": question.inventory.boot_id, "uptime_before": uptimes, "intent_at": time.time()}


def outsiders(change: ModeChange, question: Question, method: str = "Reboot") -> list[str]:
    """Targets that activating by ``method`` would interrupt, and that the yes to this change did not name."""
    if wishes_of(change, question).drain == "Wait":
        return []
    cards = {p.id for a in verify.adapters(change, question.inventory) for p in a.ports}
    live = {
        a.target
        for a in question.records.attachments
        if a.state is not AttachmentState.ASSIGNED and (method != "FirmwareReset" or a.port in cards)
    }
    return sorted(live - {*change.targets, *change.also_interrupts})


def wishes_of(change: ModeChange, question: Question) -> Wishes:
    """``spec.activation`` of the change's policy; the defaults when the policy went meanwhile."""
    found = (p.spec.activation for p in question.desired.policies if p.name == change.policy)
    return next(found, Wishes())
