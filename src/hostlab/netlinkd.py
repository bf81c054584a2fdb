"""The netlink server of an emulated host: answers in the kernel's place what this kernel has no hardware for.

One connection is one request or one subscription (linkwright/kernel/netlink/transport.py, the other end, tells the
format). A request is sent on to the real kernel in the namespace whose descriptor came with it, and its answers
come back with emulated functions told as what they emulate (``nl_link``). Chosen by attribute, not by message: VF
attributes ride in ordinary RTM_SETLINK. RDMA netlink, and DCB and devlink of emulated ports, are answered here.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from hostlab import nl_dcb, nl_link, nl_vf, veth
from hostlab.machine import Machine
from hostlab.nl_devlink import NETLINK_GENERIC, DevlinkNetlink
from hostlab.nl_kernel import NETLINK_ROUTE, SO_RCVBUFFORCE, KernelSocket, inode_of, setns
from hostlab.nl_link import Device
from hostlab.nl_rdma import RdmaNetlink
from hostlab.wire import Wire
from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import Message

log = logging.getLogger(__name__)

NETLINK_RDMA = 20
_REQUEST, _SUBSCRIBE = 1, 2
_ENVELOPE = struct.Struct("<4sBBHI")
_MAGIC = b"LWNL"
_LARGEST = 1 << 20
_LISTEN_BUFFER = 4 << 20
_UCRED = struct.Struct("=iII")


class NetlinkServer:
    """Listens at ``path`` (its directory must exist), one thread a connection. ``rdma.kernel_users`` may be set.

    ``start`` and ``stop`` with the wire, which must run first and stop last."""

    def __init__(self, machine: Machine, wire: Wire, path: str | os.PathLike[str]) -> None:
        self.machine = machine
        self.wire = wire
        self._path = Path(path)
        self.rdma = RdmaNetlink(machine, wire)
        self.devlink = DevlinkNetlink(machine)
        self.dcb = nl_dcb.DcbNetlink()
        self._clients: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        self._path.unlink(missing_ok=True)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self._sock.bind(str(self._path))
        self._path.chmod(0o666)  # as a netlink socket: anybody may ask; changes want CAP_NET_ADMIN
        self._sock.listen(128)
        self._thread = threading.Thread(target=self._accept, name="netlinkd", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No new connections; the open ones are cut off and waited for. Not under the machine's lock."""
        self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._sock.close()
        with self._lock:
            clients = dict(self._clients)
            for client in clients:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
        for thread in clients.values():
            thread.join()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._sock.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), name="netlinkd-client", daemon=True)
            with self._lock:
                self._clients[client] = thread
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        fds: list[int] = []
        try:
            data, fds, _, _ = socket.recv_fds(client, _LARGEST, 2)
            if len(data) < _ENVELOPE.size or not fds:
                return
            magic, operation, count, family, groups = _ENVELOPE.unpack_from(data)
            if magic != _MAGIC or count != len(fds):
                return
            admin = _UCRED.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[1] == 0
            connection = _Connection(self, client, family, fds, admin)
            setns(fds[0])  # this thread ends with the connection
            if operation == _REQUEST:
                connection.request(codec.unpack(data[_ENVELOPE.size :]))
            elif operation == _SUBSCRIBE:
                connection.subscribe(groups)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client does not wait for the rest
        except Exception:
            log.exception("hostlab: a netlink request failed")
        finally:
            for fd in fds:
                os.close(fd)
            with self._lock:
                del self._clients[client]
                client.close()


class _Connection:
    """One client, in a thread that is in the client's namespace."""

    def __init__(
        self, server: NetlinkServer, client: socket.socket, family: int, fds: list[int], admin: bool
    ) -> None:
        self._server = server
        self._machine, self._wire = server.machine, server.wire
        self._client = client
        self._family = family
        self._netns = fds[0]
        self._passed = fds[1] if len(fds) > 1 else None
        self._inode = inode_of(self._netns)
        self._admin = admin
        self._kernel: KernelSocket | None = None

    def _send(self, messages: Iterable[Message]) -> None:
        packed = b"".join(codec.pack(message) for message in messages)
        if packed:
            self._client.sendall(b"D" + packed)

    # --- requests

    def request(self, messages: list[Message]) -> None:
        with ExitStack() as resources:
            resources.callback(self._close_kernel)
            for message in messages:
                if self._changes(message) and not self._admin:
                    self._send([codec.error_message(message, errno.EPERM)])
                    continue
                for answer in self._answer(message):
                    self._send(answer)
        self._client.sendall(b"E")

    def _close_kernel(self) -> None:
        if self._kernel is not None:
            self._kernel.close()

    def _changes(self, message: Message) -> bool:
        if self._family == NETLINK_ROUTE:
            return message.type & 3 != 2
        return self._family == NETLINK_RDMA and message.type & 0x3FF in (2, 3, 4, 7)

    def _answer(self, message: Message) -> Iterator[list[Message]]:
        if self._family == NETLINK_RDMA:
            for answer in self._server.rdma.answer(message, self._netns, self._passed):
                yield [answer]
        elif self._family == NETLINK_GENERIC:
            own = self._server.devlink.answer(message)
            yield from [own] if own is not None else self._ask(message)
        elif self._family == NETLINK_ROUTE:
            yield from self._route(message)
        else:
            yield from self._ask(message)

    def _ask(self, message: Message) -> Iterator[list[Message]]:
        """The real kernel's answer, as it is."""
        if self._kernel is None:
            self._kernel = KernelSocket(self._family)
        return self._kernel.converse(message)

    def _route(self, message: Message) -> Iterator[list[Message]]:
        if message.type in (veth.RTM_NEWNSID, veth.RTM_GETNSID) and self._passed is not None:
            message = nl_link.with_descriptor(message, veth.NETNSA_FD, 4, self._passed)
        elif message.type in nl_dcb.TYPES and (port := self._find_by_name(nl_dcb.device_name(message))):
            yield self._server.dcb.answer(message, port)
            return
        elif message.type in (veth.RTM_GETLINK, veth.RTM_SETLINK, veth.RTM_NEWLINK, veth.RTM_DELLINK):
            yield from self._link(message)
            return
        yield from self._ask(message)

    def _link(self, message: Message) -> Iterator[list[Message]]:
        if len(message.body) < veth.IFINFO.size:
            yield [codec.error_message(message, errno.EINVAL)]
            return
        if message.type == veth.RTM_GETLINK:
            mask = veth.link_attrs(message).get(nl_link.IFLA_EXT_MASK, b"\0\0\0\0")
            for answer in self._ask(message):
                yield [self._told(one, codec.read_u32(mask)) for one in answer]
            return
        with ExitStack() as held:  # the answer goes out when the lab has taken the change in
            answers = list(self._change(message, held))
        yield from answers

    def _change(self, message: Message, held: ExitStack) -> Iterator[list[Message]]:
        fields = veth.link_attrs(message)
        if nl_link.IFLA_NET_NS_PID in fields or (self._passed is None and veth.IFLA_NET_NS_FD in fields):
            # Numbers of the client's own tables, which mean something else here.
            yield [codec.error_message(message, errno.EBADF, "pass the namespace as a descriptor")]
            return
        if self._passed is not None and veth.IFLA_NET_NS_FD in fields:
            message = nl_link.with_descriptor(message, veth.IFLA_NET_NS_FD, veth.IFINFO.size, self._passed)
            held.enter_context(self._wire.holding(self._passed))
        if nl_link.IFLA_IFALIAS in fields:
            held.callback(self._wire.look_again, self._inode, veth.index_of(message))
        device = self._find(message)
        if device is None:
            yield from self._ask(message)
        elif message.type == veth.RTM_DELLINK:  # a physical device has no dellink
            yield [codec.error_message(message, errno.EOPNOTSUPP)]
        else:
            yield from self._change_function(message, device)

    def _change_function(self, message: Message, device: Device) -> Iterator[list[Message]]:
        change = nl_link.split(message, device)
        if change.forward is not None:
            for answer in self._ask(change.forward._replace(flags=message.flags | codec.NLM_F_ACK)):
                failed = [one for one in answer if (codec.error(one) or (0, ""))[0]]
                if failed:
                    yield failed
                    return
        number, words = change.refused or (0, "")
        if not change.refused and change.vfs:
            with self._machine.lock:
                for entry in change.vfs:
                    number = number or nl_vf.apply(device.fn, entry, self._wire.refresh)
        if number or message.flags & codec.NLM_F_ACK:
            yield [codec.error_message(message, number, words)]

    # --- which device is meant

    def _find(self, message: Message) -> Device | None:
        """The emulated netdev that a change names by index or by (alternative) name."""
        ifindex = veth.index_of(message)
        fields = veth.link_attrs(message)
        if ifindex:
            return self._wire.device_at(self._inode, ifindex)
        if message.type == veth.RTM_NEWLINK and message.flags & codec.NLM_F_EXCL:
            return None
        name = fields.get(veth.IFLA_IFNAME) or fields.get(veth.IFLA_ALT_IFNAME, b"")
        return self._find_by_name(codec.read_string(name))

    def _find_by_name(self, name: str) -> Device | None:
        if not name:
            return None
        with KernelSocket() as sock:
            found = veth.get(sock, name=name)
        return self._wire.device_at(self._inode, veth.index_of(found)) if found is not None else None

    def _told(self, message: Message, ext_mask: int = 0) -> Message:
        """One message of the kernel, rewritten when it is about an emulated netdev."""
        if message.type not in (veth.RTM_NEWLINK, veth.RTM_DELLINK) or len(message.body) < veth.IFINFO.size:
            return message
        device = self._wire.device_seen(self._inode, veth.index_of(message))
        return message if device is None else nl_link.rewrite(message, device, ext_mask)

    # --- events

    def subscribe(self, groups: int) -> None:
        """Until the client closes. RDMA netlink has no events here: such a subscription stays silent."""
        with ExitStack() as resources:
            poll = select.poll()
            poll.register(self._client, select.POLLIN)
            events = None
            if self._family != NETLINK_RDMA:
                events = resources.enter_context(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, self._family))
                events.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, _LISTEN_BUFFER)
                events.bind((0, groups))
                poll.register(events, select.POLLIN)
            self._client.sendall(b"R")
            while True:
                ready = [fd for fd, _ in poll.poll()]
                if self._client.fileno() in ready:
                    return
                if events is not None:
                    self._pass_on(events)

    def _pass_on(self, events: socket.socket) -> None:
        try:
            data = events.recv(_LARGEST)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            self._send([Message(codec.NLMSG_OVERRUN, 0, b"")])
            return
        self._send(self._told(message) for message in codec.unpack(data))
