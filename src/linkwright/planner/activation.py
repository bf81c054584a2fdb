"""How a change is activated: by a restart of the host, a reset of the adapter, or by somebody else's restart.

``Auto`` restarts the host. It resets only the adapter where that is known to be safe: host.yaml lists the card's
PSID and firmware as proven and allows resets, the tool reports a reset in which the driver takes part, and nobody
but targets of ours (which the plan takes back and names) uses a function of the adapter.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from ..model.documents import HostConfigSpec, LinkPolicySpec
from ..model.inventory import Adapter, Holder, Port
from ..model.plan import Problem
from ..model.values import PortId, parse_duration, port_label
from .decided import Decided
from .modechange import Draft
from .view import foreign, strangers
from .windows import next_opening, open_now

Way = Literal["Reboot", "FirmwareReset", "External"]


@dataclass(frozen=True)
class Closed:
    """A policy whose windows are all closed now; its change begins in the next one."""

    key: str
    problem: Problem


def way_of(decided: Decided, draft: Draft) -> Way:
    """By what the draft is activated, were it alone."""
    method = decided.view.policies[draft.policy].spec.activation.method
    if method in ("Reboot", "External", "FirmwareReset"):
        return method
    safe = all(_may_reset(decided, a) for a in adapters_of(decided, draft))
    return "FirmwareReset" if safe else "Reboot"


def adapters_of(decided: Decided, draft: Draft) -> list[Adapter]:
    """The cards that the draft writes to, by id."""
    found = {decided.view.adapters[p].id: decided.view.adapters[p] for p in draft.ports}
    return [found[name] for name in sorted(found)]


def proven(host: HostConfigSpec, adapter: Adapter) -> bool:
    """Does host.yaml list this card, with the firmware that runs now (``*`` and ``?`` as in file names)?"""
    psid, firmware = adapter.identity.psid, adapter.identity.firmware
    return psid is not None and firmware is not None and any(
        each.psid == psid and fnmatchcase(firmware, each.firmware) for each in host.reset_proven
    )


def _may_reset(decided: Decided, adapter: Adapter) -> bool:
    host = decided.view.host
    return (
        host.allow.reset
        and proven(host, adapter)
        and adapter.reset_offered is True
        and not any(foreign(f) for p in adapter.ports for f in p.functions)
    )


def forbidden_by_use(decided: Decided, draft: Draft) -> Problem | None:
    """Interlock rule 2 over the scope of the activation: the host for a restart, the adapter for a reset."""
    way = way_of(decided, draft)
    if way == "External":
        return None  # whoever restarts the host answers for it
    if way == "Reboot":
        every = sorted((p for a in decided.view.question.inventory.adapters for p in a.ports), key=lambda p: p.id)
        held = next(((p, h) for p in every for h in strangers(p)), None)
        return None if held is None else _in_use(draft.policy, "this host cannot restart", *held)
    for adapter in adapters_of(decided, draft):
        for port in adapter.ports:
            for holder in (h for f in port.functions for h in foreign(f)):
                return _in_use(draft.policy, "the adapter cannot be reset", port, holder)
        if adapter.reset_offered is False:
            where = port_label(adapter.ports[0].id)
            return Problem(
                severity="refused",
                code="reset-not-offered",
                subject=f"policy {draft.policy}",
                text=f"the card of {where} offers no reset in which its driver takes part; nothing was written.",
                next_step=f"Set spec.activation.method of {draft.policy} to Reboot or Auto.",
            )
    return None


def _in_use(policy: str, what: str, port: Port, holder: Holder) -> Problem:
    return Problem(
        severity="refused",
        code="function-in-use",
        rule=2,
        subject=f"policy {policy}",
        text=f"{what}: {holder.detail} uses a function of {port_label(port.id)}.",
        holder=holder.detail,
        next_step="Stop it or detach it first.",
    )


def closed(decided: Decided, policy: str) -> Closed | None:
    """Why the policy's change may not begin at this hour; None while a window is open, or without windows."""
    windows, now = decided.view.policies[policy].spec.activation.windows, decided.view.question.now
    if not windows or open_now(windows, now) is not None:
        return None
    opens = next_opening(windows, now)
    when = f"it opens {opens.text}" if opens is not None else "none of its windows ever opens"
    return Closed(
        key=f"window:{policy}",
        problem=Problem(
            severity="waiting",
            code="window-closed",
            subject=f"policy {policy}",
            text=f"the change waits for its maintenance window; {when}.",
            next_step="It begins by itself then. To do it now, take spec.activation.windows out.",
        ),
    )


def waits_for_holders(policy: str, spec: LinkPolicySpec, targets: tuple[str, ...]) -> Problem | None:
    """``drain: Wait``: nobody is interrupted; the activation comes when the targets have ended."""
    if spec.activation.drain != "Wait" or not targets:
        return None
    limit = int(parse_duration(spec.activation.timeout))
    return Problem(
        severity="waiting",
        code="drain-waits",
        subject=f"policy {policy}",
        text=f"drain: Wait: the change begins and waits until {', '.join(targets)} have ended, at most {limit} s.",
        holder=", ".join(targets),
        next_step="Stop them, or set spec.activation.drain to Detach.",
    )


def external_note(policy: str) -> Problem:
    return Problem(
        severity="note",
        code="external-restart",
        subject=f"policy {policy}",
        text="method External: it is written for the next boot, and goes on after somebody else's restart of "
        "this host.",
        next_step="Restart the host when it suits.",
    )


def ports_of(adapters: list[Adapter]) -> frozenset[PortId]:
    return frozenset(p.id for a in adapters for p in a.ports)
