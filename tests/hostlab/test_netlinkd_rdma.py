"""RDMA netlink of the emulated machine, decoded here by hand from include/uapi/rdma/rdma_netlink.h."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_rig import ETH_PF, IB_PF, IB_UNCABLED, Rig, Space, os_error, rig

from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import Message, attr, string, u8, u32

pytestmark = pytest.mark.lab

RDMA = 20
GET, SET, PORT_GET, SYS_GET, SYS_SET, RES_GET, RES_QP_GET, RES_CM_ID_GET = 1, 2, 5, 6, 7, 9, 10, 11
INDEX, NAME, PORT, MODE, NS_FD = 1, 2, 3, 66, 68


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        yield found


def ask(lab: Rig, operation: int, *attrs: bytes, dump: bool = False, space: Space | None = None,
        passed: Space | None = None) -> list[Message]:  # fmt: skip
    message = Message(5 << 10 | operation, codec.NLM_F_DUMP if dump else 0, b"".join(attrs))
    return lab.request(message, space, passed.fd if passed else None, RDMA)


def index(lab: Rig, address: str) -> bytes:
    return attr(INDEX, u32(lab.fn(address).rdma_index))


def names(lab: Rig, space: Space | None = None) -> list[str]:
    found = ask(lab, GET, dump=True, space=space)
    return [codec.read_string(codec.attr_map(message.body)[NAME]) for message in found]


def refused(number: int, lab: Rig, operation: int, *attrs: bytes, space: Space | None = None,
            passed: Space | None = None) -> None:  # fmt: skip
    with os_error(number):
        ask(lab, operation, *attrs, space=space, passed=passed)


def test_devices(lab: Rig) -> None:
    assert names(lab) == ["ibp59s0f0", "ibp59s0f1", "rocep129s0"]
    answer = ask(lab, GET, index(lab, IB_PF))[0]
    fn = lab.fn(IB_PF)
    assert answer.type == 5 << 10 | GET
    assert [kind for kind, _ in codec.attrs(answer.body)] == [1, 2, 3, 4, 5, 6, 7, 14, 84, 67]
    fields = codec.attr_map(answer.body)
    assert fields[6] == int(fn.node_guid.replace(":", ""), 16).to_bytes(8, "little")
    assert fields[7] == int(fn.adapter.system_image_guid.replace(":", ""), 16).to_bytes(8, "little")
    assert fields[5] == b"20.41.1000\0"
    assert fields[67] == b"ib\0"
    assert codec.attr_map(ask(lab, GET, index(lab, ETH_PF))[0].body)[67] == b"roce\0"
    refused(errno.EINVAL, lab, GET, attr(INDEX, u32(99)))
    refused(errno.EINVAL, lab, GET)


def test_ports(lab: Rig) -> None:
    answer = ask(lab, PORT_GET, index(lab, IB_PF), attr(PORT, u32(1)))[0]
    assert answer.type == 5 << 10 | GET, "the kernel's own slip: nldev_port_get_doit names its reply GET"
    fields = codec.attr_map(answer.body)
    assert [kind for kind, _ in codec.attrs(answer.body)] == [1, 2, 3, 4, 8, 9, 10, 11, 12, 13]
    assert fields[8] == b"\0\0\0\0\0\0\x80\xfe"
    assert (codec.read_u32(fields[9]), codec.read_u32(fields[10])) == (lab.fn(IB_PF).lid, 1)
    assert (fields[12], fields[13]) == (u8(4), u8(5))
    down = ask(lab, PORT_GET, index(lab, IB_UNCABLED), dump=True)[0]
    assert down.type == 5 << 10 | PORT_GET
    assert codec.attr_map(down.body)[12] == u8(1)
    refused(errno.EINVAL, lab, PORT_GET, index(lab, IB_PF), attr(PORT, u32(2)))


def test_a_roce_port_names_its_netdev_only_where_both_are(lab: Rig) -> None:
    request = (index(lab, ETH_PF), attr(PORT, u32(1)))
    fields = codec.attr_map(ask(lab, PORT_GET, *request)[0].body)
    assert (codec.read_u32(fields[50]), fields[51]) == (lab.ifindex(ETH_PF), b"enp129s0np0\0")
    assert fields[12] == u8(1)
    lab.host.ip("link", "set", "enp129s0np0", "up")
    assert codec.attr_map(ask(lab, PORT_GET, *request)[0].body)[12] == u8(4)
    lab.change(lab.ifindex(ETH_PF), to=lab.container())
    assert 51 not in codec.attr_map(ask(lab, PORT_GET, *request)[0].body)


def test_rename(lab: Rig) -> None:
    ask(lab, SET, index(lab, ETH_PF), attr(NAME, string("mlx5_9")))
    assert "mlx5_9" in names(lab)
    refused(errno.EEXIST, lab, SET, index(lab, IB_PF), attr(NAME, string("mlx5_9")))
    refused(errno.EINVAL, lab, SET, index(lab, IB_PF), attr(NAME, string("")))


def test_moving_a_roce_device_leaves_the_netdev_alone(lab: Rig) -> None:
    space = lab.container()
    device = lab.wire.device_of(lab.fn(ETH_PF))
    ask(lab, SET, index(lab, ETH_PF), attr(NS_FD, u32(space.fd)), passed=space)
    assert lab.fn(ETH_PF).rdma_netns == space.inode
    assert names(lab, space) == ["rocep129s0"]
    assert "rocep129s0" not in names(lab)
    refused(errno.EINVAL, lab, GET, index(lab, ETH_PF))
    assert lab.wire.device_of(lab.fn(ETH_PF)) is device
    ask(lab, SET, index(lab, ETH_PF), attr(NS_FD, u32(lab.host.fd)), space=space, passed=lab.host)
    assert lab.fn(ETH_PF).rdma_netns is None
    assert "rocep129s0" in names(lab)


def test_moving_an_infiniband_device_makes_its_netdev_anew_in_the_host(lab: Rig) -> None:
    space = lab.container()
    before = lab.link("ibp59s0f0")
    lab.change(lab.ifindex(IB_PF), attr(3, string("net1")), to=space)
    ask(lab, SET, index(lab, IB_PF), attr(NS_FD, u32(space.fd)), passed=space)
    after = lab.link("ibp59s0f0")
    assert "net1" not in space.ip("link")
    assert after[0][1] != before[0][1]
    assert after[1][1][:4] != before[1][1][:4]
    assert after[1][1][4:] == before[1][1][4:]


def test_shared_mode_shows_all_everywhere_and_moves_nothing(lab: Rig) -> None:
    assert codec.attr_map(ask(lab, SYS_GET)[0].body)[MODE] == u8(0)
    ask(lab, SYS_SET, attr(MODE, u8(1)))
    assert codec.attr_map(ask(lab, SYS_GET)[0].body)[MODE] == u8(1)
    space = lab.container()
    assert len(names(lab, space)) == 3
    refused(errno.EOPNOTSUPP, lab, SET, index(lab, IB_PF), attr(NS_FD, u32(space.fd)), passed=space)


def test_the_mode_stays_while_the_host_has_other_namespaces(lab: Rig) -> None:
    space = lab.container()
    lab.change(lab.ifindex(ETH_PF), to=space)
    refused(errno.EBUSY, lab, SYS_SET, attr(MODE, u8(1)))
    refused(errno.EINVAL, lab, SYS_SET)


def test_a_descriptor_is_needed_to_move(lab: Rig) -> None:
    refused(errno.EBADF, lab, SET, index(lab, IB_PF), attr(NS_FD, u32(3)))


def kernel_names(lab: Rig, address: str) -> list[str]:
    found = []
    for message in ask(lab, RES_QP_GET, index(lab, address), dump=True):
        for _, entry in codec.attrs(codec.attr_map(message.body)[19]):
            found.append(codec.read_string(codec.attr_map(entry)[29]))
    return found


def test_kernel_users(lab: Rig) -> None:
    assert kernel_names(lab, IB_PF) == ["ib_core", "ib_ipoib"]
    assert kernel_names(lab, ETH_PF) == ["ib_core"]
    lab.server.rdma.kernel_users[ETH_PF] = ("nvme_rdma",)
    assert kernel_names(lab, ETH_PF) == ["ib_core", "nvme_rdma"]
    assert ask(lab, RES_CM_ID_GET, index(lab, ETH_PF), dump=True) == []
    summary = codec.attr_map(ask(lab, RES_GET, index(lab, ETH_PF))[0].body)[15]
    counts = {}
    for _, entry in codec.attrs(summary):
        inner = codec.attr_map(entry)
        counts[codec.read_string(inner[17])] = codec.read_u64(inner[18])
    assert counts["qp"] == 2
    assert set(counts) == {"pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"}


def test_a_subscription_is_in_force_and_silent(lab: Rig) -> None:
    events = lab.transport.subscribe(RDMA, 0, netns=lab.host.fd)
    events.close()
    assert names(lab)
