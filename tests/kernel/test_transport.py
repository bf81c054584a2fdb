"""Both transports: the kernel's own sockets, and the socket protocol against a small server that forwards."""

from __future__ import annotations

import array
import contextlib
import errno
import os
import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import netkit
import pytest

from linkwright.kernel.links import Links
from linkwright.kernel.netlink import codec, constants
from linkwright.kernel.netlink.codec import Message
from linkwright.kernel.netlink.transport import (
    ENVELOPE,
    KernelTransport,
    NoTransport,
    SocketTransport,
    Subscription,
    Transport,
    in_netns,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

LINK_HEADER = struct.Struct("=BxHiII")


class ForwardingServer:
    """The other end of SocketTransport, with the real kernel behind it. One thread a connection."""

    def __init__(self, path: Path) -> None:
        self.seen: list[tuple[int, int, int, int]] = []  # operation, descriptors, family, groups
        self.refuse_after: int | None = None  # close the connection after so many D packets
        self._kernel = KernelTransport()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(os.fspath(path))
        self._listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(BrokenPipeError):
            room = socket.CMSG_SPACE(8)
            packet, ancillary, _, _ = connection.recvmsg(1 << 18, room)
            fds = array.array("i")
            for _, _, data in ancillary:
                fds.frombytes(data)
            magic, operation, count, family, groups = ENVELOPE.unpack_from(packet)
            assert (magic, count) == (b"LWNL", len(fds))
            self.seen.append((operation, count, family, groups))
            try:
                if operation == 2:
                    self._events(connection, self._kernel.subscribe(family, groups, netns=fds[0]))
                else:
                    self._answer(connection, family, packet[ENVELOPE.size :], fds)
            finally:
                for fd in fds:
                    os.close(fd)

    def _answer(self, connection: socket.socket, family: int, data: bytes, fds: array.array[int]) -> None:
        (request,) = codec.unpack(data)
        if len(fds) > 1:
            request = request._replace(body=self._own_descriptor(request.body, fds[1]))
        try:
            answers = self._kernel.request(family, codec.pack(request), netns=fds[0])
        except OSError as problem:
            answers = [codec.error_message(request, problem.errno or errno.EIO, problem.strerror or "")]
        else:
            answers = [a._replace(seq=request.seq) for a in answers]
            answers.append(codec.error_message(request, 0))
        for number, answer in enumerate(answers):
            if self.refuse_after == number:
                return
            connection.send(b"D" + codec.pack(answer))
        connection.send(b"E")

    @staticmethod
    def _own_descriptor(body: bytes, fd: int) -> bytes:
        head, rest = body[: LINK_HEADER.size], codec.attrs(body, LINK_HEADER.size)
        swapped = [(k, codec.u32(fd) if k == constants.IFLA_NET_NS_FD else v) for k, v in rest]
        return head + b"".join(codec.attr(k, v) for k, v in swapped)

    @staticmethod
    def _events(connection: socket.socket, events: Subscription) -> None:
        connection.send(b"R")
        with selectors.DefaultSelector() as selector:
            selector.register(events.fileno(), selectors.EVENT_READ)
            selector.register(connection, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is connection:
                        events.close()
                        return
                    connection.send(b"D" + b"".join(map(codec.pack, events.read())))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForwardingServer]:
    server = ForwardingServer(tmp_path / "netlink.sock")
    yield server
    server.close()


@pytest.fixture
def served(server: ForwardingServer, tmp_path: Path) -> SocketTransport:
    return SocketTransport(tmp_path / "netlink.sock")


@pytest.fixture(params=["kernel", "socket"])
def transport(request: pytest.FixtureRequest) -> Transport:
    if request.param == "socket":
        socket_transport: SocketTransport = request.getfixturevalue("served")
        return socket_transport
    return KernelTransport()


def get_lo() -> bytes:
    body = LINK_HEADER.pack(0, 0, 0, 0, 0) + codec.attr(constants.IFLA_IFNAME, codec.string("lo"))
    return codec.pack(Message(constants.RTM_GETLINK, 0, body))


def test_one_answer_without_its_acknowledgement(transport: Transport) -> None:
    (answer,) = transport.request(constants.NETLINK_ROUTE, get_lo())
    assert answer.type == constants.RTM_NEWLINK


def test_namespaces_are_told_apart(transport: Transport) -> None:
    with netkit.new_netns() as fd:
        dump = codec.pack(Message(constants.RTM_GETLINK, codec.NLM_F_DUMP, LINK_HEADER.pack(0, 0, 0, 0, 0)))
        assert len(transport.request(constants.NETLINK_ROUTE, dump, netns=fd)) == 1
        netkit.add_veth(transport, fd, "a0", "b0")
        assert len(transport.request(constants.NETLINK_ROUTE, dump, netns=fd)) == 3
        assert Links(transport).get("a0") is None


def test_moves_pass_the_descriptor(transport: Transport) -> None:
    links = Links(transport)
    with netkit.new_netns() as here, netkit.new_netns() as there:
        netkit.add_veth(transport, here, "a0", "b0")
        link = links.get("a0", netns=here)
        assert link is not None
        assert links.change(link.ifindex, here, move_to=there, name="net1").name == "net1"


def test_errors_come_with_the_kernels_words(transport: Transport) -> None:
    body = LINK_HEADER.pack(0, 1, 0, 0, 0)
    with pytest.raises(OSError, match="Invalid values in header") as caught:
        transport.request(constants.NETLINK_ROUTE, codec.pack(Message(constants.RTM_GETLINK, 0, body)))
    assert caught.value.errno == errno.EINVAL


def test_events(transport: Transport) -> None:
    with netkit.new_netns() as fd:
        events = transport.subscribe(constants.NETLINK_ROUTE, constants.RTMGRP_LINK, netns=fd)
        netkit.add_veth(transport, fd, "a0", "b0")
        with selectors.DefaultSelector() as selector:
            selector.register(events.fileno(), selectors.EVENT_READ)
            assert selector.select(5)
        assert {m.type for m in events.read()} == {constants.RTM_NEWLINK}
        events.close()


def test_what_the_server_is_sent(server: ForwardingServer, served: SocketTransport) -> None:
    served.request(constants.NETLINK_ROUTE, get_lo())
    served.subscribe(constants.NETLINK_ROUTE, constants.RTMGRP_LINK).close()
    with pytest.raises(OSError, match="support"):
        served.request(constants.NETLINK_RDMA, codec.pack(Message(0x1406, 0, b"")), passed_fd=0)
    assert server.seen == [(1, 1, 0, 0), (2, 1, 0, 1), (1, 2, 20, 0)]


def test_a_server_that_stops_early_is_an_error(server: ForwardingServer, served: SocketTransport) -> None:
    server.refuse_after = 1
    with pytest.raises(ConnectionResetError):
        served.request(constants.NETLINK_ROUTE, get_lo())


def test_no_server(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SocketTransport(tmp_path / "nothing").request(0, get_lo())


def test_a_captured_tree_has_no_netlink() -> None:
    with pytest.raises(OSError, match="captured"):
        NoTransport().request(0, get_lo())
    with pytest.raises(OSError, match="captured"):
        NoTransport().subscribe(0, 1)


def test_the_callers_thread_stays_in_its_namespace() -> None:
    def own() -> str:
        return str(Path("/proc/thread-self/ns/net").readlink())

    before = own()
    with netkit.new_netns() as fd:
        assert in_netns(fd, own) != before
        with pytest.raises(ZeroDivisionError):
            in_netns(fd, lambda: 1 // 0)
    assert own() == before


def test_entering_something_else_is_an_error() -> None:
    with open("/dev/null") as file, pytest.raises(OSError, match="setns"):
        in_netns(file.fileno(), lambda: None)


class InterruptedOnce:
    """Datagrams of a dump that the kernel marks as interrupted, then of a whole one."""

    def __init__(self) -> None:
        self.rounds = 0

    def __call__(self, data: bytes) -> Iterator[bytes]:
        self.rounds += 1
        flags = codec.NLM_F_MULTI | (codec.NLM_F_DUMP_INTR if self.rounds == 1 else 0)
        (request,) = codec.unpack(data)
        yield codec.pack(Message(16, flags, b"link%d" % self.rounds, request.seq))
        yield codec.pack(Message(codec.NLMSG_DONE, flags, b"\0\0\0\0", request.seq))


def test_an_interrupted_dump_is_asked_again() -> None:
    from linkwright.kernel.netlink import transport as module

    source = InterruptedOnce()
    request = codec.pack(Message(18, codec.NLM_F_DUMP, b""))
    answers = module._exchange(request, source)  # type: ignore[arg-type]
    assert source.rounds == 2
    assert [a.body for a in answers] == [b"link2"]
