"""Mode changes: from a stored intent over the restart to the verified mode. One change is one activation.

The engine owns a change from INTENT on and moves it station by station; each move is stored before what it
announces is done, so after a crash anywhere the next pass finds the station and goes on. Which station is
right after a restart follows from the boot id stored with the intent, never from the clock.

All changes of a host share one restart: they are staged first (a refused write interrupts nobody and fails
alone), then every attachment of the host is released, then the host restarts once.
"""

from __future__ import annotations

import logging
import time

import msgspec

from ..kernel import restart
from ..model.errors import Busy, LinkwrightError, NeedsPerson
from ..model.plan import Attach, Plan, Question, SetVfs
from ..model.records import AttachmentState, ModeChange, Phase
from ..model.values import parse_duration
from . import verify
from .hands import Hands, assigned
from .world import World

log = logging.getLogger(__name__)

DRIVER_LIMIT_S = 30.0  # mlx5 probes in 2 to 10 s a card; a card that needs more is looked at by a person
REATTACH_GRACE_S = 30.0  # how long containers may take to start again before a change is called done
BEFORE_RESTART = (Phase.INTENT, Phase.STAGED, Phase.DRAINING, Phase.RESTARTING)


class Engine:
    """Moves open changes on. ``advance`` returns True when something was done and the world must be read again."""

    def __init__(self, world: World, hands: Hands) -> None:
        self._world = world
        self._hands = hands
        self.look_again_s: float | None = None  # while something is awaited that may come without an event

    # -- beginning ---------------------------------------------------------------------------------------

    def begin(self, change: ModeChange, question: Question, who: str) -> None:
        """Store the intent with boot id, before-values and the firmware's uptime: the write-ahead."""
        uptimes: dict[str, int] = {}
        for port_id in change.ports:
            adapter, port = question.inventory.adapter_of(port_id), question.inventory.port(port_id)
            if adapter is None or port is None or adapter.id in uptimes:
                continue
            try:
                uptime = self._world.firmware.measure_uptime_s(port.pf.address)
            except LinkwrightError as error:
                log.info("%s: firmware uptime unknown: %s", port_id, error)
                uptime = None
            if uptime is not None:
                uptimes[adapter.id] = uptime
        now = time.time()
        self._store(
            change,
            Phase.INTENT,
            boot_id=question.inventory.boot_id,
            uptime_before=uptimes,
            intent_at=now,
            approved_by=who,
            started=now,
        )

    # -- moving on ---------------------------------------------------------------------------------------

    def advance(self, question: Question) -> bool:
        self.look_again_s = None
        changes = [c for c in question.records.changes if c.open and c.phase is not Phase.PLANNED]
        booted = [c for c in changes if c.phase in BEFORE_RESTART and c.boot_id != question.inventory.boot_id]
        if booted:
            self._forget_lost_functions(question)
            for change in booted:
                self._after_boot(change, question)
            return True
        if self._wait_for_swapped(changes, question):
            return True
        acted = False
        if not question.desired.frozen_by:
            for change in changes:
                if change.phase is Phase.INTENT:
                    self._stage(change)
                    acted = True
            if not acted:
                acted = self._activate([c for c in changes if c.phase in BEFORE_RESTART], question)
        for change in changes:
            if change.phase not in BEFORE_RESTART:
                acted = self._verify(change, question) or acted
        return acted

    def _wait_for_swapped(self, changes: list[ModeChange], question: Question) -> bool:
        """A change of a card that is another one by now is about nothing any more: a person looks at it."""
        acted = False
        for change in changes:
            cards = [question.inventory.adapter_of(port) for port in change.ports]
            card = next((c for c in cards if c is not None and c.replaced), None)
            if card is not None and change.phase is not Phase.WAITING:
                address = card.ports[0].pf.address
                self._wait(
                    change,
                    "adapter-replaced",
                    f"another card sits at {address} than the one that was known ({card.replaced})",
                    f"If that is meant: linkwright adapter replace {address}",
                )
                acted = True
        return acted

    def _stage(self, change: ModeChange) -> None:
        by_pf: dict[str, dict[str, str]] = {}
        for setting in change.settings:
            by_pf.setdefault(setting.pf, {})[setting.name] = setting.value
        said = list(change.said)
        for pf, settings in by_pf.items():
            self._world.progress.emit("step", pf, "write " + " ".join(f"{k}={v}" for k, v in settings.items()))
            try:
                self._backup(pf)
                written = self._world.firmware.write(pf, settings)
            except Busy as error:
                self._world.progress.emit("waiting", pf, str(error), awaited="the card to be free")
                self.look_again_s = 2.0
                return
            except LinkwrightError as error:
                self._fail(change, error.code, str(error), error.next_step, (*said, getattr(error, "said", "")))
                return
            said += [" ".join(written.command), written.said]
        self._store(change, Phase.STAGED, said=tuple(said))

    def _backup(self, pf: str) -> None:
        """The card's full configuration, kept once, before our first write to it."""
        path = self._world.system.state / "backup" / f"{pf.replace(':', '-')}.txt"
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = path.with_suffix(".partial")
        partial.write_text(self._world.firmware.backup(pf))
        partial.rename(path)

    def _activate(self, changes: list[ModeChange], question: Question) -> bool:
        """STAGED → DRAINING → RESTARTING: release everybody on this host, then restart it once."""
        if not changes:
            return False
        held = [a for a in question.records.attachments if a.state is not AttachmentState.ASSIGNED]
        staged = [c for c in changes if c.phase is Phase.STAGED]
        if staged:
            for change in staged:
                self._store(change, Phase.DRAINING)
            return True
        for attachment in held:
            what = f"{attachment.target} {attachment.interface}"
            self._world.progress.emit("step", what, "release")
            released = self._hands.release(attachment, question)
            if released.state is AttachmentState.QUARANTINED:
                for change in changes:
                    self._wait(
                        change,
                        "release-failed",
                        f"{what} could not be released: {released.reason}",
                        f'Free it, then: linkwright retry {change.policy} --reason "…"',
                    )
                return True
        self._restart(
            [
                c if c.phase is Phase.RESTARTING else self._store(c, Phase.RESTARTING, activations=1)
                for c in changes
            ]
        )
        return True

    def _restart(self, changes: list[ModeChange]) -> None:
        why = "; ".join(f"{c.policy}: {c.wanted.value}" for c in changes)
        self._world.progress.emit("step", "this host", f"restart ({why})", phase=Phase.RESTARTING.value)
        try:
            restart.restart_host(self._world.system, f"linkwright: {why}")
        except LinkwrightError as error:
            for change in changes:
                self._wait(change, error.code, str(error), error.next_step)
            return
        self._world.wakeups.wait_stop(120.0)
        if not self._world.wakeups.stopping:
            for change in changes:
                self._wait(
                    change,
                    "restart-did-not-happen",
                    "the restart was requested 120 s ago and the host still runs",
                    "Restart the host by hand; it goes on by itself afterwards. "
                    f'Or: linkwright retry {change.policy} --reason "…"',
                )

    # -- after the restart -------------------------------------------------------------------------------

    def _forget_lost_functions(self, question: Question) -> None:
        """A restart undid every attachment: what is left of each is its slot."""
        with self._world.store.transaction():
            for attachment in question.records.attachments:
                lost = attachment.boot_id != question.inventory.boot_id
                if lost and attachment.state is not AttachmentState.ASSIGNED:
                    self._world.store.put_attachment(assigned(attachment))

    def _after_boot(self, change: ModeChange, question: Question) -> None:
        if change.phase is Phase.INTENT and not _landed(change, question):
            # The crash came before the write: the intent holds, so it is written now, in this boot.
            self._store(change, Phase.INTENT, boot_id=question.inventory.boot_id)
            return
        self._store(change, Phase.BOOTED)

    def _verify(self, change: ModeChange, question: Question) -> bool:
        if change.phase is Phase.BOOTED:
            self._world.firmware.forget()
            self._store(change, Phase.VERIFY_MODE)
            return True
        if change.phase is Phase.VERIFY_MODE:
            verdict = verify.mode_verdict(change, question.inventory, question.now)
            if verdict.ok:
                verdict = verify.settings_verdict(change, question.inventory)
            return self._judge(change, verdict, DRIVER_LIMIT_S, Phase.VERIFY_FABRIC, final=True)
        if change.phase is Phase.VERIFY_FABRIC or (
            change.phase is Phase.WAITING and change.reason_code in ("no-subnet-manager", "link-down")
        ):
            for port_id in change.ports:
                port = question.inventory.port(port_id)
                if port is not None and question.desired.host.spec.allow.functions:
                    self._hands.raise_port(port)
            verdict = verify.fabric_verdict(change, question.inventory)
            spec = question.desired.host.spec
            limit = spec.subnet_manager_timeout if verdict.code == "no-subnet-manager" else spec.link_timeout
            return self._judge(change, verdict, parse_duration(limit), Phase.FUNCTIONS, final=False)
        return False

    def _judge(
        self, change: ModeChange, verdict: verify.Verdict, limit_s: float, then: Phase, *, final: bool
    ) -> bool:
        if verdict.ok:
            self._store(change, then, reason_code="", detail="", next_step="")
            return True
        waited = time.time() - change.phase_since
        if verdict.wait and waited < limit_s:
            self._world.progress.emit(
                "waiting",
                f"policy {change.policy}",
                verdict.text,
                phase=change.phase.value,
                awaited=verdict.awaited,
                since=change.phase_since,
                limit_s=limit_s,
            )
            self._look_within(min(1.0, limit_s - waited))
            self._world.firmware.forget() if change.phase is Phase.VERIFY_MODE else None
            return False
        if final or not verdict.wait:
            self._fail(change, verdict.code, verdict.text, verdict.next_step, change.said)
            return True
        self._look_within(5.0)
        if change.phase is Phase.WAITING:
            return False
        self._wait(change, verdict.code, verdict.text, verdict.next_step)
        return True

    def settle(self, plan: Plan, question: Question) -> bool:
        """FUNCTIONS → REATTACH → DONE, when the plan holds nothing more for the change's ports."""
        moved = False
        for change in question.records.changes:
            ports = set(change.ports)
            vfs = [s for s in plan.steps if isinstance(s, SetVfs) and s.port in ports]
            attach = [s for s in plan.steps if isinstance(s, Attach) and s.target in change.targets]
            if change.phase is Phase.FUNCTIONS and not vfs:
                self._store(change, Phase.REATTACH)
                moved = True
            elif change.phase is Phase.REATTACH and not attach:
                missing = self._not_back(change, question)
                grace = change.phase_since + REATTACH_GRACE_S - time.time()
                if missing and grace > 0:
                    self._world.progress.emit(
                        "waiting",
                        f"policy {change.policy}",
                        "waiting for containers to start: " + ", ".join(missing),
                        phase=change.phase.value,
                        awaited=", ".join(missing),
                        since=change.phase_since,
                        limit_s=REATTACH_GRACE_S,
                    )
                    self._look_within(grace)
                    continue
                detail = f"{', '.join(missing)}: gets its interface when it starts" if missing else ""
                self._store(change, Phase.DONE, detail=detail)
                moved = True
        return moved

    def _not_back(self, change: ModeChange, question: Question) -> list[str]:
        back = {a.target for a in question.records.attachments if a.state is AttachmentState.ATTACHED}
        declared = {t.name for t in question.desired.targets}
        return [t for t in change.targets if t in declared and t not in back]

    # -- records -----------------------------------------------------------------------------------------

    def _look_within(self, seconds: float) -> None:
        seconds = max(0.05, seconds)
        self.look_again_s = seconds if self.look_again_s is None else min(seconds, self.look_again_s)

    def _store(self, change: ModeChange, phase: Phase, **fields: object) -> ModeChange:
        new = msgspec.structs.replace(change, phase=phase, phase_since=time.time(), **fields)
        self._world.store.put_change(new)
        self._world.progress.emit("change", f"policy {new.policy}", new.detail or phase.value, phase=phase.value)
        return new

    def _fail(self, change: ModeChange, code: str, text: str, next_step: str, said: tuple[str, ...]) -> None:
        log.error("policy %s generation %s failed: %s", change.policy, change.generation, text)
        self._store(
            change,
            Phase.FAILED,
            reason_code=code,
            detail=text,
            next_step=next_step,
            said=tuple(s for s in said if s),
        )

    def _wait(self, change: ModeChange, code: str, text: str, next_step: str) -> None:
        self._store(change, Phase.WAITING, reason_code=code, detail=text, next_step=next_step)


def _landed(change: ModeChange, question: Question) -> bool:
    """Is every setting of the change current already (written before the crash, loaded by the restart)?"""
    verdict = verify.mode_verdict(change, question.inventory, question.now)
    return (verdict.ok or verdict.code == "driver-not-ready") and verify.settings_verdict(
        change, question.inventory
    ).ok


def retry(change: ModeChange, question: Question) -> ModeChange:
    """A person's retry: a change that waits goes on where it stood; a failed one is judged anew from the card.

    Raises NeedsPerson when there is nothing to retry.
    """
    if change.phase is Phase.WAITING:
        phase = Phase.BOOTED if change.boot_id != question.inventory.boot_id else Phase.STAGED
    elif change.phase is Phase.FAILED:
        phase = Phase.BOOTED if _landed(change, question) else Phase.INTENT
    else:
        raise NeedsPerson(
            f"the change of policy {change.policy} is {change.phase.value}, not failed or waiting",
            code="nothing-to-retry",
            where=f"policy {change.policy}",
            next_step="Look: linkwright status",
        )
    boot_id = question.inventory.boot_id if phase is Phase.INTENT else change.boot_id
    return msgspec.structs.replace(
        change,
        phase=phase,
        boot_id=boot_id,
        activations=0,
        reason_code="",
        detail="",
        next_step="",
        phase_since=time.time(),
    )
