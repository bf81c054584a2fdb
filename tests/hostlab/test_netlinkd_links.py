"""rtnetlink of emulated functions through the server: what is told, what is refused, moves, events."""

from __future__ import annotations

import errno
import select
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_rig import DELLINK, ETH_PF, GETLINK, IB_PF, NEWLINK, Rig, eventually, os_error, rig, settle, unpack_link

from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import Message, attr, string, u32
from linkwright.kernel.netlink.transport import Subscription

pytestmark = pytest.mark.lab

ADDRESS, BROADCAST, NAME, MTU, LINK, LINKINFO, ALIAS, NUM_VF, VFINFO_LIST = 1, 2, 3, 4, 5, 18, 20, 21, 22
LINK_NETNSID, PHYS_PORT_NAME, MIN_MTU, MAX_MTU, PROP_LIST, ALT_IFNAME, PERM_ADDRESS = 37, 38, 50, 51, 52, 53, 54
PARENT_NAME, PARENT_BUS = 56, 57


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        yield found


def refused(lab: Rig, number: int, name: str, *attrs: bytes) -> None:
    with os_error(number):
        lab.change(lab.link(name)[0][1], *attrs)


def test_an_infiniband_function_is_told_as_ipoib(lab: Rig) -> None:
    (kind, _, _), fields = lab.link("ibp59s0f0")
    guid = bytes.fromhex(lab.fn(IB_PF).port_guid.replace(":", ""))
    assert kind == 32
    assert len(fields[ADDRESS]) == 20
    assert fields[ADDRESS][4:] == bytes.fromhex("fe80000000000000") + guid
    assert fields[PERM_ADDRESS] == fields[ADDRESS]
    assert fields[BROADCAST].hex() == "00ffffffff12401bffff000000000000ffffffff"
    assert (codec.read_u32(fields[MIN_MTU]), codec.read_u32(fields[MAX_MTU])) == (68, 4092)
    assert fields[PARENT_NAME] == IB_PF.encode() + b"\0"
    assert fields[PARENT_BUS] == b"pci\0"
    info = codec.attr_map(fields[LINKINFO])
    assert info[1] == b"ipoib\0"
    assert codec.read_u16(codec.attr_map(info[2])[1]) == 0xFFFF
    assert not {LINK, LINK_NETNSID, PHYS_PORT_NAME, NUM_VF} & fields.keys()


def test_an_ethernet_function_is_told_as_a_physical_device(lab: Rig) -> None:
    (kind, _, _), fields = lab.link("enp129s0np0")
    assert kind == 1
    assert fields[ADDRESS] == fields[PERM_ADDRESS] == bytes.fromhex(lab.fn(ETH_PF).mac.replace(":", ""))
    assert (codec.read_u32(fields[MIN_MTU]), codec.read_u32(fields[MAX_MTU])) == (68, 9978)
    assert fields[PHYS_PORT_NAME] == b"p0\0"
    assert not {LINK, LINK_NETNSID, LINKINFO} & fields.keys()


def test_what_a_bridge_adds_stays(lab: Rig) -> None:
    lab.host.ip("link", "add", "br0", "type", "bridge")
    lab.host.ip("link", "set", "enp129s0np0", "master", "br0")
    info = codec.attr_map(lab.link("enp129s0np0")[1][LINKINFO])
    assert info[4] == b"bridge\0"
    assert 1 not in info


def test_dumps_are_rewritten_and_other_links_are_left_alone(lab: Rig) -> None:
    lab.host.ip("link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    answers = lab.request(Message(GETLINK, codec.NLM_F_DUMP, bytes(16)))
    links = {codec.read_string(fields[NAME]): (head[0], fields) for head, fields in map(unpack_link, answers)}
    assert links["ibp59s0f0"][0] == 32
    assert PARENT_NAME in links["enp129s0np0"][1]
    assert codec.attr_map(links["veth0"][1][LINKINFO])[1] == b"veth\0"


def test_addresses_in_infiniband_mode(lab: Rig) -> None:
    refused(lab, errno.EINVAL, "ibp59s0f0", attr(ADDRESS, b"\x02\0\0\0\0\1"))
    refused(lab, errno.EINVAL, "ibp59s0f0", attr(ADDRESS, bytes(20)))
    lab.machine.set_numvfs(lab.fn(IB_PF), 1)
    refused(lab, errno.EOPNOTSUPP, "ibp59s0f0v0", attr(ADDRESS, lab.link("ibp59s0f0v0")[1][ADDRESS]))
    lab.host.ip("link", "set", "ibp59s0f0", "up")
    refused(lab, errno.EBUSY, "ibp59s0f0", attr(ADDRESS, lab.link("ibp59s0f0")[1][ADDRESS]))


def test_an_address_in_ethernet_mode_is_the_kernels_matter(lab: Rig) -> None:
    lab.change(lab.ifindex(ETH_PF), attr(ADDRESS, b"\x02\0\0\0\0\1"))
    fields = lab.link("enp129s0np0")[1]
    assert fields[ADDRESS] == b"\x02\0\0\0\0\1"
    assert fields[PERM_ADDRESS].hex(":") == lab.fn(ETH_PF).mac
    assert "02:00:00:00:00:01" in lab.host.ip("link", "show", "dev", "enp129s0np0")


@pytest.mark.parametrize(("name", "mtu", "fits"), [
    ("ibp59s0f0", 4092, True), ("ibp59s0f0", 4093, False), ("ibp59s0f0", 60, False),
    ("enp129s0np0", 9978, True), ("enp129s0np0", 9979, False),
])  # fmt: skip
def test_mtu_limits(lab: Rig, name: str, mtu: int, fits: bool) -> None:
    if fits:
        lab.change(lab.link(name)[0][1], attr(MTU, u32(mtu)))
        assert codec.read_u32(lab.link(name)[1][MTU]) == mtu
    else:
        with pytest.raises(OSError, match=r"device m(ax|in)imum"):
            lab.change(lab.link(name)[0][1], attr(MTU, u32(mtu)))


def test_a_move_with_a_refused_mtu_has_moved_all_the_same(lab: Rig) -> None:
    """do_setlink changes the namespace first and does not go back."""
    space = lab.container()
    with pytest.raises(OSError, match="device maximum"):
        lab.change(lab.ifindex(IB_PF), attr(MTU, u32(9000)), attr(NAME, string("net1")), to=space)
    assert lab.wire.host_name(lab.fn(IB_PF)) is None
    assert lab.link("ibp59s0f0", space)[0][0] == 32


def test_move_and_rename_and_back(lab: Rig) -> None:
    space, fn = lab.container(), lab.fn(IB_PF)
    lab.change(lab.ifindex(IB_PF), attr(NAME, string("net1")), attr(MTU, u32(4000)), to=space)
    assert lab.wire.host_name(fn) is None
    (kind, ifindex, _), fields = lab.link("net1", space)
    assert (kind, codec.read_u32(fields[MTU])) == (32, 4000)
    with os_error(errno.ENODEV):
        lab.link("ibp59s0f0")
    lab.change(ifindex, attr(NAME, string("ibp59s0f0")), space=space, to=lab.host)
    assert lab.wire.host_name(fn) == "ibp59s0f0"


def test_move_and_rename_with_a_clashing_altname_fails_and_has_moved(lab: Rig) -> None:
    space = lab.container()
    lab.host.ip("link", "property", "add", "dev", "enp129s0np0", "altname", "net1")
    with pytest.raises(FileExistsError):
        lab.change(lab.ifindex(ETH_PF), attr(NAME, string("net1")), to=space)
    assert lab.wire.host_name(lab.fn(ETH_PF)) is None
    assert "enp129s0np0" in space.ip("link")


def test_a_function_cannot_be_deleted_and_other_links_can(lab: Rig) -> None:
    body = struct.pack("=BxHiII", 0, 0, lab.ifindex(ETH_PF), 0, 0)
    with os_error(errno.EOPNOTSUPP):
        lab.request(Message(DELLINK, 0, body))
    lab.host.ip("link", "add", "br0", "type", "bridge")
    index = lab.link("br0")[0][1]
    lab.request(Message(DELLINK, 0, struct.pack("=BxHiII", 0, 0, index, 0, 0)))
    assert "br0" not in lab.host.ip("link")


def test_numbers_of_the_clients_tables_without_the_descriptor_are_refused(lab: Rig) -> None:
    index = lab.ifindex(ETH_PF)
    for unusable in (attr(28, u32(3)), attr(19, u32(1))):
        with pytest.raises(OSError, match="as a descriptor"):
            lab.change(index, unusable)


def test_addresses_and_namespace_ids_reach_the_kernel(lab: Rig) -> None:
    space = lab.container()
    index = lab.ifindex(ETH_PF)
    ours = b"\x0a\x09\x00\x01"
    address = struct.pack("=BBBBI", 2, 24, 0, 0, index) + attr(2, ours) + attr(1, ours)
    lab.request(Message(20, codec.NLM_F_CREATE, address))
    assert "10.9.0.1" in lab.host.ip("addr")
    wanted = attr(1, struct.pack("=i", 77)) + attr(3, u32(space.fd))
    lab.request(Message(88, 0, b"\0\0\0\0" + wanted), passed=space.fd)
    answer = lab.request(Message(90, 0, b"\0\0\0\0" + attr(3, u32(space.fd))), passed=space.fd)[0]
    assert codec.read_s32(codec.attr_map(answer.body, 4)[1]) == 77


def drain(events: Subscription) -> list[Message]:
    found: list[Message] = []
    while select.select([events], [], [], 0.2)[0]:
        found += events.read()
    return found


def test_events_are_rewritten_in_every_namespace(lab: Rig) -> None:
    space = lab.container()
    here = lab.transport.subscribe(0, 1, netns=lab.host.fd)
    there = lab.transport.subscribe(0, 1, netns=space.fd)
    try:
        index = lab.ifindex(IB_PF)
        lab.change(index, attr(NAME, string("net1")), to=space)
        gone = [message for message in drain(here) if message.type == DELLINK]
        arrived = [message for message in drain(there) if message.type == NEWLINK]
    finally:
        here.close()
        there.close()
    assert [unpack_link(message)[0][:2] for message in gone] == [(32, index)]
    assert arrived
    for message in gone + arrived:
        head, fields = unpack_link(message)
        assert head[0] == 32
        assert len(fields[ADDRESS]) == 20
        assert LINK_NETNSID not in fields
        assert fields[PARENT_NAME] == IB_PF.encode() + b"\0"


def test_a_netdev_made_anew_is_told_with_both_its_addresses(lab: Rig) -> None:
    with_events = lab.transport.subscribe(0, 1, netns=lab.host.fd)
    try:
        old = lab.link("ibp59s0f0")[1][ADDRESS]
        lab.machine.unbind(lab.fn(IB_PF), "mlx5_core")
        lab.machine.bind(lab.fn(IB_PF), "mlx5_core")
        new = lab.link("ibp59s0f0")[1][ADDRESS]
        told = [(message.type, unpack_link(message)[1].get(ADDRESS)) for message in drain(with_events)]
    finally:
        with_events.close()
    assert new[:4] != old[:4]
    assert new[4:] == old[4:]
    assert (DELLINK, old) in told
    assert (NEWLINK, new) in told


def test_a_returned_device_is_told_to_listeners(lab: Rig) -> None:
    space = lab.container()
    lab.change(lab.ifindex(ETH_PF), attr(NAME, string("net1")), to=space)
    events = lab.transport.subscribe(0, 1, netns=lab.host.fd)
    try:
        space.end()
        eventually(lambda: lab.wire.host_name(lab.fn(ETH_PF)))
        settle(lab.wire)
        names = [codec.read_string(unpack_link(m)[1].get(NAME, b"")) for m in drain(events) if m.type == NEWLINK]
    finally:
        events.close()
    assert "net1" in names
