"""The two ways a netlink request reaches a kernel: real sockets, or a server that answers in the kernel's place.

``KernelTransport`` opens one socket for each request, in the wanted network namespace: a short-lived thread
enters the namespace with setns(2) (through ctypes; os.setns came with Python 3.12), does the whole request there
and ends, so that the caller's thread never leaves its own. A socket alone would not do: moving an RDMA device
checks the namespace of the thread that sends (ib_device_set_netns_put in drivers/infiniband/core/device.c).

``SocketTransport`` speaks to a path-named SOCK_SEQPACKET socket, one connection a request or subscription.
The client sends ONE packet: ``struct <4sBBHI`` (b"LWNL", operation 1 request / 2 subscribe, number of descriptors
1..2, netlink family, group mask), then the raw netlink messages; SCM_RIGHTS carries the namespace (always) and the
descriptor that NET_NS_FD attributes name, if any. The server replies with packets: b"D" + a raw netlink datagram
as the kernel would send it, any number, then b"E"; for subscriptions b"R" once it is in force, then b"D" until
the connection closes. The server puts its own received descriptor into NET_NS_FD attributes.
"""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from pathlib import Path
from typing import Protocol, TypeVar

from . import codec
from .codec import Message

_LARGEST = 1 << 20  # a PF's RTM_GETLINK answer grows with its VFs; far above 128 of them
_DUMP_TRIES = 10
_SERVER_LIMIT_S = 120.0
_CLONE_NEWNET = 0x40000000
_SOL_NETLINK = 270
_NETLINK_CAP_ACK = 10
_NETLINK_EXT_ACK = 11
_NETLINK_GET_STRICT_CHK = 12
_NETLINK_ROUTE = 0

REQUEST = 1
SUBSCRIBE = 2
ENVELOPE = struct.Struct("<4sBBHI")
MAGIC = b"LWNL"

_T = TypeVar("_T")


class Subscription(Protocol):
    """Events. ``read`` blocks for the next datagram; wait on ``fileno`` with a selector to bound it.

    A message of type NLMSG_OVERRUN says that events were lost and the state has to be read anew.
    ``read`` raises ConnectionResetError when the other end is gone and no events will come any more.
    """

    def fileno(self) -> int: ...

    def read(self) -> list[Message]: ...

    def close(self) -> None: ...


class Transport(Protocol):
    """What the typed layers (links, rdma) speak through."""

    def request(
        self, family: int, messages: bytes, *, netns: int | None = None, passed_fd: int | None = None
    ) -> list[Message]:
        """Send and read until each message is acknowledged or its dump is done; the answers without those ends.

        ``netns`` is an open descriptor of a network namespace (None: the caller's own); ``passed_fd`` the
        descriptor whose number stands in the message as IFLA_NET_NS_FD or RDMA_NLDEV_NET_NS_FD. Raises OSError
        with the kernel's errno and, as its text, the extended acknowledgement when there is one. A dump that
        the kernel marks as interrupted by a change is repeated.
        """

    def subscribe(self, family: int, groups: int, *, netns: int | None = None) -> Subscription:
        """Join the multicast groups of the mask ``groups`` (RTMGRP_*); in force when it returns."""


def _prepare(messages: bytes) -> tuple[bytes, dict[int, int]]:
    """Number the messages and make each one end in an answer; (bytes, {seq: type})."""
    numbered = []
    kinds = {}
    for seq, message in enumerate(codec.unpack(messages), 1):
        flags = message.flags | codec.NLM_F_REQUEST
        if flags & codec.NLM_F_DUMP != codec.NLM_F_DUMP:
            flags |= codec.NLM_F_ACK
        numbered.append(codec.pack(message._replace(flags=flags, seq=seq)))
        kinds[seq] = message.type
    return b"".join(numbered), kinds


def _collect(datagrams: Iterable[bytes], waiting: dict[int, int]) -> tuple[list[Message], bool]:
    """(answers, was a dump interrupted); raises OSError for the first error."""
    answers = []
    interrupted = False
    for datagram in datagrams:
        for message in codec.unpack(datagram):
            if message.seq not in waiting:
                continue
            interrupted |= bool(message.flags & codec.NLM_F_DUMP_INTR)
            if message.type in (codec.NLMSG_ERROR, codec.NLMSG_DONE):
                number, text = codec.error(message) or (0, "")
                if number == errno.EINTR:
                    interrupted = True
                elif number:
                    raise OSError(number, text or os.strerror(number))
                del waiting[message.seq]
            elif message.type not in (codec.NLMSG_NOOP, codec.NLMSG_OVERRUN):
                answers.append(message)
        if not waiting:
            break
    return answers, interrupted


def _exchange(messages: bytes, once: Callable[[bytes], Generator[bytes, None, None]]) -> list[Message]:
    """``once`` sends bytes and yields the datagrams of the answer; an interrupted dump is asked again."""
    data, kinds = _prepare(messages)
    for _ in range(_DUMP_TRIES):
        waiting = dict(kinds)
        with closing(once(data)) as datagrams:
            answers, interrupted = _collect(datagrams, waiting)
        if waiting:
            raise ConnectionResetError(errno.ECONNRESET, "the netlink answer ended before it was complete")
        if not interrupted:
            return answers
    raise OSError(errno.EINTR, f"the kernel's tables changed during each of {_DUMP_TRIES} dumps")


def _enter(netns: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(netns, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns into a network namespace: {os.strerror(number)}")


def in_netns(netns: int, work: Callable[[], _T]) -> _T:
    """Run ``work`` in a new thread that has entered the namespace; its result or exception is the caller's."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            _enter(netns)
            results.append(work())
        except BaseException as problem:  # handed to the caller below
            errors.append(problem)

    thread = threading.Thread(target=body, name="netns")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _is_own(netns: int) -> bool:
    return os.path.samestat(os.fstat(netns), Path("/proc/thread-self/ns/net").stat())


def _open(family: int) -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
    sock.setsockopt(_SOL_NETLINK, _NETLINK_CAP_ACK, 1)
    sock.setsockopt(_SOL_NETLINK, _NETLINK_EXT_ACK, 1)
    if family == _NETLINK_ROUTE:  # lets the kernel filter dumps by interface, and refuse what it would ignore
        sock.setsockopt(_SOL_NETLINK, _NETLINK_GET_STRICT_CHK, 1)
    return sock


class _KernelSubscription:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def fileno(self) -> int:
        return self._sock.fileno()

    def read(self) -> list[Message]:
        try:
            return codec.unpack(self._sock.recv(_LARGEST))
        except OSError as problem:
            if problem.errno != errno.ENOBUFS:
                raise
            return [Message(codec.NLMSG_OVERRUN, 0, b"")]

    def close(self) -> None:
        self._sock.close()


class KernelTransport:
    """Real netlink sockets, one for each request."""

    def request(
        self, family: int, messages: bytes, *, netns: int | None = None, passed_fd: int | None = None
    ) -> list[Message]:
        # The number in the message is a descriptor of this process already: nothing to do for passed_fd.
        def exchange() -> list[Message]:
            with _open(family) as sock:

                def once(data: bytes) -> Generator[bytes, None, None]:
                    sock.sendto(data, (0, 0))
                    while True:
                        yield sock.recv(_LARGEST)

                return _exchange(messages, once)

        return exchange() if netns is None or _is_own(netns) else in_netns(netns, exchange)

    def subscribe(self, family: int, groups: int, *, netns: int | None = None) -> Subscription:
        sock = _open(family) if netns is None or _is_own(netns) else in_netns(netns, lambda: _open(family))
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LARGEST)
            sock.bind((0, groups))
        except OSError:
            sock.close()
            raise
        return _KernelSubscription(sock)


class _SocketSubscription:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def fileno(self) -> int:
        return self._sock.fileno()

    def read(self) -> list[Message]:
        packet = self._sock.recv(_LARGEST)
        if packet[:1] != b"D":
            raise ConnectionResetError(errno.ECONNRESET, "the netlink server closed the subscription")
        return codec.unpack(packet[1:])

    def close(self) -> None:
        self._sock.close()


class SocketTransport:
    """Netlink through the server at ``path`` (see the top of this file)."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def request(
        self, family: int, messages: bytes, *, netns: int | None = None, passed_fd: int | None = None
    ) -> list[Message]:
        def once(data: bytes) -> Generator[bytes, None, None]:
            with self._send(REQUEST, family, 0, data, netns, passed_fd) as sock:
                while (packet := sock.recv(_LARGEST))[:1] == b"D":
                    yield packet[1:]

        return _exchange(messages, once)

    def subscribe(self, family: int, groups: int, *, netns: int | None = None) -> Subscription:
        sock = self._send(SUBSCRIBE, family, groups, b"", netns, None)
        try:
            if sock.recv(_LARGEST) != b"R":
                raise ConnectionResetError(errno.ECONNRESET, f"{self.path} refused a netlink subscription")
        except OSError:
            sock.close()
            raise
        sock.settimeout(None)
        return _SocketSubscription(sock)

    def _send(
        self, operation: int, family: int, groups: int, data: bytes, netns: int | None, passed_fd: int | None
    ) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        own = None
        try:
            sock.settimeout(_SERVER_LIMIT_S)
            sock.connect(self.path)
            if netns is None:
                netns = own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            fds = array.array("i", [netns] if passed_fd is None else [netns, passed_fd])
            head = ENVELOPE.pack(MAGIC, operation, len(fds), family, groups)
            sock.sendmsg([head + data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        except BaseException:
            sock.close()
            raise
        finally:
            if own is not None:
                os.close(own)
        return sock


class NoTransport:
    """A captured tree has no kernel to ask: every request fails with EOPNOTSUPP."""

    def request(
        self, family: int, messages: bytes, *, netns: int | None = None, passed_fd: int | None = None
    ) -> list[Message]:
        raise OSError(errno.EOPNOTSUPP, "a captured tree has no netlink")

    def subscribe(self, family: int, groups: int, *, netns: int | None = None) -> Subscription:
        raise OSError(errno.EOPNOTSUPP, "a captured tree has no netlink")
