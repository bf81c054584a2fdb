"""From STAGED to the act: what has to be true first, and the release of everybody in the scope.

Whatever can be known is asked before anybody is interrupted: the window, the tool's offer of a reset, the card's
word that a restart will not do, the site's hooks. Just before the act the kernel is asked who holds a function.
"""

from __future__ import annotations

import time

from ..model.errors import LinkwrightError
from ..model.plan import Question
from ..model.records import Attachment, AttachmentState, ModeChange, Phase
from ..model.values import PortId, parse_duration, port_label
from ..planner.view import foreign, strangers
from ..planner.windows import next_opening, open_now
from . import verify
from .acts import Acts, wishes_of
from .hands import Hands
from .hooks import Hooks
from .ledger import GOES_ON, Ledger
from .world import World


class Activation:
    """Used from the reconcile loop only."""

    def __init__(self, world: World, hands: Hands, ledger: Ledger, hooks: Hooks, acts: Acts) -> None:
        self._world = world
        self._hands = hands
        self._ledger = ledger
        self._hooks = hooks
        self._acts = acts

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
                self._acts.fall_back(change, question, "reset-not-offered", f"{pf}: {why}.", at=Phase.STAGED)
                return False
        return True

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
                self._acts.reset(changes, list(adapters.values()), question)
            case "PowerCycle":
                for change in changes:
                    self._acts.power_cycle(change, question)
            case _:
                self._acts.restart(changes)
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


def _goes_on(change: ModeChange) -> bool:
    return change.phase is not Phase.WAITING or change.reason_code in GOES_ON


def _ended(attachment: Attachment, question: Question) -> bool:
    """Has the namespace that holds the interface gone?"""
    seen = question.targets.get(attachment.target)
    if seen is None or seen.state == "unknown":
        return False
    return seen.state != "running" or seen.netns_inode != attachment.netns_inode
