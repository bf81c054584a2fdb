"""VF attributes of rtnetlink, set and shown through a PF's netdev, in the kernel's structs.

Sources: include/uapi/linux/if_link.h (ifla_vf_*), net/core/rtnetlink.c (rtnl_fill_vfinfo, do_setvfinfo),
mlx5's ndo_set_vf_* for RoCE mode, ipoib's for InfiniBand mode. The kernel's own surprise is kept: one IFLA_VF_INFO
with both GUIDs sets the node GUID only (do_setvfinfo returns after it).
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Sequence

from hostlab.parts import NO_MAC, FunctionState
from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import NLA_TYPE_MASK, attr, u64
from linkwright.model.values import LinkMode

IFLA_VF_INFO = 1
MAC, VLAN, TX_RATE, SPOOFCHK, LINK_STATE, RATE, RSS_QUERY_EN, STATS, TRUST = range(1, 10)
IB_NODE_GUID, IB_PORT_GUID, VLAN_LIST, BROADCAST = range(10, 14)
VLAN_INFO = 1
RTEXT_FILTER_SKIP_STATS = 8
_ETH_P_8021Q = 0x8100
_STATS_WITHOUT_PAD = (0, 1, 2, 3, 4, 5, 7, 8)  # packets, bytes, broadcast, multicast, dropped

_PAIR, _TRIPLE, _GUID = struct.Struct("=II"), struct.Struct("=III"), struct.Struct("=IxxxxQ")
_VLAN_INFO = struct.Struct("=III2sxx")
_SIZES = {  # ifla_vf_policy
    MAC: 36, VLAN: 12, TX_RATE: 8, SPOOFCHK: 8, LINK_STATE: 8, RATE: 12, RSS_QUERY_EN: 8, TRUST: 8,
    IB_NODE_GUID: 16, IB_PORT_GUID: 16,
}  # fmt: skip


def _colons(value: int) -> str:
    return value.to_bytes(8, "big").hex(":")


def _guid_number(text: str) -> int:
    """GUIDs travel as numbers in host byte order: the first byte of the text is the most significant."""
    return int(text.replace(":", ""), 16)


def fill(vfs: Sequence[FunctionState], ib_address: bytes, ib_broadcast: bytes, ext_mask: int) -> bytes:
    """The inside of IFLA_VFINFO_LIST. ``ib_address``: the PF's own 20 bytes in InfiniBand mode, which ipoib shows
    as every VF's address; empty in RoCE mode."""
    return b"".join(attr(IFLA_VF_INFO, _fill_one(vf, ib_address, ib_broadcast, ext_mask)) for vf in vfs)


def _fill_one(vf: FunctionState, ib_address: bytes, ib_broadcast: bytes, ext_mask: int) -> bytes:
    index, admin = vf.vf_index or 0, vf.admin
    address = ib_address or bytes.fromhex(admin.mac.replace(":", ""))
    broadcast = ib_broadcast if ib_address else b"\xff" * 6
    # mlx5_ib_get_vf_config clears the whole struct and fills in the link state alone; RSS is "not reported" (-1)
    # only in Ethernet mode, where mlx5 leaves rtnetlink's default.
    vlan, qos, protocol = (0, 0, 0) if ib_address else (admin.vlan, admin.qos, _ETH_P_8021Q)
    rss = 0 if ib_address else 0xFFFFFFFF
    spoofchk, trust = (0, 0) if ib_address else (int(admin.spoofchk), int(admin.trust))
    low, high = (0, 0) if ib_address else (admin.min_tx_rate, admin.max_tx_rate)
    pieces = [
        attr(MAC, struct.pack("=I32s", index, address)),
        attr(BROADCAST, struct.pack("=32s", broadcast)),
        attr(VLAN, _TRIPLE.pack(index, vlan, qos)),
        attr(RATE, _TRIPLE.pack(index, low, high)),
        attr(TX_RATE, _PAIR.pack(index, high)),
        attr(SPOOFCHK, _PAIR.pack(index, spoofchk)),
        attr(LINK_STATE, _PAIR.pack(index, admin.link_state)),
        attr(RSS_QUERY_EN, _PAIR.pack(index, rss)),
        attr(TRUST, _PAIR.pack(index, trust)),
    ]
    if ib_address:
        pieces.append(attr(IB_NODE_GUID, _GUID.pack(index, _guid_number(admin.node_guid))))
        pieces.append(attr(IB_PORT_GUID, _GUID.pack(index, _guid_number(admin.port_guid))))
    info = _VLAN_INFO.pack(index, vlan, qos, protocol.to_bytes(2, "big"))
    pieces.append(attr(VLAN_LIST, attr(VLAN_INFO, info)))
    if not ext_mask & RTEXT_FILTER_SKIP_STATS:
        pieces.append(attr(STATS, b"".join(attr(kind, u64(0)) for kind in _STATS_WITHOUT_PAD)))
    return b"".join(pieces)


def checked(raw_type: int, entry: bytes) -> bytes:
    """An entry of IFLA_VFINFO_LIST, or empty when it is not IFLA_VF_INFO (apply answers EINVAL to that)."""
    return entry if raw_type & NLA_TYPE_MASK == IFLA_VF_INFO else b""


def apply(pf: FunctionState, entry: bytes, changed: Callable[[FunctionState], None]) -> int:
    """Do what one IFLA_VF_INFO asks, in do_setvfinfo's order; 0 or the errno of the first refusal. Earlier parts
    stay. ``changed`` is called for a VF whose link state changed. Under the machine's lock."""
    given = codec.attr_map(entry)
    if any(len(given[kind]) < size for kind, size in _SIZES.items() if kind in given):
        return errno.ERANGE
    number = errno.EINVAL
    for kind in (MAC, VLAN, VLAN_LIST, TX_RATE, RATE, SPOOFCHK, LINK_STATE, RSS_QUERY_EN, TRUST):
        if kind in given:
            number = _set(pf, kind, given[kind], changed)
            if number:
                return number
    for kind in (IB_NODE_GUID, IB_PORT_GUID):
        if kind in given:
            return _set(pf, kind, given[kind], changed)
    return number


def _set(pf: FunctionState, kind: int, payload: bytes, changed: Callable[[FunctionState], None]) -> int:
    infiniband = pf.port.mode is LinkMode.INFINIBAND
    known = {LINK_STATE, IB_NODE_GUID, IB_PORT_GUID} if infiniband else _ETHERNET.keys() | {LINK_STATE}
    if kind not in known or (not pf.is_pf and infiniband):
        return errno.EOPNOTSUPP
    if not pf.is_pf:
        return errno.EPERM  # mlx5_esw_allowed: a VF manages no e-switch
    if kind == VLAN_LIST:
        entries = [value for inner, value in codec.attrs(payload) if inner == VLAN_INFO]
        if not entries or len(entries[0]) < _VLAN_INFO.size:
            return errno.EOPNOTSUPP if not entries else errno.EINVAL
        payload = entries[0]
    index = codec.read_u32(payload)
    vf = next((vf for vf in pf.port.vfs if vf.vf_index == index), None)
    if vf is None:
        return errno.EINVAL
    if kind == LINK_STATE:
        state = _PAIR.unpack_from(payload)[1]
        if state > 2:
            return errno.EINVAL
        vf.admin.link_state = state
        changed(vf)
        return 0
    if kind in (IB_NODE_GUID, IB_PORT_GUID):
        field = "node_guid" if kind == IB_NODE_GUID else "port_guid"
        setattr(vf.admin, field, _colons(_GUID.unpack_from(payload)[1]))
        return 0
    return _ETHERNET[kind](vf, payload)


def _set_mac(vf: FunctionState, payload: bytes) -> int:
    if payload[4] & 1:
        return errno.EINVAL
    vf.admin.mac = payload[4:10].hex(":") if any(payload[4:10]) else NO_MAC
    return 0


def _set_vlan(vf: FunctionState, payload: bytes) -> int:
    _, vlan, qos = _TRIPLE.unpack_from(payload)
    if vlan > 4095 or qos > 7:
        return errno.EINVAL
    vf.admin.vlan, vf.admin.qos = vlan, qos
    return 0


def _set_vlan_info(vf: FunctionState, payload: bytes) -> int:
    """mlx5e_set_vf_vlan takes 802.1Q only."""
    tagged = _VLAN_INFO.unpack_from(payload)[3] == _ETH_P_8021Q.to_bytes(2, "big")
    return _set_vlan(vf, payload) if tagged else errno.EPROTONOSUPPORT


def _set_rate(vf: FunctionState, payload: bytes) -> int:
    _, low, high = _TRIPLE.unpack_from(payload)
    if high and high < low:
        return errno.EINVAL
    vf.admin.min_tx_rate, vf.admin.max_tx_rate = low, high
    return 0


def _set_tx_rate(vf: FunctionState, payload: bytes) -> int:
    return _set_rate(vf, _TRIPLE.pack(0, vf.admin.min_tx_rate, _PAIR.unpack_from(payload)[1]))


def _set_spoofchk(vf: FunctionState, payload: bytes) -> int:
    vf.admin.spoofchk = bool(_PAIR.unpack_from(payload)[1])
    return 0


def _set_trust(vf: FunctionState, payload: bytes) -> int:
    vf.admin.trust = bool(_PAIR.unpack_from(payload)[1])
    return 0


_ETHERNET: dict[int, Callable[[FunctionState, bytes], int]] = {
    MAC: _set_mac,
    VLAN: _set_vlan,
    VLAN_LIST: _set_vlan_info,
    TX_RATE: _set_tx_rate,
    RATE: _set_rate,
    SPOOFCHK: _set_spoofchk,
    TRUST: _set_trust,
}
