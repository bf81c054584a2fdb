"""What the wire asks of the real kernel: bridges, veth pairs, moves between namespaces, ids of namespaces.

Thin functions over one ``KernelSocket``; all raise OSError with the kernel's errno. Layouts and numbers:
include/uapi/linux/{if_link,rtnetlink,net_namespace}.h.
"""

from __future__ import annotations

import errno
import struct
from contextlib import suppress
from pathlib import Path

from hostlab.nl_kernel import KernelSocket
from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import Message, attr, nest, string, u32

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWNSID, RTM_GETNSID = 88, 90
RTM_DELLINKPROP = 109

IFLA_ADDRESS, IFLA_BROADCAST, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_MASTER = 1, 2, 3, 4, 5, 10
IFLA_LINKINFO, IFLA_AF_SPEC, IFLA_NET_NS_FD, IFLA_CARRIER, IFLA_LINK_NETNSID = 18, 26, 28, 33, 37
IFLA_PROP_LIST, IFLA_ALT_IFNAME = 52, 53
IFLA_INFO_KIND, IFLA_INFO_DATA = 1, 2
_VETH_INFO_PEER = 1
_IFLA_BR_MCAST_SNOOPING = 23
_AF_INET6, _IFLA_INET6_ADDR_GEN_MODE, _GEN_MODE_NONE = 10, 8, 1
_NETNSA_NSID, NETNSA_FD = 1, 3

IFF_UP = 1
IFINFO = struct.Struct("=BxHiII")  # ifi_family, ifi_type, ifi_index, ifi_flags, ifi_change

WIRE_MTU = 10000  # above what any emulated card allows: the bridge never drops what two hosts agreed on
_CREATE = codec.NLM_F_CREATE | codec.NLM_F_EXCL
_IPV6 = Path("/proc/net/if_inet6").exists()  # a kernel without IPv6 refuses to hear of it (EAFNOSUPPORT)
_GEN_NONE = nest(_AF_INET6, attr(_IFLA_INET6_ADDR_GEN_MODE, bytes([_GEN_MODE_NONE])))
_NO_IPV6 = nest(IFLA_AF_SPEC, _GEN_NONE) if _IPV6 else b""


def ifinfo(ifindex: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return IFINFO.pack(0, 0, ifindex, flags, change)


def link_attrs(message: Message) -> dict[int, bytes]:
    return codec.attr_map(message.body, IFINFO.size)


def index_of(message: Message) -> int:
    return int(IFINFO.unpack_from(message.body)[2])


def get(sock: KernelSocket, *, ifindex: int = 0, name: str = "") -> Message | None:
    """The link by index or by name (or altname); None if there is none."""
    selector = attr(IFLA_IFNAME, string(name)) if name and not ifindex else b""
    try:
        return sock.request(RTM_GETLINK, 0, ifinfo(ifindex) + selector)[0]
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        return None


def dump(sock: KernelSocket) -> list[Message]:
    return sock.request(RTM_GETLINK, codec.NLM_F_DUMP, ifinfo())


def make_bridge(sock: KernelSocket, name: str) -> int:
    """A bridge without STP and multicast snooping, up and without addresses; its index."""
    data = nest(IFLA_INFO_DATA, attr(_IFLA_BR_MCAST_SNOOPING, b"\0"))
    info = nest(IFLA_LINKINFO, attr(IFLA_INFO_KIND, string("bridge")), data)
    sock.request(RTM_NEWLINK, _CREATE, ifinfo() + attr(IFLA_IFNAME, string(name)) + info)
    made = get(sock, name=name)
    assert made is not None
    sock.request(RTM_SETLINK, 0, ifinfo(index_of(made), IFF_UP, IFF_UP) + _NO_IPV6)
    return index_of(made)


def make_pair(
    sock: KernelSocket, wire_name: str, netns: int, name: str, mtu: int, mac: bytes | None
) -> tuple[int, int]:
    """A veth pair: ``wire_name`` here, ``name`` (may hold %d) in ``netns``; (index here, index there).

    Both ends are down. Without ``mac`` the kernel takes a random one. EEXIST when the name is taken there.
    """
    peer = ifinfo() + attr(IFLA_IFNAME, string(name)) + attr(IFLA_MTU, u32(mtu)) + attr(IFLA_NET_NS_FD, u32(netns))
    if mac is not None:
        peer += attr(IFLA_ADDRESS, mac)
    data = nest(IFLA_INFO_DATA, nest(_VETH_INFO_PEER, peer))
    info = nest(IFLA_LINKINFO, attr(IFLA_INFO_KIND, string("veth")), data)
    body = ifinfo() + attr(IFLA_IFNAME, string(wire_name)) + attr(IFLA_MTU, u32(WIRE_MTU)) + info
    sock.request(RTM_NEWLINK, _CREATE, body)
    made = get(sock, name=wire_name)
    assert made is not None
    return index_of(made), codec.read_u32(link_attrs(made)[IFLA_LINK])


def connect(sock: KernelSocket, ifindex: int, bridge: int, up: bool) -> None:
    """Plug a wire end into a bridge (0: none) and set it up or down: the far end's carrier follows."""
    flags = IFF_UP if up else 0
    sock.request(RTM_SETLINK, 0, ifinfo(ifindex, flags, IFF_UP) + attr(IFLA_MASTER, u32(bridge)) + _NO_IPV6)


def delete(sock: KernelSocket, ifindex: int) -> None:
    with suppress(OSError):  # already gone with the other end's namespace
        sock.request(RTM_DELLINK, 0, ifinfo(ifindex))


def far_end(sock: KernelSocket, ifindex: int) -> tuple[int, int] | None:
    """(id of the namespace, index in it) of a wire end's other side; None when the pair is gone."""
    found = get(sock, ifindex=ifindex)
    if found is None:
        return None
    fields = link_attrs(found)
    if IFLA_LINK_NETNSID not in fields or IFLA_LINK not in fields:
        return None
    return codec.read_s32(fields[IFLA_LINK_NETNSID]), codec.read_u32(fields[IFLA_LINK])


def give_nsid(sock: KernelSocket, netns: int) -> int:
    """``nsid_of``; one is assigned if there is none yet: with an id, events of that namespace reach a socket with
    NETLINK_LISTEN_ALL_NSID."""
    with suppress(FileExistsError):
        wanted = attr(_NETNSA_NSID, struct.pack("=i", -1)) + attr(NETNSA_FD, u32(netns))
        sock.request(RTM_NEWNSID, 0, b"\0\0\0\0" + wanted)
    return nsid_of(sock, netns)


def nsid_of(sock: KernelSocket, netns: int) -> int:
    """The id that the socket's namespace uses for ``netns``; -1 if it has none."""
    answer = sock.request(RTM_GETNSID, 0, b"\0\0\0\0" + attr(NETNSA_FD, u32(netns)))
    return codec.read_s32(codec.attr_map(answer[0].body, 4)[_NETNSA_NSID])


def altnames(message: Message) -> list[str]:
    listed = link_attrs(message).get(IFLA_PROP_LIST, b"")
    return [codec.read_string(value) for kind, value in codec.attrs(listed) if kind == IFLA_ALT_IFNAME]


def leave_namespace(sock: KernelSocket, home: KernelSocket, ifindex: int, home_fd: int) -> None:
    """Move a device out of a dying namespace (``sock``) by the rules of default_device_exit_net in net/core/dev.c.

    It keeps its name if that is free at home, else it becomes ``dev<ifindex>``, else the first free ``dev%d``;
    altnames that are taken at home are dropped. Down, without addresses: the move does that. Nothing happens when
    the device is not there any more.
    """
    for _ in range(8):  # somebody at home may take a name between the look and the move
        device = get(sock, ifindex=ifindex)
        if device is None:
            return
        for taken in [name for name in altnames(device) if get(home, name=name)]:
            gone = nest(IFLA_PROP_LIST, attr(IFLA_ALT_IFNAME, string(taken)))
            sock.request(RTM_DELLINKPROP, 0, ifinfo(ifindex) + gone)
        body = ifinfo(ifindex) + attr(IFLA_NET_NS_FD, u32(home_fd))
        if get(home, name=codec.read_string(link_attrs(device)[IFLA_IFNAME])):
            names = (f"dev{number}" for number in (ifindex, *range(1 << 15)))
            body += attr(IFLA_IFNAME, string(next(name for name in names if get(home, name=name) is None)))
        try:
            sock.request(RTM_SETLINK, 0, body)
        except FileExistsError:
            continue
        return
