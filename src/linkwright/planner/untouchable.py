"""Why a port is never touched, whatever policy selects it, and which line of host.yaml would change that.

In this order, the first that holds: ``protect`` in host.yaml; the card was swapped; its ports are merged into one
RDMA device; another tool manages the card; the host's own traffic. The first three cannot be allowed away:
protection is the host's word, a swapped card wants a look at it, a merged card has no ports of its own to give.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..model.inventory import Adapter, Owner, Port
from ..model.values import parse_port_id, pci_address
from .view import View, host_own

HOST_FILE = "/etc/linkwright/host.yaml"


@dataclass(frozen=True)
class Untouchable:
    """``verdict`` goes before ``why``: "is never touched: this host's own: default route". ``next_step`` may hold
    ``{policy}``."""

    code: str
    why: str
    verdict: str = "is never touched"
    severity: Literal["refused", "waiting"] = "refused"
    rule: int = 7
    holder: str = ""
    next_step: str = ""


def untouchable(view: View, adapter: Adapter, port: Port) -> Untouchable | None:
    """What keeps this port untouched; None: nothing does."""
    spec = view.host
    for entry in spec.protect:
        if names(entry, port):
            return Untouchable(
                "port-protected",
                f"protected by {entry} in {HOST_FILE}",
                next_step=f"Name other ports in spec.nicSelector of {{policy}}, or take {entry} out of protect.",
            )
    if adapter.replaced:
        return Untouchable(
            "adapter-replaced",
            f"another card sits here than the one that was known ({adapter.replaced})",
            verdict="is left alone",
            severity="waiting",
            next_step=f"If that is meant: linkwright adapter replace {port.pf.address}. "
            "A new VPI card usually arrives in InfiniBand mode.",
        )
    if adapter.merged:
        return Untouchable(
            "ports-merged",
            f"its card's ports are merged into one RDMA device ({adapter.merged})",
            holder=adapter.merged,
            next_step="Take the ports out of the bond first: a merged card has no ports of its own to give.",
        )
    owner = manages(view.question.inventory.owners, adapter, spec.take_over)
    if owner is not None:
        return Untouchable(
            "managed-elsewhere",
            f"{owner.name} manages its {owner.what} ({owner.evidence})",
            verdict="is left to another tool",
            rule=4,
            holder=f"{owner.name}: {owner.evidence}",
            next_step="Take the card out of that tool's configuration, or take it over with this line in "
            f"{HOST_FILE}: spec: {{takeOver: [{owner.name}]}}",
        )
    holders = host_own(port)
    own = sorted({h.detail for h in holders})
    if own and not any(names(entry, port) for entry in spec.allow_own_traffic):
        manager = ""
        if all(h.kind == "address" for h in holders):  # nothing needs it: a network manager may have given it
            manager = " If a network manager gave it an address by itself: linkwright host setup."
        return Untouchable(
            "port-protected",
            f"this host's own: {', '.join(own)}",
            next_step="Name other ports in spec.nicSelector of {policy}, free this port of what uses it, or allow "
            f'it in {HOST_FILE}: spec: {{allowOwnTraffic: ["{port.pf.address}"]}}{manager and "." + manager}',
        )
    return None


def manages(owners: Iterable[Owner], adapter: Adapter, taken_over: Iterable[str] = ()) -> Owner | None:
    """The first other tool that manages this card. SR-IOV settings belong to a card, so a tool that manages one PF
    manages the card."""
    taken = set(taken_over)
    functions = {f.address for p in adapter.ports for f in p.functions}
    return next((o for o in owners if o.name not in taken and (not o.pfs or functions & set(o.pfs))), None)


def names(entry: str, port: Port) -> bool:
    """Does a line of host.yaml (PCI address, port, name of a netdev) name this port?"""
    try:
        return parse_port_id(entry) == port.id
    except ValueError:
        pass
    try:
        return any(pci_address(entry) == f.address for f in port.functions)
    except ValueError:
        pass
    netdevs = [f.netdev for f in port.functions if f.netdev is not None]
    return any(entry == n.name or entry in n.altnames for n in netdevs)
