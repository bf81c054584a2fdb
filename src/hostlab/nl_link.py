"""rtnetlink's view of an emulated function: what the kernel says of the veth, told as of a ConnectX netdev.

``rewrite`` turns RTM_NEWLINK/RTM_DELLINK (replies, dumps and events alike) around: no veth kind, no IFLA_LINK, the
PCI device as parent, the card's MTU limits and permanent address, on request the VFs; in InfiniBand mode type 32
and 20-byte addresses. ``split`` takes a change apart: what the real kernel may do, what the emulated driver
answers for. Layouts: net/core/rtnetlink.c (rtnl_fill_ifinfo, do_setlink); drivers/infiniband/ulp/ipoib.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from hostlab import naming, nl_vf
from hostlab.namespaces import Namespace
from hostlab.parts import FunctionState
from hostlab.veth import (
    IFINFO,
    IFLA_ADDRESS,
    IFLA_BROADCAST,
    IFLA_IFNAME,
    IFLA_INFO_DATA,
    IFLA_INFO_KIND,
    IFLA_LINK,
    IFLA_LINK_NETNSID,
    IFLA_LINKINFO,
    IFLA_MTU,
    IFLA_NET_NS_FD,
    ifinfo,
)
from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import NLA_TYPE_MASK, Message, attr, string, u16, u32
from linkwright.model.values import LinkMode

IFLA_NET_NS_PID, IFLA_IFALIAS, IFLA_NUM_VF, IFLA_VFINFO_LIST, IFLA_EXT_MASK = 19, 20, 21, 22, 29
IFLA_PHYS_PORT_NAME, IFLA_TARGET_NETNSID, IFLA_NEW_IFINDEX = 38, 46, 49
IFLA_MIN_MTU, IFLA_MAX_MTU, IFLA_PERM_ADDRESS = 50, 51, 54
IFLA_PARENT_DEV_NAME, IFLA_PARENT_DEV_BUS_NAME = 56, 57
_IFLA_INFO_XSTATS = 3
_IFLA_IPOIB_PKEY, _IFLA_IPOIB_MODE, _IFLA_IPOIB_UMCAST = 1, 2, 3
RTEXT_FILTER_VF = 1

ARPHRD_INFINIBAND = 32
MTU_MIN = 68
MTU_MAX = {LinkMode.INFINIBAND: 4092, LinkMode.ROCE: 9978}  # IPoIB datagram with 4 KiB IB MTU; mlx5e
MTU_DEFAULT = {LinkMode.INFINIBAND: 2044, LinkMode.ROCE: 1500}
IB_BROADCAST = bytes.fromhex("00ffffffff12401bffff000000000000ffffffff")  # full member of the default partition
_SUBNET_PREFIX = bytes.fromhex("fe80000000000000")

_ATTR = struct.Struct("=HH")
_REPLACED = {IFLA_LINK, IFLA_LINK_NETNSID, IFLA_MIN_MTU, IFLA_MAX_MTU, IFLA_PERM_ADDRESS, IFLA_PHYS_PORT_NAME}
_MOVES = {IFLA_NET_NS_FD, IFLA_NET_NS_PID, IFLA_TARGET_NETNSID, IFLA_NEW_IFINDEX}


def octets(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def colons(raw: bytes) -> str:
    return raw.hex(":")


@dataclass(eq=False)
class Device:
    """The netdev of one function: a veth whose far end is ``peer`` in the wire's namespace.

    ``mode`` and ``qpn`` are those it was made with; IPoIB gets another QPN at each creation, and with it another
    address. ``space`` None: it is where the lab cannot see (yet).
    """

    fn: FunctionState
    mode: LinkMode
    peer: int
    space: Namespace | None
    ifindex: int
    name: str
    qpn: int = 0
    guid: bytes = field(default=b"")
    up: bool = False

    @property
    def infiniband(self) -> bool:
        return self.mode is LinkMode.INFINIBAND

    @property
    def ib_address(self) -> bytes:
        """One byte of flags, the QPN, the port's GID (RFC 4391, section 9.1.1)."""
        return struct.pack(">I", self.qpn) + _SUBNET_PREFIX + self.guid


def _raw_attrs(body: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """Like codec.attrs, with the flag bits of the type, which have to survive."""
    while len(body) - offset >= _ATTR.size:
        length, kind = _ATTR.unpack_from(body, offset)
        if length < _ATTR.size or offset + length > len(body):
            return
        yield kind, body[offset + _ATTR.size : offset + length]
        offset += length + (-length % 4)


def rewrite(message: Message, device: Device, ext_mask: int = 0) -> Message:
    """An RTM_NEWLINK or RTM_DELLINK about ``device``, as the card's driver would have filled it."""
    family, kind, ifindex, flags, change = IFINFO.unpack_from(message.body)
    if device.infiniband:
        kind = ARPHRD_INFINIBAND
    pieces = [IFINFO.pack(family, kind, ifindex, flags, change)]
    for raw, payload in _raw_attrs(message.body, IFINFO.size):
        name = raw & NLA_TYPE_MASK
        if name in _REPLACED:
            continue
        if name == IFLA_LINKINFO:
            payload = _linkinfo(payload, device)
            if not payload:
                continue
        elif device.infiniband and name == IFLA_ADDRESS:
            payload = device.ib_address
        elif device.infiniband and name == IFLA_BROADCAST:
            payload = IB_BROADCAST
        pieces.append(attr(raw, payload))
    if family == 0:  # the bridge's and IPv6's own messages about a link hold none of the following
        pieces += _own_attrs(device, ext_mask)
    return message._replace(body=b"".join(pieces))


def _own_attrs(device: Device, ext_mask: int) -> list[bytes]:
    fn = device.fn
    permanent = device.ib_address if device.infiniband else octets(fn.mac)
    pieces = [attr(IFLA_MIN_MTU, u32(MTU_MIN)), attr(IFLA_MAX_MTU, u32(MTU_MAX[device.mode]))]
    if any(permanent):
        pieces.append(attr(IFLA_PERM_ADDRESS, permanent))
    port_name = naming.phys_port_name(fn)
    if port_name:
        pieces.append(attr(IFLA_PHYS_PORT_NAME, string(port_name)))
    if ext_mask & RTEXT_FILTER_VF:
        count = fn.port.num_vfs if fn.is_pf else 0
        pieces.append(attr(IFLA_NUM_VF, u32(count)))
        if fn.is_pf or not device.infiniband:  # IPoIB has no ndo_get_vf_config on VFs
            address = device.ib_address if device.infiniband else b""
            pieces.append(attr(IFLA_VFINFO_LIST, nl_vf.fill(fn.port.vfs[:count], address, IB_BROADCAST, ext_mask)))
    pieces += [attr(IFLA_PARENT_DEV_NAME, string(fn.address)), attr(IFLA_PARENT_DEV_BUS_NAME, string("pci"))]
    return pieces


def _linkinfo(payload: bytes, device: Device) -> bytes:
    """Without the veth; what a master adds (slave kind and data) stays. IPoIB devices are of kind ``ipoib``, also
    those the driver makes itself (ipoib_add_port sets rtnl_link_ops); an Ethernet card's have none."""
    hidden = (IFLA_INFO_KIND, IFLA_INFO_DATA, _IFLA_INFO_XSTATS)
    kept = [attr(raw, inner) for raw, inner in _raw_attrs(payload, 0) if raw & NLA_TYPE_MASK not in hidden]
    if device.infiniband:
        values = {_IFLA_IPOIB_PKEY: 0xFFFF, _IFLA_IPOIB_MODE: 0, _IFLA_IPOIB_UMCAST: 0}
        data = b"".join(attr(kind, u16(value)) for kind, value in values.items())
        kept = [attr(IFLA_INFO_KIND, string("ipoib")), attr(IFLA_INFO_DATA, data), *kept]
    return b"".join(kept)


@dataclass
class Change:
    """A change of one emulated netdev, taken apart. ``forward`` goes to the kernel (None: nothing is left for it);
    if that succeeds, ``refused`` is the answer, else the entries of ``vfs`` are applied in their order."""

    forward: Message | None
    vfs: list[bytes] = field(default_factory=list)
    refused: tuple[int, str] | None = None


def split(message: Message, device: Device) -> Change:
    """The order of do_setlink: namespace, address, MTU, the rest, VFs. Refused by the emulated driver: an address
    in InfiniBand mode, an MTU beyond the card's; what comes before them is done by then."""
    _, _, ifindex, flags, change = IFINFO.unpack_from(message.body)
    given = list(_raw_attrs(message.body, IFINFO.size))
    fields = {raw & NLA_TYPE_MASK: payload for raw, payload in given}
    for kind in (IFLA_ADDRESS, IFLA_BROADCAST):  # validate_linkmsg: before anything is done
        if device.infiniband and kind in fields and len(fields[kind]) < len(IB_BROADCAST):
            return Change(None, refused=(errno.EINVAL, ""))
    refused, done = _driver_verdict(fields, device)
    if refused:
        first = {*_MOVES, *done, *(() if ifindex else (IFLA_IFNAME,))}
        given = [(raw, payload) for raw, payload in given if raw & NLA_TYPE_MASK in first]
        flags = change = 0
    answered = {IFLA_VFINFO_LIST, *((IFLA_ADDRESS, IFLA_BROADCAST) if device.infiniband else ())}
    kept = [attr(raw, payload) for raw, payload in given if raw & NLA_TYPE_MASK not in answered]
    selectors = {IFLA_EXT_MASK, *(() if ifindex else (IFLA_IFNAME,))}
    left = any(raw & NLA_TYPE_MASK not in answered | selectors for raw, _ in given) or flags or change
    forward = message._replace(body=ifinfo(ifindex, flags, change) + b"".join(kept)) if left else None
    listed = fields.get(IFLA_VFINFO_LIST, b"")
    return Change(forward, [nl_vf.checked(raw, entry) for raw, entry in _raw_attrs(listed, 0)], refused)


def _driver_verdict(fields: dict[int, bytes], device: Device) -> tuple[tuple[int, str] | None, tuple[int, ...]]:
    """((errno, words), attributes done before it) when the emulated driver refuses, else (None, ())."""
    if device.infiniband and IFLA_ADDRESS in fields:
        number = _set_ib_address(fields[IFLA_ADDRESS], device)
        if number:
            return (number, ""), ()
    if IFLA_MTU in fields:
        mtu = codec.read_u32(fields[IFLA_MTU])
        if mtu < MTU_MIN:
            return (errno.EINVAL, "mtu less than device minimum"), (IFLA_ADDRESS,)
        if mtu > MTU_MAX[device.mode]:
            return (errno.EINVAL, "mtu greater than device maximum"), (IFLA_ADDRESS,)
    return None, ()


def _set_ib_address(wanted: bytes, device: Device) -> int:
    """ipoib_set_mac and ipoib_check_lladdr: only a PF's netdev has the operation, only while it is down, only with
    the same subnet prefix and a GUID; the QPN stays. VFs have no such operation."""
    if not device.fn.is_pf:
        return errno.EOPNOTSUPP
    if device.up:
        return errno.EBUSY
    prefix, guid = wanted[4:12], wanted[12:20]
    if prefix != _SUBNET_PREFIX or not any(guid):
        return errno.EINVAL
    device.guid = guid
    return 0


def with_descriptor(message: Message, kind: int, offset: int, descriptor: int) -> Message:
    """The message with the number in attributes of type ``kind`` replaced: the client's descriptor by ours.
    ``offset``: where the attributes begin in the body."""
    pieces = [message.body[:offset]]
    for raw, payload in _raw_attrs(message.body, offset):
        pieces.append(attr(raw, u32(descriptor) if raw & NLA_TYPE_MASK == kind else payload))
    return message._replace(body=b"".join(pieces))
