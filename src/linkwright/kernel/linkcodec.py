"""rtnetlink's structures to values and back: links, addresses, routes, VF settings. Pure; links.py talks.

The ``struct ifla_vf_*`` layouts are those of include/uapi/linux/if_link.h with the compiler's padding.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from dataclasses import dataclass

from .netlink import codec, constants
from .netlink.codec import Message

LINK_HEADER = struct.Struct("=BxHiII")  # struct ifinfomsg: family, type, index, flags, change
ADDRESS_HEADER = struct.Struct("=BBBBI")  # struct ifaddrmsg: family, prefix length, flags, scope, index
# struct rtmsg: family, destination and source length, tos, table, protocol, scope, type, flags
ROUTE_HEADER = struct.Struct("=BBBBBBBBI")
_NEXTHOP = struct.Struct("=HBBi")  # struct rtnexthop: length, flags, hops, index
_OPERSTATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")

VF_MAC = struct.Struct("=I32s")  # struct ifla_vf_mac; ifla_vf_broadcast is the 32 bytes alone
VF_VLAN = struct.Struct("=III")
VF_PAIR = struct.Struct("=II")  # spoofchk, link_state, rss_query_en, trust, tx_rate
VF_GUID = struct.Struct("=I4xQ")  # struct ifla_vf_guid: the u64 is aligned to 8
_VF_RATE = struct.Struct("=III")


@dataclass(frozen=True)
class Link:
    """A network device in one namespace. ``address`` has 6 or 20 bytes; ``parent`` is the PCI address when it
    sits on a PCI function; ``link`` the index of the device below it (VLAN, macvlan) or of its peer (veth), which
    is in namespace ``link_netnsid`` when that is set."""

    ifindex: int
    name: str
    link_type: int
    address: str = ""
    broadcast: str = ""
    mtu: int = 0
    min_mtu: int = 0
    max_mtu: int = 0
    up: bool = False
    carrier: bool = False
    operstate: str = "unknown"
    alias: str = ""
    altnames: tuple[str, ...] = ()
    master: int | None = None
    link: int | None = None
    kind: str = ""
    parent: str = ""
    permanent_address: str = ""
    link_netnsid: int | None = None

    def same_device(self, other: Link) -> bool:
        """Whether both are one device seen twice, where index and name may differ (before and after a move)."""
        if self.parent or other.parent:
            return self.parent == other.parent and self.link_type == other.link_type
        return (self.kind, self.link_type, self.address) == (other.kind, other.link_type, other.address)


@dataclass(frozen=True)
class Address:
    """``text``: ``10.0.0.7/24``. ``scope``: 0 is global, 253 link."""

    ifindex: int
    text: str
    scope: int
    flags: int = 0
    broadcast: str = ""

    @property
    def link_local(self) -> bool:
        return ipaddress.ip_interface(self.text).is_link_local


@dataclass(frozen=True)
class Route:
    """``to``: ``default`` or ``10.0.0.0/8``. ``protocol`` 2 is the kernel's own, made by an address."""

    to: str
    ifindex: int
    via: str = ""
    protocol: int = 0
    table: int = constants.RT_TABLE_MAIN
    kind: int = constants.RTN_UNICAST
    metric: int = 0
    onlink: bool = False


@dataclass(frozen=True)
class VfInfo:
    """What a PF's driver keeps for a VF. GUIDs are None when it does not tell (Linux before 5.5, Ethernet)."""

    vf: int
    mac: str = ""
    vlan: int = 0
    qos: int = 0
    spoofchk: bool = False
    trust: bool = False
    link_state: int = 0
    min_tx_rate: int = 0
    max_tx_rate: int = 0
    node_guid: str | None = None
    port_guid: str | None = None


def hexbytes(data: bytes) -> str:
    """``aa:bb:cc``: hardware addresses as the kernel's tools write them."""
    return data.hex(":")


def guid_text(value: int) -> str:
    return value.to_bytes(8, "big").hex(":")


def guid_number(text: str) -> int:
    """The u64 of a GUID; its first byte is the most significant one (iproute2 lib/utils.c get_guid)."""
    return int(text.replace(":", ""), 16)


def change_attributes(
    *, name: str | None, mtu: int | None, address: str | None, alias: str | None, move_to: int | None
) -> bytes:
    parts = []
    if move_to is not None:
        parts.append(codec.attr(constants.IFLA_NET_NS_FD, codec.u32(move_to)))
    if name is not None:
        parts.append(codec.attr(constants.IFLA_IFNAME, codec.string(name)))
    if mtu is not None:
        parts.append(codec.attr(constants.IFLA_MTU, codec.u32(mtu)))
    if address is not None:
        parts.append(codec.attr(constants.IFLA_ADDRESS, bytes.fromhex(address.replace(":", ""))))
    if alias is not None:  # without the closing zero: an empty attribute removes the alias
        parts.append(codec.attr(constants.IFLA_IFALIAS, alias.encode()))
    return b"".join(parts)


def decode_link(message: Message) -> Link:
    """An RTM_NEWLINK (or RTM_DELLINK) message."""
    _, link_type, ifindex, flags, _ = LINK_HEADER.unpack_from(message.body)
    found = codec.attr_map(message.body, LINK_HEADER.size)

    def number(kind: int) -> int | None:
        return codec.read_u32(found[kind]) if kind in found else None

    def text(kind: int) -> str:
        return codec.read_string(found.get(kind, b""))

    info = codec.attr_map(found.get(constants.IFLA_LINKINFO, b""))
    names = codec.attrs(found.get(constants.IFLA_PROP_LIST, b""))
    nsid = found.get(constants.IFLA_LINK_NETNSID)
    operstate = codec.read_u8(found.get(constants.IFLA_OPERSTATE, b"\0"))
    return Link(
        ifindex=ifindex,
        name=text(constants.IFLA_IFNAME),
        link_type=link_type,
        address=hexbytes(found.get(constants.IFLA_ADDRESS, b"")),
        broadcast=hexbytes(found.get(constants.IFLA_BROADCAST, b"")),
        mtu=number(constants.IFLA_MTU) or 0,
        min_mtu=number(constants.IFLA_MIN_MTU) or 0,
        max_mtu=number(constants.IFLA_MAX_MTU) or 0,
        up=bool(flags & constants.IFF_UP),
        carrier=bool(found.get(constants.IFLA_CARRIER, b"\0")[0]) and bool(flags & constants.IFF_UP),
        operstate=_OPERSTATES[operstate] if operstate < len(_OPERSTATES) else str(operstate),
        alias=text(constants.IFLA_IFALIAS),
        altnames=tuple(codec.read_string(v) for kind, v in names if kind == constants.IFLA_ALT_IFNAME),
        master=number(constants.IFLA_MASTER),
        link=number(constants.IFLA_LINK),
        kind=codec.read_string(info.get(constants.IFLA_INFO_KIND, b"")),
        parent=text(constants.IFLA_PARENT_DEV_NAME),
        permanent_address=hexbytes(found.get(constants.IFLA_PERM_ADDRESS, b"")),
        link_netnsid=codec.read_s32(nsid) if nsid is not None else None,
    )


def decode_address(message: Message) -> Address | None:
    family, prefix, flags, scope, ifindex = ADDRESS_HEADER.unpack_from(message.body)
    found = codec.attr_map(message.body, ADDRESS_HEADER.size)
    packed = found.get(constants.IFA_LOCAL) or found.get(constants.IFA_ADDRESS)
    if packed is None or family not in (socket.AF_INET, socket.AF_INET6):
        return None
    broadcast = found.get(constants.IFA_BROADCAST)
    return Address(
        ifindex=ifindex,
        text=f"{ipaddress.ip_address(packed)}/{prefix}",
        scope=scope,
        flags=codec.read_u32(found[constants.IFA_FLAGS]) if constants.IFA_FLAGS in found else flags,
        broadcast=str(ipaddress.ip_address(broadcast)) if broadcast else "",
    )


def decode_routes(message: Message) -> list[Route]:
    """One RTM_NEWROUTE: one value for each hop that has a device."""
    family, prefix, _, _, table, protocol, _, kind, flags = ROUTE_HEADER.unpack_from(message.body)
    if family not in (socket.AF_INET, socket.AF_INET6):
        return []
    found = codec.attr_map(message.body, ROUTE_HEADER.size)
    to = f"{ipaddress.ip_address(found[constants.RTA_DST])}/{prefix}" if constants.RTA_DST in found else "default"
    if constants.RTA_TABLE in found:
        table = codec.read_u32(found[constants.RTA_TABLE])
    metric = codec.read_u32(found[constants.RTA_PRIORITY]) if constants.RTA_PRIORITY in found else 0

    def hop(ifindex: int, inner: dict[int, bytes], hop_flags: int) -> Route:
        gateway = inner.get(constants.RTA_GATEWAY) or inner.get(constants.RTA_VIA, b"")[2:]
        return Route(
            to=to,
            ifindex=ifindex,
            via=str(ipaddress.ip_address(gateway)) if gateway else "",
            protocol=protocol,
            table=table,
            kind=kind,
            metric=metric,
            onlink=bool(hop_flags & constants.RTNH_F_ONLINK),
        )

    if constants.RTA_OIF in found:
        return [hop(codec.read_u32(found[constants.RTA_OIF]), found, flags)]
    hops = []
    rest = found.get(constants.RTA_MULTIPATH, b"")
    while len(rest) >= _NEXTHOP.size:
        length, hop_flags, _, ifindex = _NEXTHOP.unpack_from(rest)
        if length < _NEXTHOP.size:
            break
        hops.append(hop(ifindex, codec.attr_map(rest[:length], _NEXTHOP.size), hop_flags))
        rest = rest[length + (-length % 4) :]
    return hops


def vf_attributes(
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
) -> bytes:
    """The inside of one IFLA_VF_INFO, in the order of the attribute numbers."""
    parts = []
    if mac is not None:
        parts.append(codec.attr(constants.IFLA_VF_MAC, VF_MAC.pack(vf, bytes.fromhex(mac.replace(":", "")))))
    if vlan is not None:
        parts.append(codec.attr(constants.IFLA_VF_VLAN, VF_VLAN.pack(vf, vlan, qos)))
    if spoofchk is not None:
        parts.append(codec.attr(constants.IFLA_VF_SPOOFCHK, VF_PAIR.pack(vf, spoofchk)))
    if link_state is not None:
        parts.append(codec.attr(constants.IFLA_VF_LINK_STATE, VF_PAIR.pack(vf, link_state)))
    if trust is not None:
        parts.append(codec.attr(constants.IFLA_VF_TRUST, VF_PAIR.pack(vf, trust)))
    if node_guid is not None:
        parts.append(codec.attr(constants.IFLA_VF_IB_NODE_GUID, VF_GUID.pack(vf, guid_number(node_guid))))
    if port_guid is not None:
        parts.append(codec.attr(constants.IFLA_VF_IB_PORT_GUID, VF_GUID.pack(vf, guid_number(port_guid))))
    return b"".join(parts)


def decode_vfs(message: Message) -> list[VfInfo]:
    """The IFLA_VFINFO_LIST of an RTM_NEWLINK that was asked for with RTEXT_FILTER_VF."""
    found = codec.attr_map(message.body, LINK_HEADER.size)
    address_length = len(found.get(constants.IFLA_ADDRESS, b"")) or 6
    vfs = []
    for kind, body in codec.attrs(found.get(constants.IFLA_VFINFO_LIST, b"")):
        if kind == constants.IFLA_VF_INFO:
            vfs.append(_decode_vf(codec.attr_map(body), address_length))
    return sorted(vfs, key=lambda vf: vf.vf)


def _decode_vf(inner: dict[int, bytes], address_length: int) -> VfInfo:
    vf, mac = VF_MAC.unpack_from(inner[constants.IFLA_VF_MAC])
    _, vlan, qos = VF_VLAN.unpack_from(inner.get(constants.IFLA_VF_VLAN, bytes(VF_VLAN.size)))
    _, low, high = _VF_RATE.unpack_from(inner.get(constants.IFLA_VF_RATE, bytes(_VF_RATE.size)))

    def setting(kind: int) -> int:
        value = VF_PAIR.unpack_from(inner.get(kind, bytes(VF_PAIR.size)))[1]
        return 0 if value == 0xFFFFFFFF else int(value)  # rtnl_fill_vfinfo: -1 stands for "not told"

    def guid(kind: int) -> str | None:
        return guid_text(VF_GUID.unpack_from(inner[kind])[1]) if kind in inner else None

    return VfInfo(
        vf=vf,
        mac=hexbytes(mac[:address_length]),
        vlan=vlan,
        qos=qos,
        spoofchk=bool(setting(constants.IFLA_VF_SPOOFCHK)),
        trust=bool(setting(constants.IFLA_VF_TRUST)),
        link_state=setting(constants.IFLA_VF_LINK_STATE),
        min_tx_rate=low,
        max_tx_rate=high,
        node_guid=guid(constants.IFLA_VF_IB_NODE_GUID),
        port_guid=guid(constants.IFLA_VF_IB_PORT_GUID),
    )
