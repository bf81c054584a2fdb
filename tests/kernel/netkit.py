"""Real network namespaces and veth pairs for tests, made with the code under test's own codec."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from linkwright.kernel.netlink import codec, constants
from linkwright.kernel.netlink.codec import Message
from linkwright.kernel.netlink.transport import Transport

_CLONE_NEWNET = 0x40000000
_VETH_INFO_PEER = 1
_IFLA_INFO_DATA = 2


@contextmanager
def new_netns() -> Iterator[int]:
    """A descriptor of a fresh network namespace, which lives as long as the descriptor."""
    got: list[int] = []
    failed: list[OSError] = []

    def body() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNET) != 0:
            failed.append(OSError(ctypes.get_errno(), "unshare of the network namespace"))
            return
        got.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    try:
        yield got[0]
    finally:
        os.close(got[0])


def add_link(transport: Transport, netns: int, name: str, kind: str, *extra: bytes) -> None:
    """``ip link add name type kind``, with further attributes."""
    info = codec.nest(constants.IFLA_LINKINFO, codec.attr(constants.IFLA_INFO_KIND, codec.string(kind)), *extra)
    body = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + codec.attr(constants.IFLA_IFNAME, codec.string(name)) + info
    flags = codec.NLM_F_CREATE | codec.NLM_F_EXCL
    transport.request(
        constants.NETLINK_ROUTE, codec.pack(Message(constants.RTM_NEWLINK, flags, body)), netns=netns
    )


def add_veth(transport: Transport, netns: int, name: str, peer: str) -> None:
    other = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + codec.attr(constants.IFLA_IFNAME, codec.string(peer))
    data = codec.nest(_IFLA_INFO_DATA, codec.attr(_VETH_INFO_PEER, other))
    add_link(transport, netns, name, "veth", data)
