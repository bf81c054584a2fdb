"""Which policy a port belongs to: selectors, and what keeps a port from all of them (interlock rules 4 and 7).

Where a selector answers ``None`` (selectors.py: the card's identity cannot be read now) nothing new is begun on
the port, and nothing that is there is taken away. What keeps a port untouched whatever selects it (the host's own
traffic, another tool, a swapped card) is in ``untouchable.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from ..model.inventory import Adapter, Port
from ..model.plan import PortMatch, Problem
from ..model.values import PortId, port_label
from .selectors import compared, selects, verdict
from .untouchable import Untouchable, untouchable
from .view import View


@dataclass
class Matching:
    """``policy_of``: ports that may be worked on. ``why_not``: ports that stay untouched, and why.
    ``compared``: every port with every policy, field by field, for ``plan --explain``."""

    policy_of: dict[PortId, str] = field(default_factory=dict)
    why_not: dict[PortId, str] = field(default_factory=dict)
    protected: dict[PortId, str] = field(default_factory=dict)
    uncertain: dict[PortId, set[str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    compared: list[PortMatch] = field(default_factory=list)

    def ports_of(self, policy: str) -> list[PortId]:
        return [port for port, name in self.policy_of.items() if name == policy]

    def explained(self) -> tuple[PortMatch, ...]:
        """Every port beside every policy, and what keeps a named port untouched all the same."""
        return tuple(
            msgspec.structs.replace(each, why_not=self.why_not.get(each.port, "") if each.answer else "")
            for each in self.compared
        )


def match(view: View) -> Matching:
    """Find the one policy of each port; refuse the port to all when there are two, or when it is protected."""
    found = Matching()
    hits: dict[str, list[PortId]] = {name: [] for name in view.policies}
    for port in view.ports.values():
        adapter = view.adapters[port.id]
        wanted: list[str] = []
        for name, policy in view.policies.items():
            fields = compared(policy.spec.nic_selector, adapter, port)
            answer = verdict(fields)
            found.compared.append(PortMatch(port=port.id, policy=name, answer=answer, fields=fields))
            if answer:
                wanted.append(name)
                hits[name].append(port.id)
            elif answer is None:
                found.uncertain.setdefault(port.id, set()).add(name)
        kept = untouchable(view, adapter, port)
        if kept is not None:
            found.why_not[port.id] = kept.why
            if wanted or kept.code == "port-protected":
                found.protected[port.id] = kept.why
            found.problems += [_untouched(name, port, kept) for name in wanted]
        elif wanted and port.id in found.uncertain:
            unsure = ", ".join(sorted(found.uncertain[port.id]))
            found.why_not[port.id] = f"the card cannot be read, so policy {unsure} may name it as well"
            found.problems += [_unsure(name, port, unsure) for name in wanted]
        elif len(wanted) > 1:
            found.why_not[port.id] = f"policies {' and '.join(wanted)} both name it"
            found.problems += [_conflict(name, port, wanted) for name in wanted]
        elif wanted:
            found.policy_of[port.id] = wanted[0]
    for name, ports in hits.items():
        if not ports:
            found.problems.append(_no_match(name, view, found))
        else:
            found.problems += _one_serial(name, ports, view)
    return found


def _untouched(policy: str, port: Port, kept: Untouchable) -> Problem:
    return Problem(
        severity=kept.severity,
        code=kept.code,
        rule=kept.rule,
        subject=f"policy {policy}",
        text=f"{port_label(port.id)} {kept.verdict}: {kept.why}.",
        holder=kept.holder or kept.why,
        next_step=kept.next_step.replace("{policy}", policy),
    )


def _conflict(policy: str, port: Port, wanted: list[str]) -> Problem:
    others = ", ".join(w for w in wanted if w != policy)
    return Problem(
        severity="refused",
        code="policy-conflict",
        rule=4,
        subject=f"policy {policy}",
        text=f"{port_label(port.id)} is also named by policy {others}; neither is applied to it.",
        holder=f"policy {others}",
        next_step=f"Narrow spec.nicSelector of {policy} or of {others}, so that one of them names this port.",
    )


def _unsure(policy: str, port: Port, others: str) -> Problem:
    return Problem(
        severity="waiting",
        code="identity-unknown",
        subject=f"policy {policy}",
        text=f"{port_label(port.id)} is left as it is: the card cannot be read now, and policy {others} may name "
        "it as well.",
        holder=f"policy {others}",
        next_step="Look at the adapter's fault: linkwright nics",
    )


def _no_match(policy: str, view: View, found: Matching) -> Problem:
    unsure = [port_label(p) for p, names in found.uncertain.items() if policy in names]
    if unsure:
        return Problem(
            severity="waiting",
            code="identity-unknown",
            subject=f"policy {policy}",
            text=f"cannot tell whether it names {', '.join(unsure)}: the card's identity cannot be read now.",
            next_step="Look at the adapter's fault: linkwright nics. Or select by pciAddresses.",
        )
    selector = view.policies[policy].spec.nic_selector
    secondary = sorted(
        (p.id, p.secondary_of)
        for a in view.question.inventory.adapters
        for p in a.ports
        if p.secondary_of is not None and selects(selector, a, p)
    )
    text = "its nicSelector matches no port of this host."
    if secondary:
        text = (
            f"its nicSelector matches only {port_label(secondary[0][0])}, a second PCI connector of "
            f"{port_label(secondary[0][1])}; name that port instead."
        )
    return Problem(
        severity="note",
        code="matches-nothing",
        subject=f"policy {policy}",
        text=text,
        next_step="See what this host has: linkwright nics",
    )


def _one_serial(policy: str, ports: list[PortId], view: View) -> list[Problem]:
    """Boards with several cards may give all of them one serial number: then it names them all."""
    serials = {s.strip().casefold() for s in view.policies[policy].spec.nic_selector.serial_numbers}
    out = []
    for serial in sorted(serials):
        cards = {a.id: p for p in ports if _serial(a := view.adapters[p]) == serial}
        if len(cards) > 1:
            out.append(
                Problem(
                    severity="note",
                    code="serial-not-unique",
                    subject=f"policy {policy}",
                    text=f"serial number {serial.upper()} is that of {len(cards)} cards of this host; all of them "
                    f"are named: {', '.join(port_label(p) for p in sorted(cards.values()))}.",
                    next_step="To name one of them add spec.nicSelector.pciAddresses.",
                )
            )
    return out


def _serial(adapter: Adapter) -> str:
    return (adapter.identity.serial or "").strip().casefold()
