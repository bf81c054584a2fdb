"""Mode changes: from a stored intent over the activation to the verified mode. One change is one activation.

The engine owns a change from INTENT on and moves it station by station; each move is stored before what it
announces is done, so after a crash anywhere the next pass finds the station and goes on. Which station is right
after a restart follows from the boot id stored with the intent, never from the clock.

::

    staging      INTENT → STAGED: Next Boot is written (a refused write interrupts nobody and fails alone)
    activation   STAGED → DRAINING: what must be true first, then whoever is in the scope is released
    acts         RESTARTING: a restart, resets, or a site's power cycle
    aftermath    BOOTED → VERIFY_MODE → VERIFY_FABRIC → FUNCTIONS → REATTACH → DONE, or what follows a failure
    (here)       a restart that happened, whoever did it; a policy that was changed or deleted in the middle

All changes of a host share one restart. Any restart of the host activates what is staged: one that somebody else
did counts as ours.
"""

from __future__ import annotations

import time

import msgspec

from ..model.errors import Busy, LinkwrightError, NeedsPerson
from ..model.inventory import Adapter
from ..model.plan import Plan, Question
from ..model.records import AttachmentState, ModeChange, Phase
from ..targets.recovery import slot_only
from . import verify
from .activation import Activation
from .acts import Acts
from .aftermath import Aftermath, forward
from .hands import Hands
from .hooks import Hooks
from .ledger import Ledger
from .staging import Staging
from .world import World

BEFORE_RESTART = (Phase.INTENT, Phase.STAGED, Phase.DRAINING, Phase.RESTARTING)


class Engine:
    """Moves open changes on. ``advance`` returns True when something was done and the world must be read again."""

    def __init__(self, world: World, hands: Hands) -> None:
        self._world = world
        self._ledger = Ledger(world)
        hooks = Hooks(world, self._ledger)
        self._staging = Staging(world, self._ledger)
        acts = Acts(world, self._ledger, hooks, self._staging)
        self._activation = Activation(world, hands, self._ledger, hooks, acts)
        self._aftermath = Aftermath(world, hands, self._ledger, hooks, acts)

    @property
    def look_again_s(self) -> float | None:
        """While something is awaited that may come without an event."""
        return self._ledger.look_again_s

    def begin(self, change: ModeChange, question: Question, who: str) -> None:
        """Store the intent with boot id, before-values and the firmware's uptime: the write-ahead."""
        uptimes = self._staging.uptimes(change, question)
        now = time.time()
        self._ledger.move(
            change,
            Phase.INTENT,
            boot_id=question.inventory.boot_id,
            uptime_before=uptimes,
            intent_at=now,
            approved_by=who,
            started=now,
        )

    def advance(self, question: Question) -> bool:
        self._ledger.look_again_s = None
        changes = [c for c in question.records.changes if c.open and c.phase is not Phase.PLANNED]
        before = [c for c in changes if c.station in BEFORE_RESTART]
        booted = [c for c in before if c.boot_id != question.inventory.boot_id]
        if booted:
            self._forget_lost_functions(question)
            for change in booted:
                self._after_boot(change, question)
            return True
        swapped = [c for c in changes if (card := _swapped(c, question)) and self._wait_for_swapped(c, card)]
        changes = [c for c in changes if not _swapped(c, question)]
        before = [c for c in before if c in changes]
        self._forget_verdicts(question)
        if swapped or sum(self._superseded(change, question) for change in changes):
            return True
        acted = False
        if not question.desired.frozen_by:
            for change in before:
                again = change.phase is Phase.WAITING and change.reason_code == "firmware-busy"
                if change.phase is Phase.INTENT or (change.station is Phase.INTENT and again):
                    acted = self._staging.stage(change, question) or acted
            if not acted:
                acted = self._activation.advance([c for c in before if c.station is not Phase.INTENT], question)
        for change in changes:
            if change not in before:
                acted = self._aftermath.advance(change, question) or acted
        return acted

    def settle(self, plan: Plan, question: Question) -> bool:
        """FUNCTIONS → REATTACH → DONE, when the plan holds nothing more for the changes' ports."""
        changes = [c for c in question.records.changes if c.phase in (Phase.FUNCTIONS, Phase.REATTACH)]
        return sum(self._aftermath.settle(change, plan, question) for change in changes) > 0

    def _wait_for_swapped(self, change: ModeChange, card: Adapter) -> bool:
        """A change of a card that is another one by now is about nothing any more: a person looks at it."""
        address = card.ports[0].pf.address
        return self._ledger.wait(
            change,
            change.station,
            "adapter-replaced",
            f"another card sits at {address} than the one that was known ({card.replaced})",
            f"If that is meant: linkwright adapter replace {address}",
        )

    # -- after a restart -------------------------------------------------------------------------------------

    def _forget_lost_functions(self, question: Question) -> None:
        """A restart undid every attachment: what is left of each is its slot."""
        with self._world.store.transaction():
            for attachment in question.records.attachments:
                lost = attachment.boot_id != question.inventory.boot_id
                if lost and attachment.state is not AttachmentState.ASSIGNED:
                    left = slot_only(attachment, reason=attachment.reason)
                    self._world.store.put_attachment(msgspec.structs.replace(left, since=time.time()))

    def _after_boot(self, change: ModeChange, question: Question) -> None:
        if change.station is Phase.INTENT and not _landed(change, question):
            # The crash came before the write: the intent holds, so it is written now, in this boot.
            self._ledger.move(change, Phase.INTENT, boot_id=question.inventory.boot_id)
            return
        fields: dict[str, object] = {}
        if change.method == "FirmwareReset":
            fields["method"] = "Reboot"  # the host was restarted instead
        if "Reboot" not in change.tried and change.method != "PowerCycle":
            fields |= {
                "tried": (*change.tried, "Reboot"),
                "activations": change.activations + 1,
                "said": (*change.said, "The host was restarted by somebody else; that counts as the activation."),
            }
        self._ledger.move(change, Phase.BOOTED, **fields)

    def _forget_verdicts(self, question: Question) -> None:
        """A verdict on a generation that is not the policy's any more is history, not a state of the host."""
        for change in question.records.changes:
            if change.phase is Phase.FAILED and change.reason_code != "not-put-back":
                why = _replaced_by(change, question)
                if why:
                    self._ledger.end(change, "superseded", f"{why}. It had failed: {change.detail}")

    # -- nobody wants it any more ----------------------------------------------------------------------------

    def _superseded(self, change: ModeChange, question: Question) -> bool:
        """The policy was changed or deleted meanwhile. Before the activation what was staged is put back; after it
        a change to a mode that nobody wants ends where it stands, and the next generation goes on from there."""
        desired = question.desired
        why = _replaced_by(change, question)
        if not why or desired.frozen_by or not desired.host.spec.allow.firmware:
            return False
        if change.station in BEFORE_RESTART and change.phase is not Phase.RESTARTING:
            try:
                back = self._staging.put_back(change)
            except Busy as error:
                self._ledger.awaits(change, str(error), "the card to be free")
                self._ledger.look_within(2.0)
                return False
            except LinkwrightError as error:
                text = f"{why}, and what was staged could not be put back: {error.message}."
                self._ledger.fail(forward(change), "not-put-back", text, error.next_step)
                return True
            put = f"put back for the next boot: {', '.join(back)}" if back else "nothing was staged"
            self._ledger.end(forward(change), "taken-back", f"{why} before the activation; {put}.")
            return True
        same = any(p.name == change.policy and p.spec.link_mode == change.wanted for p in desired.policies)
        if same or change.station in BEFORE_RESTART:
            return False
        self._ledger.end(forward(change), "superseded", f"{why} after the activation, at {change.station.value}.")
        return True


def _replaced_by(change: ModeChange, question: Question) -> str:
    """What took the place of the change's generation; empty while that is the policy's own."""
    desired = question.desired
    if all(p.name != change.policy for p in desired.policies):
        return "the policy was deleted"
    generation = desired.generations.get(change.policy, 0)
    return "" if generation == change.generation else f"generation {generation} took its place"


def _swapped(change: ModeChange, question: Question) -> Adapter | None:
    cards = [question.inventory.adapter_of(port) for port in change.ports]
    return next((c for c in cards if c is not None and c.replaced), None)


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
    booted = change.boot_id != question.inventory.boot_id
    if change.phase is Phase.WAITING:
        if change.station in BEFORE_RESTART:
            phase = Phase.BOOTED if booted else Phase.STAGED
            phase = Phase.INTENT if change.station is Phase.INTENT else phase
        else:
            phase = change.station
    elif change.phase is Phase.FAILED:
        phase = Phase.BOOTED if _landed(change, question) else Phase.INTENT
    else:
        raise NeedsPerson(
            f"the change of policy {change.policy} is {change.phase.value}, not failed or waiting",
            code="nothing-to-retry",
            where=f"policy {change.policy}",
            next_step="Look: linkwright status",
        )
    anew = phase in (Phase.INTENT, Phase.STAGED)
    return msgspec.structs.replace(
        change,
        phase=phase,
        boot_id=question.inventory.boot_id if phase is Phase.INTENT else change.boot_id,
        uptime_before={} if phase is Phase.INTENT else change.uptime_before,
        activations=0 if anew else change.activations,
        tried=() if anew else change.tried,
        said=() if phase is Phase.INTENT else change.said,
        overruled=(*change.overruled, change.reason_code),
        returned_to=None,
        stopped_at=None,
        cause="",
        reason_code="",
        detail="",
        next_step="",
        phase_since=time.time(),
    )
