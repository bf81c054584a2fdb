"""RDMA netlink against answers laid out as drivers/infiniband/core/nldev.c writes them."""

from __future__ import annotations

import errno

import pytest

from linkwright.kernel.netlink import codec, constants
from linkwright.kernel.netlink.codec import Message, attr, nest, read_u32, string, u8, u32, u64
from linkwright.kernel.netlink.transport import KernelTransport, Subscription
from linkwright.kernel.rdma import Rdma, RdmaUser

GET, SET, PORT_GET, SYS_GET, SYS_SET, QP_GET = (0x1401, 0x1402, 0x1405, 0x1406, 0x1407, 0x140A)


def device(index: int, name: str) -> bytes:
    return (
        attr(1, u32(index))
        + attr(2, string(name))
        + attr(3, u32(1))
        + attr(4, u64(0))
        + attr(5, string("20.41.1000"))
        + attr(6, u64(0xA088C20300ADEAB8))
        + attr(7, u64(0xA088C20300ADEAB0))
        + attr(14, u8(1))
        + attr(67, string("ib"))
    )


PORT = (
    attr(1, u32(3)) + attr(2, string("mlx5_1")) + attr(3, u32(1)) + attr(9, u32(7)) + attr(10, u32(1))
    + attr(12, u8(4)) + attr(13, u8(5)) + attr(50, u32(9)) + attr(51, string("ibp59s0"))
)  # fmt: skip


def qp(number: int, **owner: object) -> bytes:
    who = attr(29, string(str(owner["kernel"]))) if "kernel" in owner else attr(28, u32(int(str(owner["pid"]))))
    return nest(20, attr(21, u32(number)), attr(26, u8(2)), attr(27, u8(3)), who)


class Fake:
    """Answers by message type; an int is an errno."""

    def __init__(self, answers: dict[int, list[bytes] | int]) -> None:
        self.answers = answers
        self.sent: list[tuple[Message, int | None, int | None]] = []

    def request(
        self, family: int, messages: bytes, *, netns: int | None = None, passed_fd: int | None = None
    ) -> list[Message]:
        assert family == constants.NETLINK_RDMA
        (message,) = codec.unpack(messages)
        self.sent.append((message, netns, passed_fd))
        answer = self.answers.get(message.type, [])
        if isinstance(answer, int):
            raise OSError(answer, "no")
        return [Message(message.type, 0, body) for body in answer]

    def subscribe(self, family: int, groups: int, *, netns: int | None = None) -> Subscription:
        raise NotImplementedError


def test_devices() -> None:
    first, second = Rdma(Fake({GET: [device(1, "mlx5_0"), device(3, "mlx5_1")]})).devices()
    assert (first.index, first.name, first.protocol, first.firmware) == (1, "mlx5_0", "ib", "20.41.1000")
    assert first.node_guid == "a0:88:c2:03:00:ad:ea:b8"
    assert first.sys_image_guid == "a0:88:c2:03:00:ad:ea:b0"
    assert (second.name, second.state) == ("mlx5_1", None)


@pytest.mark.parametrize("which", ["mlx5_1", 3])
def test_device_with_its_port(which: str | int) -> None:
    fake = Fake({GET: [device(3, "mlx5_1")], PORT_GET: [PORT]})
    found = Rdma(fake).device(which, netns=44)
    assert found is not None
    assert (found.state, found.phys_state, found.lid, found.sm_lid) == ("ACTIVE", "LinkUp", 7, 1)
    assert (found.netdev, found.netdev_index) == ("ibp59s0", 9)
    asked = dict(codec.attrs(fake.sent[-1][0].body))
    assert {k: read_u32(v) for k, v in asked.items()} == {1: 3, 3: 1}
    assert {netns for _, netns, _ in fake.sent} == {44}


def test_unknown_devices_are_none() -> None:
    assert Rdma(Fake({GET: [device(1, "mlx5_0")]})).device("mlx5_9") is None
    assert Rdma(Fake({GET: errno.EINVAL})).device(9) is None


def test_move_passes_the_namespace() -> None:
    fake = Fake({})
    Rdma(fake).move(3, 17, netns=44)
    ((message, netns, passed),) = fake.sent
    assert (message.type, netns, passed) == (SET, 44, 17)
    assert {k: read_u32(v) for k, v in codec.attrs(message.body)} == {1: 3, 68: 17}


def test_rename() -> None:
    fake = Fake({})
    Rdma(fake).rename(3, "mlx5_0")
    assert codec.attrs(fake.sent[0][0].body) == [(1, u32(3)), (2, b"mlx5_0\0")]


def test_move_into_a_taken_name_is_the_kernels_error() -> None:
    with pytest.raises(OSError, match="no") as caught:
        Rdma(Fake({SET: errno.EEXIST})).move(3, 17)
    assert caught.value.errno == errno.EEXIST


@pytest.mark.parametrize(("value", "mode"), [(0, "exclusive"), (1, "shared")])
def test_netns_mode(value: int, mode: str) -> None:
    fake = Fake({SYS_GET: [attr(66, u8(value))]})
    assert Rdma(fake).netns_mode() == mode
    Rdma(fake).set_netns_mode(mode)
    assert (fake.sent[-1][0].type, codec.attrs(fake.sent[-1][0].body)) == (SYS_SET, [(66, u8(value))])


def test_users_are_told_apart_and_the_usual_ones_left_out() -> None:
    table = [qp(1, kernel="ib_core"), qp(2, kernel="nvme_rdma"), qp(3, kernel="nvme_rdma"), qp(4, pid=4711)]
    body = attr(1, u32(3)) + attr(2, string("mlx5_1")) + nest(19, *table)
    more = attr(1, u32(3)) + nest(19, qp(5, kernel="ib_ipoib"), qp(6, pid=4711), qp(7, pid=12))
    rdma = Rdma(Fake({QP_GET: [body, more]}))
    assert rdma.users(3) == (RdmaUser(kernel="nvme_rdma"), RdmaUser(pid=4711), RdmaUser(pid=12))
    assert rdma.kernel_users(3) == ("nvme_rdma",)


def test_a_kernel_without_rdma() -> None:
    rdma = Rdma(Fake(dict.fromkeys((GET, SYS_GET, PORT_GET), errno.EPROTONOSUPPORT)))
    assert (rdma.devices(), rdma.netns_mode(), rdma.device(1)) == ([], None, None)


def test_this_kernel_answers_or_has_none() -> None:
    assert Rdma(KernelTransport()).netns_mode() in (None, "exclusive", "shared")
