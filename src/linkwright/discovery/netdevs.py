"""The network devices of the host's own namespace, with addresses, routes and uppers; by name.

From the kernel over netlink: one dump of links, one of addresses, two of routes, for all functions together. A
captured tree has no kernel to ask; there the files of class/net have to do, without addresses and routes.
"""

from __future__ import annotations

import ipaddress
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from linkwright.kernel import sysfs
from linkwright.kernel.links import Link, Links, Route
from linkwright.kernel.netlink import constants
from linkwright.kernel.system import System
from linkwright.model.inventory import Holder, Netdev

from . import listeners
from .listeners import Listeners

_IFF_UP = 1


@dataclass(frozen=True)
class HostNetdevs:
    """``links`` by name. ``listening``: servers on single addresses. ``notes``: what could not be asked."""

    links: dict[str, Netdev] = field(default_factory=dict)
    uppers: dict[str, tuple[str, ...]] = field(default_factory=dict)  # "bond0 (bond)"
    listening: Listeners | None = None
    notes: tuple[str, ...] = ()

    def holders(self, name: str, *, between: bool = False) -> tuple[Holder, ...]:
        """What the host itself does with a link. Only link-local addresses on which nobody listens: nothing.

        ``between``: the link came back from a target and goes to one again. Then an address without a route and
        without a server is what a network manager did in between, and nobody's use.
        """
        found = [Holder(kind="upper", detail=upper) for upper in self.uppers.get(name, ())]
        netdev = self.links.get(name)
        if netdev is None:
            return tuple(found)
        addresses = []
        for address in netdev.addresses:
            server = self.listening.on(address.partition("/")[0]) if self.listening is not None else ""
            if server:
                addresses.append(f"{address.partition('/')[0]} ({server})")
            elif not _link_local(address) and not (between and not netdev.routes):
                addresses.append(address.partition("/")[0])
        routes = ["default route" if r == "default" else f"route to {r}" for r in netdev.routes]
        if routes:
            found.append(Holder(kind="route", detail=", ".join([*routes, *addresses])))
        elif addresses:
            found.append(Holder(kind="address", detail=", ".join(addresses)))
        return tuple(found)

    def bond_of(self, names: Iterable[str]) -> str | None:
        """The bond that two or more of these Ethernet links are in."""
        bonds: list[str] = []
        for name in names:
            netdev = self.links.get(name)
            if netdev is not None and netdev.link_type == constants.ARPHRD_ETHER and netdev.upper is not None:
                bonds += [netdev.upper] * (f"{netdev.upper} (bond)" in self.uppers.get(name, ()))
        return next((bond for bond in bonds if bonds.count(bond) > 1), None)


def read(system: System) -> HostNetdevs:
    if system.captured:
        return _from_files(system)
    links = Links(system.netlink)
    try:
        return replace(_from_kernel(links), listening=listeners.read(system.proc))
    except OSError as problem:
        note = f"the kernel did not tell links, addresses and routes: {problem.strerror or problem}"
        return replace(_from_files(system), notes=(note,))


def _from_kernel(links: Links) -> HostNetdevs:
    found = links.dump()
    names = {link.ifindex: link.name for link in found}
    addresses: dict[int, list[str]] = defaultdict(list)
    for address in links.addresses():
        addresses[address.ifindex].append(address.text)
    routes: dict[int, dict[str, None]] = defaultdict(dict)
    for route in links.routes():
        if _by_hand(route):
            routes[route.ifindex][route.to] = None
    uppers: dict[str, list[str]] = defaultdict(list)
    for link in found:
        for below in _below(link):
            if below in names:
                uppers[names[below]].append(f"{link.name} ({link.kind})" if link.kind else link.name)
    by_index = {link.ifindex: link for link in found}
    for link in found:
        if link.master in by_index:
            master = by_index[link.master]
            uppers[link.name].append(f"{master.name} ({master.kind})" if master.kind else master.name)
    return HostNetdevs(
        links={
            link.name: netdev(
                link,
                upper=names.get(link.master) if link.master is not None else None,
                addresses=tuple(addresses[link.ifindex]),
                routes=tuple(routes[link.ifindex]),
            )
            for link in found
        },
        uppers={name: tuple(each) for name, each in uppers.items()},
    )


def netdev(
    link: Link, *, upper: str | None = None, addresses: tuple[str, ...] = (), routes: tuple[str, ...] = ()
) -> Netdev:
    """The model's value of a link that the kernel told."""
    return Netdev(
        name=link.name,
        ifindex=link.ifindex,
        link_type=link.link_type,
        address=link.address,
        mtu=link.mtu,
        up=link.up,
        carrier=link.carrier,
        alias=link.alias,
        altnames=link.altnames,
        upper=upper,
        addresses=addresses,
        routes=routes,
    )


def _below(link: Link) -> list[int]:
    """The link that a VLAN, macvlan or IPoIB child sits on. A veth's peer is beside, not below."""
    on_another = link.link is not None and link.link not in (0, link.ifindex) and link.link_netnsid is None
    return [link.link] if on_another and link.link is not None and link.kind != "veth" else []


def _by_hand(route: Route) -> bool:
    """Not one that the kernel made for an address, nor the zeroconf one to the link-local network."""
    if route.protocol == constants.RTPROT_KERNEL or route.kind != constants.RTN_UNICAST:
        return False
    return route.to == "default" or not ipaddress.ip_network(route.to).is_link_local


def _link_local(address: str) -> bool:
    return ipaddress.ip_interface(address).is_link_local


def _from_files(system: System) -> HostNetdevs:
    root = os.fspath(system.sys / "class/net")
    found = {}
    for name in sysfs.names(root) or ():
        base = f"{root}/{name}"
        index, kind = sysfs.number(f"{base}/ifindex"), sysfs.number(f"{base}/type")
        if index is None or kind is None:
            continue
        up = bool((sysfs.number(f"{base}/flags") or 0) & _IFF_UP)
        found[name] = Netdev(
            name=name,
            ifindex=index,
            link_type=kind,
            address=sysfs.text(f"{base}/address") or "",
            mtu=sysfs.number(f"{base}/mtu") or 0,
            up=up,
            carrier=up and sysfs.text(f"{base}/carrier") == "1",
            alias=sysfs.text(f"{base}/ifalias") or "",
            upper=sysfs.link_name(system.sys / "class/net" / name / "master"),
        )
    return HostNetdevs(links=found, uppers={n.name: (n.upper,) for n in found.values() if n.upper is not None})
