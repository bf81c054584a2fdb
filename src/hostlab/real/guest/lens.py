"""Netlink of a real host, as it would be with a ConnectX: the kernel answers everything, one thing is told
otherwise.

The netdev of a PF whose emulated firmware runs in InfiniBand mode is told as an IPoIB device (link type and
20-byte addresses), so that what is observed follows the firmware. All else passes both ways as it is: real
netdevs, real moves, real Soft-RoCE devices. The socket's protocol is that of
linkwright/kernel/netlink/transport.py.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import struct
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from hostlab import naming, nl_link, veth
from hostlab.firmware import Card
from hostlab.nl_kernel import NETLINK_ROUTE, SO_RCVBUFFORCE, KernelSocket, setns
from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import NLA_TYPE_MASK, Message
from linkwright.model.values import LinkMode

log = logging.getLogger(__name__)

_REQUEST, _SUBSCRIBE = 1, 2
_ENVELOPE = struct.Struct("<4sBBHI")
_MAGIC = b"LWNL"
_LARGEST = 1 << 20
_NETLINK_RDMA, _NLDEV_NET_NS_FD = 20, 68  # include/uapi/rdma/rdma_netlink.h
_PKEY_QPN = bytes.fromhex("00000048")  # flags, and the number of a queue pair as the driver gives it
_PREFIX = bytes.fromhex("fe80000000000000")
_LINK_CHANGES = (veth.RTM_NEWLINK, veth.RTM_SETLINK, veth.RTM_DELLINK)


class Lens:
    """Listens at ``path``; ``cards`` by the address of their PF."""

    def __init__(self, cards: Mapping[str, Card], path: Path) -> None:
        self._cards = cards
        self._path = path

    def start(self) -> None:
        self._path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self._socket.bind(str(self._path))
        self._path.chmod(0o600)
        self._socket.listen(128)
        threading.Thread(target=self._accept, name="lens", daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._socket.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """One connection, in a thread that enters the client's namespace and ends with it."""
        fds: list[int] = []
        try:
            with client:
                data, fds, _, _ = socket.recv_fds(client, _LARGEST, 2)
                if len(data) < _ENVELOPE.size or not fds:
                    return
                magic, operation, _, family, groups = _ENVELOPE.unpack_from(data)
                if magic != _MAGIC:
                    return
                setns(fds[0])
                if operation == _REQUEST:
                    self._request(client, family, codec.unpack(data[_ENVELOPE.size :]), fds)
                elif operation == _SUBSCRIBE:
                    self._subscribe(client, family, groups)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client does not wait for the rest
        except Exception:
            log.exception("a netlink request failed")
        finally:
            for fd in fds:
                os.close(fd)

    def _request(self, client: socket.socket, family: int, messages: list[Message], fds: list[int]) -> None:
        passed = fds[1] if len(fds) > 1 else None
        with KernelSocket(family) as kernel:
            for message in messages:
                for answer in kernel.converse(_with_descriptor(family, message, passed)):
                    if packed := b"".join(codec.pack(self._told(family, one)) for one in answer):
                        client.sendall(b"D" + packed)
        client.sendall(b"E")

    def _subscribe(self, client: socket.socket, family: int, groups: int) -> None:
        with ExitStack() as resources:
            events = resources.enter_context(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family))
            with suppress(OSError):
                events.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
            events.bind((0, groups))
            poll = select.poll()
            poll.register(client, select.POLLIN)
            poll.register(events, select.POLLIN)
            client.sendall(b"R")
            while True:
                ready = [fd for fd, _ in poll.poll()]
                if client.fileno() in ready:
                    return
                try:
                    told = [self._told(family, message) for message in codec.unpack(events.recv(_LARGEST))]
                except OSError:  # ENOBUFS: some were lost
                    told = [Message(codec.NLMSG_OVERRUN, 0, b"")]
                client.sendall(b"D" + b"".join(map(codec.pack, told)))

    def _told(self, family: int, message: Message) -> Message:
        if family != NETLINK_ROUTE or message.type not in (veth.RTM_NEWLINK, veth.RTM_DELLINK):
            return message
        fields = veth.link_attrs(message)
        card = self._cards.get(codec.read_string(fields.get(nl_link.IFLA_PARENT_DEV_NAME, b"")))
        if card is None or card.mode(1) is not LinkMode.INFINIBAND:
            return message
        return _as_ipoib(message, fields.get(nl_link.IFLA_PERM_ADDRESS) or fields.get(veth.IFLA_ADDRESS, bytes(6)))


def _with_descriptor(family: int, message: Message, passed: int | None) -> Message:
    """Numbers of the client's descriptors mean something else here: the one that was passed takes their place."""
    if passed is None:
        return message
    if family == _NETLINK_RDMA:
        return nl_link.with_descriptor(message, _NLDEV_NET_NS_FD, 0, passed)
    if message.type in _LINK_CHANGES:
        return nl_link.with_descriptor(message, veth.IFLA_NET_NS_FD, veth.IFINFO.size, passed)
    if message.type in (veth.RTM_NEWNSID, veth.RTM_GETNSID):
        return nl_link.with_descriptor(message, veth.NETNSA_FD, 4, passed)
    return message


def _as_ipoib(message: Message, mac: bytes) -> Message:
    family, _, ifindex, flags, change = veth.IFINFO.unpack_from(message.body)
    guid = bytes.fromhex(naming.eui64(mac.hex(":")).replace(":", ""))
    address = _PKEY_QPN + _PREFIX + guid
    told = dict.fromkeys((veth.IFLA_ADDRESS, nl_link.IFLA_PERM_ADDRESS), address)
    told[veth.IFLA_BROADCAST] = nl_link.IB_BROADCAST
    pieces = [veth.IFINFO.pack(family, nl_link.ARPHRD_INFINIBAND, ifindex, flags, change)]
    for kind, payload in codec.attrs(message.body, veth.IFINFO.size):
        pieces.append(codec.attr(kind, told.get(kind & NLA_TYPE_MASK, payload)))
    return message._replace(body=b"".join(pieces))
