"""Which policy a port belongs to: selectors, protection, conflicts (interlock rules 4 and 7).

A selector's answer has three values. ``None`` (the card's identity cannot be read now) is neither yes nor no:
nothing new is begun on such a port, and nothing that is there is taken away.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..model.documents import NicSelector
from ..model.inventory import Adapter, Port
from ..model.plan import Problem
from ..model.values import PortId, parse_port_id, pci_address, port_label
from .view import View, host_own


@dataclass
class Matching:
    """``policy_of``: ports that may be worked on. ``why_not``: ports that stay untouched, and why."""

    policy_of: dict[PortId, str] = field(default_factory=dict)
    why_not: dict[PortId, str] = field(default_factory=dict)
    protected: dict[PortId, str] = field(default_factory=dict)
    uncertain: dict[PortId, set[str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def ports_of(self, policy: str) -> list[PortId]:
        return [port for port, name in self.policy_of.items() if name == policy]


def match(view: View) -> Matching:
    """Find the one policy of each port; refuse the port to all when there are two, or when it is protected."""
    found = Matching()
    hits: dict[str, list[PortId]] = {name: [] for name in view.policies}
    for port in view.ports.values():
        adapter = view.adapters[port.id]
        wanted: list[str] = []
        for name, policy in view.policies.items():
            answer = selects(policy.spec.nic_selector, adapter, port)
            if answer:
                wanted.append(name)
                hits[name].append(port.id)
            elif answer is None:
                found.uncertain.setdefault(port.id, set()).add(name)
        why = protection(view.host.protect, port)
        if why:
            found.protected[port.id] = found.why_not[port.id] = why
            found.problems += [_protected(name, port, why) for name in wanted]
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
    return found


def selects(selector: NicSelector, adapter: Adapter, port: Port) -> bool | None:
    """Does the selector name this port? All given fields must match; any value of a field may.

    None: a given field cannot be compared, because the card cannot be read now, and no other field says no.
    """
    identity, readable = adapter.identity, not adapter.faults
    answers: list[bool | None] = []
    if selector.pci_addresses:
        answers.append(port.pf.address in {_pci(a) for a in selector.pci_addresses})
    if selector.ports:
        answers.append(port.number in selector.ports)
    if selector.fabrics:
        answers.append(port.fabric in selector.fabrics)
    answers += [
        _one_of(identity.part_number, selector.part_numbers, readable),
        _one_of(identity.psid, selector.psids, readable),
        _one_of(identity.serial, selector.serial_numbers, readable),
        _one_of(identity.device_id, [d.lower().removeprefix("0x") for d in selector.device_ids], readable),
    ]
    if any(answer is False for answer in answers):
        return False
    return None if any(answer is None for answer in answers) else True


def _one_of(value: str | None, wanted: Iterable[str], readable: bool) -> bool | None:
    """True when the field is not given at all: it then forbids nothing. A card that can be read and says
    nothing (no VPD, say) has no such value; one that cannot be read may have it."""
    values = {w.strip().casefold() for w in wanted}
    if not values:
        return True
    if value is None:
        return False if readable else None
    return value.strip().casefold() in values


def _pci(text: str) -> str:
    try:
        return pci_address(text)
    except ValueError:
        return text


def protection(protect: Iterable[str], port: Port) -> str | None:
    """Why this port is never touched, in words, or None. There is no way around it but host.yaml itself."""
    for entry in protect:
        if _names(entry, port):
            return f"protected by {entry} in /etc/linkwright/host.yaml"
    own = sorted({h.detail for h in host_own(port)})
    return f"this host's own: {', '.join(own)}" if own else None


def _names(entry: str, port: Port) -> bool:
    try:
        return parse_port_id(entry) == port.id
    except ValueError:
        pass
    if any(_pci(entry) == f.address for f in port.functions):
        return True
    netdevs = [f.netdev for f in port.functions if f.netdev is not None]
    return any(entry == n.name or entry in n.altnames for n in netdevs)


def _protected(policy: str, port: Port, why: str) -> Problem:
    return Problem(
        severity="refused",
        code="port-protected",
        rule=7,
        subject=f"policy {policy}",
        text=f"{port_label(port.id)} is never touched: {why}.",
        holder=why,
        next_step=f"Name other ports in spec.nicSelector of {policy}, or free this port of what uses it.",
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
