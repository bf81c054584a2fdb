"""The codec against itself, against the kernel's headers and against malformed input."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from pathlib import Path

import pytest

from linkwright.kernel.netlink import codec, constants
from linkwright.kernel.netlink.codec import Message

HEADERS = [
    Path("/usr/include") / name
    for name in (
        "linux/netlink.h",
        "linux/rtnetlink.h",
        "linux/if_link.h",
        "linux/if_addr.h",
        "rdma/rdma_netlink.h",
    )
]


def test_messages_survive_pack_and_unpack() -> None:
    messages = [Message(16, 5, b"abc", 7, 9), Message(3, 0, b""), Message(18, 0x300, b"\0" * 16, 1)]
    assert codec.unpack(b"".join(map(codec.pack, messages))) == messages


def test_pack_pads_but_does_not_count_the_padding() -> None:
    data = codec.pack(Message(16, 0, b"abcde"))
    assert len(data) == 24
    assert codec.read_u32(data) == 21


def test_attributes_keep_order_and_repetition_and_lose_flag_bits() -> None:
    body = codec.attr(1, b"xyz") + codec.nest(2, codec.attr(53, codec.string("a")), codec.attr(53, b"b\0"))
    found = codec.attrs(body)
    assert [kind for kind, _ in found] == [1, 2]
    assert [codec.read_string(v) for _, v in codec.attrs(found[1][1])] == ["a", "b"]


@pytest.mark.parametrize(
    "data",
    [b"\x10", codec.pack(Message(1, 0, b""))[:-1], b"\x04\0\0\0" + b"\0" * 12, b"\xff\0\0\0" + b"\0" * 12],
    ids=["short header", "cut", "length below header", "length beyond"],
)
def test_unpack_refuses_malformed_datagrams(data: bytes) -> None:
    with pytest.raises(ValueError, match="netlink"):
        codec.unpack(data)


@pytest.mark.parametrize("data", [b"\x03\0\1\0", b"\x09\0\1\0abcd"])
def test_attributes_refuse_malformed_lengths(data: bytes) -> None:
    with pytest.raises(ValueError, match="attribute"):
        codec.attrs(data)


def test_too_long_attribute_is_refused() -> None:
    with pytest.raises(ValueError, match="65536 bytes"):
        codec.attr(1, bytes(65536))


def test_error_carries_errno_and_words() -> None:
    request = Message(16, 5, b"\0" * 16, 4)
    answer = codec.error_message(request, errno.EBUSY, "device is in use")
    assert answer.seq == 4
    assert codec.error(answer) == (errno.EBUSY, "device is in use")
    assert codec.error(codec.error_message(request, 0)) == (0, "")
    assert codec.error(request) is None


def test_error_words_behind_an_uncapped_request() -> None:
    request = codec.pack(Message(16, 5, b"\1\2\3\4\5"))
    tail = codec.attr(codec.NLMSGERR_ATTR_MSG, codec.string("why"))
    body = b"\xf0\xff\xff\xff" + request + tail
    assert codec.error(Message(codec.NLMSG_ERROR, codec.NLM_F_ACK_TLVS, body)) == (16, "why")


def test_a_failed_dump_ends_in_done_with_an_error() -> None:
    assert codec.error(Message(codec.NLMSG_DONE, 0, b"\xa1\xff\xff\xff")) == (95, "")
    assert codec.error(Message(codec.NLMSG_DONE, 0, b"\0\0\0\0")) == (0, "")
    assert codec.error(Message(codec.NLMSG_DONE, 0, b"")) == (0, "")


def test_import_stays_cheap() -> None:
    script = "import sys, linkwright.kernel.netlink.codec; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"msgspec", "typer", "dataclasses", "ctypes", "asyncio", "pyroute2"} & set(done.stdout.split())


def _header_numbers() -> dict[str, int]:
    """Enumerators and plain #defines of the kernel's headers."""
    numbers: dict[str, int] = {}
    for path in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        for name, value in re.findall(r"^#define\s+(\w+)\s+(0x[0-9a-fA-F]+|\d+)\s*$", text, re.MULTILINE):
            numbers.setdefault(name, int(value, 0))
        text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
        for body in re.findall(r"enum\s*\w*\s*\{(.*?)\}", text, re.DOTALL):
            value = -1
            for item in filter(None, map(str.strip, body.split(","))):
                name, _, given = map(str.strip, item.partition("="))
                if re.fullmatch(r"0x[0-9a-fA-F]+|\d+", given):
                    value = int(given, 0)
                elif given in numbers:
                    value = numbers[given]
                elif not given:
                    value += 1
                else:
                    continue
                numbers.setdefault(name, value)
    return numbers


@pytest.mark.skipif(not all(p.exists() for p in HEADERS), reason="kernel headers are not installed")
def test_constants_are_those_of_the_kernel_headers() -> None:
    numbers = _header_numbers()
    ours = r"(RTM_|IFLA_|IFA_|RTA_|RTN_|RTPROT|RT_|RTMGRP|RDMA_|NETLINK_)"
    names = [n for n in dir(constants) if re.match(ours, n)]
    wrong = {n: (getattr(constants, n), numbers[n]) for n in names if numbers.get(n, 0) != getattr(constants, n)}
    assert len(names) > 90
    assert not wrong
