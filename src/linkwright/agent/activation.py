"""From STAGED to the new mode loaded: what has to be true first, the release of everybody in the scope, the act.

The act is a restart of the host, a reset of single adapters, or a site's own power cycle; each is stored before
it is done and done once for one value (interlock rule 3). A crash in between is judged by evidence: by the boot id
for a restart, by the firmware's own uptime for a reset.
"""

from __future__ import annotations

import time

from ..kernel import restart
from ..model.documents import Activation as Wishes
from ..model.errors import LinkwrightError
from ..model.inventory import Adapter
from ..model.plan import Question
from ..model.records import Attachment, AttachmentState, ModeChange, Phase
from ..model.values import PortId, parse_duration, port_label
from ..planner.view import foreign, strangers
from ..planner.windows import next_opening, open_now
from . import verify
from .hands import Hands
from .hooks import Hooks
from .ledger import GOES_ON, Ledger
from .staging import Staging
from .world import World

RESTART_LIMIT_S = 120.0


class Activation:
    """Used from the reconcile loop only."""

    def __init__(self, world: World, hands: Hands, ledger: Ledger, hooks: Hooks, staging: Staging) -> None:
        self._world = world
        self._hands = hands
        self._ledger = ledger
        self._hooks = hooks
        self._staging = staging

    def advance(self, changes: list[ModeChange], question: Question) -> bool:
        """``changes``: those between STAGED and their activation, in this boot. True when something was done."""
        news = False
        for change in changes:
            if change.station is Phase.STAGED and _goes_on(change):
                news = self._prepare(change, question) or news
        if news:
            return True
        going = [c for c in changes if c.station in (Phase.DRAINING, Phase.RESTARTING) and _goes_on(c)]
        for method in ("FirmwareReset", "Reboot", "PowerCycle"):
            mine = [c for c in going if c.method == method]
            if mine and self._go(mine, question):
                return True
        return False

    # -- before anybody is interrupted -----------------------------------------------------------------------

    def _prepare(self, change: ModeChange, question: Question) -> bool:
        """STAGED → DRAINING, or why not yet."""
        wishes = wishes_of(change, question)
        if change.returning_from is not None and verify.taken(change, question):
            self._ledger.move(change, Phase.BOOTED)  # the card never left the old mode: nothing to activate
            return True
        if change.returning_from is None and wishes.windows and open_now(wishes.windows, question.now) is None:
            return self._window(change, question)
        if change.method == "External":
            return self._external(change)
        if change.method == "Reboot" and verify.asks_power_cycle(change):
            if self._hooks.present("power-cycle"):
                self._ledger.move(change, Phase.STAGED, method="PowerCycle", cause=verify.POWER_CYCLE_ONLY)
                return True
            if "power-cycle-needed" not in change.overruled:
                return self._ledger.wait(
                    change,
                    Phase.STAGED,
                    "power-cycle-needed",
                    f"{verify.POWER_CYCLE_ONLY} Nobody was interrupted yet. "
                    f"{verify.evidence(change, question.inventory)}",
                    f"{verify.POWER_CYCLE} It goes on by itself afterwards. To try a plain restart instead: "
                    f'linkwright retry {change.policy} --reason "…"',
                )
        if change.method == "FirmwareReset" and not self._offered(change, question):
            return True
        asked = self._hooks.ask(change, "pre-drain", question, Phase.STAGED)
        if asked != "go":
            return asked == "news"
        self._ledger.move(change, Phase.DRAINING)
        return True

    def _window(self, change: ModeChange, question: Question) -> bool:
        opens = next_opening(wishes_of(change, question).windows, question.now)
        if opens is not None:
            self._ledger.look_within(opens.start - question.now)
        when = f"it opens {opens.text}" if opens is not None else "none of its windows ever opens"
        text = f"it is written, and the maintenance window has closed before anybody was interrupted; {when}."
        next_step = "It goes on by itself then; a restart of the host before that counts as its own."
        return self._ledger.wait(change, Phase.STAGED, "window-closed", text, next_step)

    def _external(self, change: ModeChange) -> bool:
        how = " The card says that only a power cycle loads it." if verify.asks_power_cycle(change) else ""
        return self._ledger.wait(
            change,
            Phase.STAGED,
            "external-restart",
            f"method External: it is written for the next boot and waits for somebody else's restart.{how}",
            "Restart the host when it suits; it goes on by itself afterwards.",
        )

    def _offered(self, change: ModeChange, question: Question) -> bool:
        """Does each card offer the reset now? Asked before anybody is interrupted."""
        for pf in verify.cards(change):
            try:
                offer = self._world.firmware.reset_offer(pf)
                why = "" if offer.usable else "the card offers no reset in which its driver takes part"
            except LinkwrightError as error:
                why = error.message
            if why:
                self.fall_back(change, question, "reset-not-offered", f"{pf}: {why}.", at=Phase.STAGED)
                return False
        return True

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

    # -- the release -----------------------------------------------------------------------------------------

    def _go(self, changes: list[ModeChange], question: Question) -> bool:
        """DRAINING → RESTARTING → the act, for all changes of one method."""
        adapters = {a.id: a for c in changes for a in verify.adapters(c, question.inventory)}
        resets = changes[0].method == "FirmwareReset"
        scope = frozenset(p.id for a in adapters.values() for p in a.ports) if resets else None
        held = [
            a
            for a in question.records.attachments
            if a.state is not AttachmentState.ASSIGNED and (scope is None or a.port in scope)
        ]
        if all(wishes_of(c, question).drain == "Wait" for c in changes):
            still = [a for a in held if not _ended(a, question)]
            held = [a for a in held if _ended(a, question)]
            if still:
                return self._release(held, changes, question) or self._await_end(still, changes, question)
        if self._release(held, changes, question):
            return True
        if self._in_use(changes, scope, question):
            return True
        match changes[0].method:
            case "FirmwareReset":
                for change in changes:
                    self._reset(change, list(adapters.values()), question)
            case "PowerCycle":
                for change in changes:
                    self._power_cycle(change, question)
            case _:
                self._restart([self._begun(c, "Reboot") for c in changes])
        return True

    def _release(self, held: list[Attachment], changes: list[ModeChange], question: Question) -> bool:
        """Take each interface back; True when one could not be and the changes wait for that."""
        for attachment in held:
            what = f"{attachment.target} {attachment.interface}"
            self._world.progress.emit("step", what, "release")
            released = self._hands.release(attachment, question)
            if released.state is AttachmentState.QUARANTINED:
                for change in changes:
                    self._ledger.wait(
                        change,
                        Phase.DRAINING,
                        "release-failed",
                        f"{what} could not be released: {released.reason}",
                        f'Free it, then: linkwright retry {change.policy} --reason "…"',
                    )
                return True
        return False

    def _await_end(self, held: list[Attachment], changes: list[ModeChange], question: Question) -> bool:
        names = ", ".join(sorted({a.target for a in held}))
        news = False
        for change in changes:
            limit = parse_duration(wishes_of(change, question).timeout)
            left = limit - (time.time() - change.phase_since)
            if left > 0:
                self._ledger.awaits(change, f"drain: Wait: {names} still runs", f"the end of {names}", limit)
                self._ledger.look_within(left)
                continue
            news = self._ledger.wait(
                change,
                Phase.DRAINING,
                "drain-timeout",
                f"drain: Wait: {names} did not end within {limit:.0f} s. Nobody was interrupted; they are given "
                f"their interfaces again. {verify.evidence(change, question.inventory)}",
                f'Stop {names}, or set drain: Detach; then: linkwright retry {change.policy} --reason "…"',
            ) or news
        return news

    def _in_use(self, changes: list[ModeChange], scope: frozenset[PortId] | None, question: Question) -> bool:
        """Interlock rule 2, by the kernel, just before the act: nobody holds a function in the scope."""
        for adapter in self._world.look_at_kernel(question).adapters:
            for port in adapter.ports:
                if scope is not None and port.id not in scope:
                    continue
                others = [h for f in port.functions for h in foreign(f)] if scope is not None else strangers(port)
                holders = [*others, *(h for f in port.functions for h in f.holders if h.ours)]
                for holder in holders[:1]:
                    text = f"{holder.detail} uses a function of {port_label(port.id)}."
                    for change in changes:
                        self._ledger.wait(
                            change,
                            Phase.DRAINING,
                            "function-in-use",
                            text,
                            f'Stop it or detach it; then: linkwright retry {change.policy} --reason "…"',
                        )
                    return True
        return False

    # -- the act ---------------------------------------------------------------------------------------------

    def _begun(self, change: ModeChange, what: str) -> ModeChange:
        """Stored before the act; the same act taken up again after a crash is not a second one."""
        if what in change.tried and change.phase is Phase.RESTARTING:
            return change
        return self._ledger.move(
            change, Phase.RESTARTING, tried=(*change.tried, what), activations=change.activations + 1
        )

    def _reset(self, change: ModeChange, adapters: list[Adapter], question: Question) -> None:
        mine = {a.id for a in verify.adapters(change, question.inventory)}
        for adapter in (a for a in adapters if a.id in mine):
            what, pf = f"FirmwareReset {adapter.id}", verify.card(change, adapter)
            if what in change.tried:
                uptime = self._staging.uptimes(change, question).get(adapter.id)
                if verify.was_reset(change, adapter.id, uptime, time.time()) and uptime is not None:
                    continue
                self._failed_reset(change, question, f"{pf}: the reset was interrupted and did not happen.")
                return
            change = self._begun(change, what)
            self._world.progress.emit("step", pf, "reset the adapter", phase=Phase.DRAINING.value)
            try:
                done = self._world.firmware.reset(pf)
            except LinkwrightError as error:
                words = (getattr(error, "command", ""), getattr(error, "said", ""))
                change = self._ledger.keep(change, said=(*change.said, *(w for w in words if w)))
                self._failed_reset(change, question, f"{pf}: the reset failed: {error.message}.")
                return
            change = self._ledger.keep(change, said=(*change.said, " ".join(done.command), done.said))
        self._ledger.move(change, Phase.BOOTED)

    def _failed_reset(self, change: ModeChange, question: Question, text: str) -> None:
        self.fall_back(change, question, "reset-failed", text, at=Phase.RESTARTING)

    def _restart(self, changes: list[ModeChange]) -> None:
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

    def _power_cycle(self, change: ModeChange, question: Question) -> None:
        """Let the site's own hook do it. Stored before, because the power may go while the hook runs."""
        begun = self._begun(change, "PowerCycle")
        if self._hooks.ask(begun, "power-cycle", question, Phase.RESTARTING) == "go":
            self._await_the_end([begun], "the power-cycle hook said yes")


def outsiders(change: ModeChange, question: Question) -> list[str]:
    """Targets with an interface that the yes to this change did not name."""
    if wishes_of(change, question).drain == "Wait":
        return []
    live = {a.target for a in question.records.attachments if a.state is not AttachmentState.ASSIGNED}
    return sorted(live - {*change.targets, *change.also_interrupts})


def wishes_of(change: ModeChange, question: Question) -> Wishes:
    """``spec.activation`` of the change's policy; the defaults when the policy went meanwhile."""
    found = (p.spec.activation for p in question.desired.policies if p.name == change.policy)
    return next(found, Wishes())


def _goes_on(change: ModeChange) -> bool:
    return change.phase is not Phase.WAITING or change.reason_code in GOES_ON


def _ended(attachment: Attachment, question: Question) -> bool:
    """Has the namespace that holds the interface gone?"""
    seen = question.targets.get(attachment.target)
    if seen is None or seen.state == "unknown":
        return False
    return seen.state != "running" or seen.netns_inode != attachment.netns_inode
