"""The lab's own way to the real kernel: netlink sockets in a chosen network namespace, and setns(2).

A request is one message and its answer, read up to the acknowledgement or the end of the dump, so that the
netlink server can pass every datagram on as it comes. setns goes through ctypes since ``os.setns`` is newer than
Python 3.11.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import Message

NETLINK_ROUTE = 0
SOL_NETLINK = 270
NETLINK_LISTEN_ALL_NSID = 8
NETLINK_CAP_ACK = 10
NETLINK_EXT_ACK = 11
NETLINK_GET_STRICT_CHK = 12
SO_RCVBUFFORCE = 33
_RTMGRP_LINK = 1

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)

_EVENT_BUFFER = 8 << 20
_BUFFER = 1 << 18  # more than the kernel puts into one datagram of a dump (32 KiB) or into a veth's RTM_NEWLINK

T = TypeVar("T")


def setns(netns: int) -> None:
    """Put the calling thread into the network namespace; raises OSError."""
    if _libc.setns(netns, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def in_netns(netns: int, work: Callable[[], T]) -> T:
    """Run ``work`` in a thread of its own inside the namespace; the caller's thread never leaves its own."""
    done: list[T] = []
    failed: list[BaseException] = []

    def body() -> None:
        try:
            setns(netns)
            done.append(work())
        except BaseException as problem:  # raised again in the caller's thread
            failed.append(problem)

    thread = threading.Thread(target=body, name="netns")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


def inode_of(netns: int) -> int:
    return os.fstat(netns).st_ino


def own_namespace() -> int:
    """An open descriptor of the calling thread's network namespace."""
    return os.open(Path("/proc/thread-self/ns/net"), os.O_RDONLY | os.O_CLOEXEC)


def is_dump(message: Message, family: int) -> bool:
    """Will the kernel answer with a dump? rtnetlink looks at either bit, and only for GET types
    (rtnetlink_rcv_msg); the other families want both."""
    if family == NETLINK_ROUTE:
        return message.type & 3 == 2 and bool(message.flags & codec.NLM_F_DUMP)
    return message.flags & codec.NLM_F_DUMP == codec.NLM_F_DUMP


class EventSocket:
    """Link events of the calling thread's namespace and of all that have an id in it."""

    def __init__(self) -> None:
        self._sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_ROUTE)
        self._sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, _EVENT_BUFFER)
        self._sock.setsockopt(SOL_NETLINK, NETLINK_LISTEN_ALL_NSID, 1)
        self._sock.bind((0, _RTMGRP_LINK))

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def read(self) -> Iterator[tuple[int | None, Message]]:
        """(id of the namespace, None for the socket's own; message) of all that has come; never waits.
        NLMSG_OVERRUN says that some were lost."""
        while True:
            try:
                data, extra, _, _ = self._sock.recvmsg(1 << 16, 64, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                yield None, Message(codec.NLMSG_OVERRUN, 0, b"")
                continue
            nsid = int.from_bytes(extra[0][2][:4], sys.byteorder, signed=True) if extra else None
            for message in codec.unpack(data):
                yield nsid, message


class KernelSocket:
    """One netlink socket; not for two threads at once. ``netns`` None: the calling thread's own namespace."""

    def __init__(self, family: int = NETLINK_ROUTE, netns: int | None = None) -> None:
        def make() -> socket.socket:
            return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)

        self.family = family
        self.sock = make() if netns is None else in_netns(netns, make)
        self.sock.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self.sock.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        if family == NETLINK_ROUTE:
            self.sock.setsockopt(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1)
        self._seq = 0
        self._buffer = bytearray(_BUFFER)

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> KernelSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def converse(self, message: Message) -> Iterator[list[Message]]:
        """Send ``message`` and yield the messages of each datagram of the answer, the ending ones too. An
        acknowledgement that the sender did not ask for is asked for and left out."""
        dump = is_dump(message, self.family)
        asked = bool(message.flags & codec.NLM_F_ACK)
        flags = message.flags | codec.NLM_F_REQUEST | (0 if dump else codec.NLM_F_ACK)
        self.sock.sendto(codec.pack(message._replace(flags=flags)), (0, 0))
        over = False
        while not over:
            size = self.sock.recv_into(self._buffer)
            found = []
            for answer in codec.unpack(bytes(self._buffer[:size])):
                if answer.seq != message.seq:
                    continue
                ending = answer.type in (codec.NLMSG_ERROR, codec.NLMSG_DONE)
                over |= ending
                if not ending or dump or asked or (codec.error(answer) or (0, ""))[0]:
                    found.append(answer)
            yield found

    def request(self, kind: int, flags: int, body: bytes) -> list[Message]:
        """The answers without the ending; raises OSError with the kernel's errno and words. A dump that a change
        interrupted is asked again."""
        while True:
            self._seq += 1
            message = Message(kind, flags | codec.NLM_F_REQUEST | codec.NLM_F_ACK, body, self._seq)
            answers: list[Message] = []
            interrupted = False
            for datagram in self.converse(message):
                for answer in datagram:
                    interrupted |= bool(answer.flags & codec.NLM_F_DUMP_INTR) and answer.type != codec.NLMSG_ERROR
                    verdict = codec.error(answer)
                    if verdict is None:
                        answers.append(answer)
                    elif verdict[0] == errno.EINTR:
                        interrupted = True
                    elif verdict[0]:
                        raise OSError(verdict[0], verdict[1] or os.strerror(verdict[0]))
            if not interrupted:
                return answers
