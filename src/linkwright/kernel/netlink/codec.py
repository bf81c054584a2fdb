"""Netlink messages and attributes to bytes and back (include/uapi/linux/netlink.h). Standard library only.

Kept free of other imports, also of dataclasses, since helpers that live for milliseconds load it. Integers are
in host byte order, as the kernel keeps them on the socket.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_HEADER = struct.Struct("=IHHII")
_ATTR = struct.Struct("=HH")
_U8, _U16, _U32, _S32, _U64 = (struct.Struct(f) for f in ("=B", "=H", "=I", "=i", "=Q"))

NLMSG_NOOP = 1
NLMSG_ERROR = 2
NLMSG_DONE = 3
NLMSG_OVERRUN = 4

NLM_F_REQUEST = 0x1
NLM_F_MULTI = 0x2
NLM_F_ACK = 0x4
NLM_F_DUMP_INTR = 0x10
NLM_F_DUMP = 0x300
NLM_F_REPLACE = 0x100
NLM_F_EXCL = 0x200
NLM_F_CREATE = 0x400
NLM_F_APPEND = 0x800
NLM_F_CAPPED = 0x100  # of an acknowledgement
NLM_F_ACK_TLVS = 0x200

NLA_F_NESTED = 0x8000
NLA_TYPE_MASK = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER

NLMSGERR_ATTR_MSG = 1


class Message(NamedTuple):
    """One netlink message. ``body`` is what follows nlmsghdr: the family's header and its attributes."""

    type: int
    flags: int
    body: bytes
    seq: int = 0
    pid: int = 0


def _padding(length: int) -> bytes:
    return b"\0" * (-length % 4)


def pack(msg: Message) -> bytes:
    """The message with its header, padded to 4 bytes so that several can be joined."""
    length = _HEADER.size + len(msg.body)
    return _HEADER.pack(length, msg.type, msg.flags, msg.seq, msg.pid) + msg.body + _padding(length)


def unpack(data: bytes) -> list[Message]:
    """All messages of one datagram; raises ValueError when a length leads out of it."""
    found = []
    offset = 0
    while offset < len(data):
        if len(data) - offset < _HEADER.size:
            raise ValueError(f"netlink datagram ends inside a header at byte {offset} of {len(data)}")
        length, kind, flags, seq, pid = _HEADER.unpack_from(data, offset)
        if length < _HEADER.size or offset + length > len(data):
            raise ValueError(f"netlink message at byte {offset} says {length} bytes; the datagram has {len(data)}")
        found.append(Message(kind, flags, data[offset + _HEADER.size : offset + length], seq, pid))
        offset += length + (-length % 4)
    return found


def attr(kind: int, payload: bytes = b"") -> bytes:
    """One attribute, padded to 4 bytes. An empty payload is a flag attribute."""
    length = _ATTR.size + len(payload)
    if length > 0xFFFF:
        raise ValueError(f"netlink attribute {kind} has {len(payload)} bytes; it can hold {0xFFFF - _ATTR.size}")
    return _ATTR.pack(length, kind) + payload + _padding(length)


def nest(kind: int, *inner: bytes) -> bytes:
    """An attribute that holds attributes; sets NLA_F_NESTED."""
    return attr(kind | NLA_F_NESTED, b"".join(inner))


def iter_attrs(body: bytes, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """(type without its flag bits, payload) in order, repeated ones too; raises ValueError on bad lengths."""
    end = len(body)
    while end - offset >= _ATTR.size:
        length, kind = _ATTR.unpack_from(body, offset)
        if length < _ATTR.size or offset + length > end:
            raise ValueError(f"netlink attribute at byte {offset} says {length} bytes; {end - offset} are left")
        yield kind & NLA_TYPE_MASK, body[offset + _ATTR.size : offset + length]
        offset += length + (-length % 4)


def attrs(body: bytes, offset: int = 0) -> list[tuple[int, bytes]]:
    """The attributes of ``body`` from ``offset`` (skip the family's header with it)."""
    return list(iter_attrs(body, offset))


def attr_map(body: bytes, offset: int = 0) -> dict[int, bytes]:
    """The same as a dict; of a repeated type the last one stays."""
    return dict(iter_attrs(body, offset))


def u8(value: int) -> bytes:
    return _U8.pack(value)


def u16(value: int) -> bytes:
    return _U16.pack(value)


def u32(value: int) -> bytes:
    return _U32.pack(value)


def u64(value: int) -> bytes:
    return _U64.pack(value)


def string(text: str) -> bytes:
    """Text with the closing zero that NLA_NUL_STRING wants."""
    return text.encode() + b"\0"


def read_u8(payload: bytes) -> int:
    return payload[0]


def read_u16(payload: bytes) -> int:
    return int(_U16.unpack_from(payload)[0])


def read_u32(payload: bytes) -> int:
    return int(_U32.unpack_from(payload)[0])


def read_s32(payload: bytes) -> int:
    return int(_S32.unpack_from(payload)[0])


def read_u64(payload: bytes) -> int:
    return int(_U64.unpack_from(payload)[0])


def read_string(payload: bytes) -> str:
    return payload.split(b"\0", 1)[0].decode(errors="replace")


def error(msg: Message) -> tuple[int, str] | None:
    """(errno, the kernel's own words) of NLMSG_ERROR or NLMSG_DONE; errno 0 is an acknowledgement.

    None for other types. The words are there when the socket asked for NETLINK_EXT_ACK (netlink_ack in
    net/netlink/af_netlink.c): after the error come the request's header and, unless capped, its whole body.
    """
    if msg.type not in (NLMSG_ERROR, NLMSG_DONE) or (msg.type == NLMSG_ERROR and len(msg.body) < 4):
        return None
    number = -read_s32(msg.body) if len(msg.body) >= 4 else 0
    if not msg.flags & NLM_F_ACK_TLVS:
        return max(number, 0), ""
    offset = 4
    if msg.type == NLMSG_ERROR:
        request = read_u32(msg.body[4:8])
        offset += _HEADER.size if msg.flags & NLM_F_CAPPED else request + (-request % 4)
    return max(number, 0), read_string(attr_map(msg.body, offset).get(NLMSGERR_ATTR_MSG, b""))


def error_message(request: Message, number: int, text: str = "") -> Message:
    """What the kernel answers to ``request``: NLMSG_ERROR with ``number`` (0 acknowledges), body left out."""
    flags, tail = NLM_F_CAPPED, b""
    if text:
        flags, tail = flags | NLM_F_ACK_TLVS, attr(NLMSGERR_ATTR_MSG, string(text))
    head = _HEADER.pack(_HEADER.size + len(request.body), request.type, request.flags, request.seq, request.pid)
    return Message(NLMSG_ERROR, flags, _S32.pack(-number) + head + tail, request.seq, request.pid)
