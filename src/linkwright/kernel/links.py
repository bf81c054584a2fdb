"""Network links, their addresses and routes, and a PF's settings for its VFs, over rtnetlink.

One link is asked for by name or index, never found by a dump: a dump with VF details holds the kernel's RTNL lock
for 1-2 ms a VF while all other users wait. Every call takes an open descriptor of the network namespace in
which to act (None: the caller's own). Errors are OSErrors with the kernel's errno and extended text; the
callers, who know the function and the target, put them into the error tree.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterable

from .linkcodec import (
    ADDRESS_HEADER,
    LINK_HEADER,
    ROUTE_HEADER,
    Address,
    Link,
    Route,
    VfInfo,
    change_attributes,
    decode_address,
    decode_link,
    decode_routes,
    decode_vfs,
    vf_attributes,
)
from .netlink import codec, constants
from .netlink.codec import Message
from .netlink.transport import Subscription, Transport

__all__ = ["Address", "Link", "Links", "MoveFailed", "Route", "VfInfo"]

_CREATE_OR_REPLACE = codec.NLM_F_CREATE | codec.NLM_F_REPLACE


class MoveFailed(OSError):
    """A request that moves a link failed. ``moved``: it is in the new namespace all the same, as ``link``,
    maybe under its old name: do_setlink (net/core/rtnetlink.c) moves, then sets MTU, address and name one by one
    and stops at the first that fails. ``moved`` False with ``link`` None: it is in neither namespace."""

    def __init__(self, cause: OSError, *, moved: bool, link: Link | None) -> None:
        super().__init__(cause.errno, cause.strerror)
        self.moved = moved
        self.link = link


class Links:
    """Typed rtnetlink over a transport. Stateless: safe to share between threads."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(
        self, name: str | None = None, ifindex: int | None = None, *, netns: int | None = None
    ) -> Link | None:
        """The link with this index, or this name or alternative name; None when there is none."""
        try:
            return decode_link(self._get(name, ifindex, netns))
        except OSError as problem:
            if problem.errno in (errno.ENODEV, errno.ENOENT):
                return None
            raise

    def dump(self, netns: int | None = None) -> list[Link]:
        """All links of the namespace, without VF details."""
        body = LINK_HEADER.pack(0, 0, 0, 0, 0)
        request = Message(constants.RTM_GETLINK, codec.NLM_F_DUMP, body)
        return [decode_link(message) for message in self._request(request, netns)]

    def events(self, *, netns: int | None = None, groups: int = constants.RTMGRP_LINK) -> Subscription:
        """RTM_NEWLINK and RTM_DELLINK as they happen (other groups: constants.RTMGRP_*)."""
        return self._transport.subscribe(constants.NETLINK_ROUTE, groups, netns=netns)

    def change(
        self,
        ifindex: int,
        netns: int | None = None,
        *,
        name: str | None = None,
        mtu: int | None = None,
        address: str | None = None,
        up: bool | None = None,
        alias: str | None = None,
        move_to: int | None = None,
        add_altnames: Iterable[str] = (),
        del_altnames: Iterable[str] = (),
    ) -> Link:
        """Change a link and return it as it is then, in the namespace in which it is then.

        ``move_to`` is an open descriptor of a namespace; move and rename travel in one request, so that the link
        is never seen under a name that may clash there. A move takes the link down, drops its addresses and
        routes, and may give it another index. Alternative names are removed before and added after. ``address``
        has 6 bytes, or 20 for InfiniBand. Older kernels refuse to rename a link that is up (EBUSY): take it down
        in a call before. Raises MoveFailed for a request with ``move_to``, OSError else.
        """
        flags, mask = (constants.IFF_UP if bit else 0 for bit in (up, up is not None))
        head = LINK_HEADER.pack(0, 0, ifindex, flags, mask)
        wanted = change_attributes(name=name, mtu=mtu, address=address, alias=alias, move_to=move_to)
        if move_to is not None:
            return self._move(ifindex, netns, move_to, name, head + wanted, (tuple(add_altnames), del_altnames))
        self._altnames(constants.RTM_DELLINKPROP, ifindex, netns, del_altnames)
        if wanted or up is not None:
            self._request(Message(constants.RTM_SETLINK, 0, head + wanted), netns)
        self._altnames(constants.RTM_NEWLINKPROP, ifindex, netns, add_altnames)
        link = self.get(ifindex=ifindex, netns=netns)
        if link is None:
            raise OSError(errno.ENODEV, f"the link with index {ifindex} disappeared while it was changed")
        return link

    def _move(
        self,
        ifindex: int,
        netns: int | None,
        move_to: int,
        name: str | None,
        body: bytes,
        altnames: tuple[Iterable[str], Iterable[str]],
    ) -> Link:
        before = self.get(ifindex=ifindex, netns=netns)
        if before is None:
            raise MoveFailed(OSError(errno.ENODEV, f"no link with index {ifindex}"), moved=False, link=None)
        if name and self.get(name=name, netns=move_to) is not None:
            # do_setlink moves first and renames second: a clash is found when the link is there already.
            taken = OSError(errno.EEXIST, f"the new namespace has a link named {name} already")
            raise MoveFailed(taken, moved=False, link=before)
        try:
            self._altnames(constants.RTM_DELLINKPROP, ifindex, netns, altnames[1])
            self._request(Message(constants.RTM_SETLINK, 0, body), netns, move_to)
        except OSError as problem:
            raise self._look_in_both(problem, before, netns, move_to, name) from problem
        link = self.get(name=name or before.name, netns=move_to)
        if link is not None and altnames[0]:
            try:
                self._altnames(constants.RTM_NEWLINKPROP, link.ifindex, move_to, altnames[0])
            except OSError as problem:
                raise MoveFailed(problem, moved=True, link=link) from problem
            link = self.get(ifindex=link.ifindex, netns=move_to)
        if link is None:
            gone = OSError(errno.ENODEV, f"{name or before.name} disappeared right after its move")
            raise MoveFailed(gone, moved=False, link=None)
        return link

    def _look_in_both(
        self, problem: OSError, before: Link, netns: int | None, move_to: int, name: str | None
    ) -> MoveFailed:
        """The kernel refused: where is the link now? Index and name may both have changed on the way."""
        here = self.get(ifindex=before.ifindex, netns=netns)
        if here is not None and here.same_device(before):
            return MoveFailed(problem, moved=False, link=here)
        try:
            there = [self.get(name=n, netns=move_to) for n in (before.name, name) if n]
            found = [link for link in there if link is not None and link.same_device(before)]
            found = found or [link for link in self.dump(move_to) if link.same_device(before)]
        except OSError:  # the new namespace is gone too; the kernel gives the link back to the host's, later
            found = []
        return MoveFailed(problem, moved=bool(found), link=found[0] if found else None)

    def _altnames(self, kind: int, ifindex: int, netns: int | None, names: Iterable[str]) -> None:
        inner = [codec.attr(constants.IFLA_ALT_IFNAME, codec.string(name)) for name in names]
        if inner:
            body = LINK_HEADER.pack(0, 0, ifindex, 0, 0) + codec.nest(constants.IFLA_PROP_LIST, *inner)
            flags = _CREATE_OR_REPLACE if kind == constants.RTM_NEWLINKPROP else 0
            self._request(Message(kind, flags, body), netns)

    def addresses(self, ifindex: int | None = None, netns: int | None = None) -> list[Address]:
        """The IP addresses of one link, or of all."""
        body = ADDRESS_HEADER.pack(0, 0, 0, 0, ifindex or 0)
        answers = self._request(Message(constants.RTM_GETADDR, codec.NLM_F_DUMP, body), netns)
        found = (decode_address(message) for message in answers if message.type == constants.RTM_NEWADDR)
        return [a for a in found if a is not None and (ifindex is None or a.ifindex == ifindex)]

    def add_address(self, ifindex: int, address: str, *, netns: int | None = None) -> None:
        """Add ``10.9.0.1/24`` or ``fd00::1/64``; nothing when it is there. IPv6 skips duplicate address detection,
        so that the address can be used at once."""
        interface = ipaddress.ip_interface(address)
        family = socket.AF_INET if interface.version == 4 else socket.AF_INET6
        packed = interface.ip.packed
        parts = [codec.attr(constants.IFA_LOCAL, packed), codec.attr(constants.IFA_ADDRESS, packed)]
        prefix = interface.network.prefixlen
        if interface.version == 6:
            parts.append(codec.attr(constants.IFA_FLAGS, codec.u32(constants.IFA_F_NODAD)))
        elif prefix < 31:  # RFC 3021: a /31 has no broadcast address
            parts.append(codec.attr(constants.IFA_BROADCAST, interface.network.broadcast_address.packed))
        scope = constants.RT_SCOPE_LINK if interface.ip.is_link_local else constants.RT_SCOPE_UNIVERSE
        head = ADDRESS_HEADER.pack(family, prefix, 0, scope, ifindex)
        self._request(Message(constants.RTM_NEWADDR, _CREATE_OR_REPLACE, head + b"".join(parts)), netns)

    def routes(self, netns: int | None = None) -> list[Route]:
        """All IPv4 and IPv6 routes of the namespace but those of the local table; a multipath route once a hop."""
        found: list[Route] = []
        for family in (socket.AF_INET, socket.AF_INET6):
            head = ROUTE_HEADER.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)
            for message in self._request(Message(constants.RTM_GETROUTE, codec.NLM_F_DUMP, head), netns):
                if message.type == constants.RTM_NEWROUTE:
                    found += [r for r in decode_routes(message) if r.table != constants.RT_TABLE_LOCAL]
        return found

    def add_route(
        self,
        to: str,
        *,
        ifindex: int,
        via: str | None = None,
        onlink: bool = False,
        metric: int | None = None,
        netns: int | None = None,
    ) -> None:
        """Add or replace a route to ``10.0.0.0/8`` or ``default`` through a link; ``onlink``: ``via`` is reached
        directly though no address of the link says so."""
        gateway = ipaddress.ip_address(via) if via else None
        version = gateway.version if gateway else 4
        network = ipaddress.ip_network("::/0" if version == 6 else "0.0.0.0/0") if to == "default" else None
        network = network or ipaddress.ip_network(to, strict=False)
        parts = [codec.attr(constants.RTA_DST, network.network_address.packed)] if network.prefixlen else []
        if gateway is not None:
            if gateway.version == network.version:
                parts.append(codec.attr(constants.RTA_GATEWAY, gateway.packed))
            else:  # an IPv4 network over an IPv6 gateway (RFC 5549)
                hop = codec.u16(socket.AF_INET6 if gateway.version == 6 else socket.AF_INET) + gateway.packed
                parts.append(codec.attr(constants.RTA_VIA, hop))
        parts.append(codec.attr(constants.RTA_OIF, codec.u32(ifindex)))
        if metric is not None:
            parts.append(codec.attr(constants.RTA_PRIORITY, codec.u32(metric)))
        head = ROUTE_HEADER.pack(
            socket.AF_INET if network.version == 4 else socket.AF_INET6,
            network.prefixlen,
            0,
            0,
            constants.RT_TABLE_MAIN,
            constants.RTPROT_STATIC,
            constants.RT_SCOPE_UNIVERSE if gateway or network.version == 6 else constants.RT_SCOPE_LINK,
            constants.RTN_UNICAST,
            constants.RTNH_F_ONLINK if onlink else 0,
        )
        self._request(Message(constants.RTM_NEWROUTE, _CREATE_OR_REPLACE, head + b"".join(parts)), netns)

    def set_vf(
        self,
        pf_ifindex: int,
        vf: int,
        *,
        mac: str | None = None,
        vlan: int | None = None,
        qos: int = 0,
        trust: bool | None = None,
        spoofchk: bool | None = None,
        link_state: int | None = None,
        node_guid: str | None = None,
        port_guid: str | None = None,
        netns: int | None = None,
    ) -> None:
        """Set what the PF's driver keeps for VF number ``vf``, in one request. GUIDs need a PF netdev of
        InfiniBand type (rtnl handle_vf_guid: EOPNOTSUPP else). ``link_state``: IFLA_VF_LINK_STATE_*."""
        first = vf_attributes(
            vf,
            mac=mac,
            vlan=vlan,
            qos=qos,
            trust=trust,
            spoofchk=spoofchk,
            link_state=link_state,
            node_guid=node_guid,
        )
        # do_setvfinfo (net/core/rtnetlink.c) returns after the first GUID: the second needs an entry of its own.
        second = vf_attributes(vf, port_guid=port_guid)
        entries = [codec.nest(constants.IFLA_VF_INFO, entry) for entry in (first, second) if entry]
        if entries:
            head = LINK_HEADER.pack(0, 0, pf_ifindex, 0, 0)
            body = head + codec.nest(constants.IFLA_VFINFO_LIST, *entries)
            self._request(Message(constants.RTM_SETLINK, 0, body), netns)

    def vf_info(self, pf_ifindex: int, *, netns: int | None = None) -> list[VfInfo]:
        """What the PF's driver keeps for each VF, by VF number; without the slow statistics."""
        mask = constants.RTEXT_FILTER_VF | constants.RTEXT_FILTER_SKIP_STATS
        return decode_vfs(self._get(None, pf_ifindex, netns, mask))

    def _get(self, name: str | None, ifindex: int | None, netns: int | None, mask: int | None = None) -> Message:
        if (name is None) == (ifindex is None):
            raise ValueError("give a name or an index")
        body = LINK_HEADER.pack(0, 0, ifindex or 0, 0, 0)
        if name is not None:
            kind = constants.IFLA_IFNAME if len(name) <= 15 else constants.IFLA_ALT_IFNAME
            body += codec.attr(kind, codec.string(name))
        if mask is not None:
            body += codec.attr(constants.IFLA_EXT_MASK, codec.u32(mask))
        answers = self._request(Message(constants.RTM_GETLINK, 0, body), netns)
        if not answers:
            raise OSError(errno.ENODEV, "the kernel did not answer with a link")
        return answers[0]

    def _request(self, message: Message, netns: int | None, passed_fd: int | None = None) -> list[Message]:
        return self._transport.request(
            constants.NETLINK_ROUTE, codec.pack(message), netns=netns, passed_fd=passed_fd
        )
