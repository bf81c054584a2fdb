"""VF attributes through a PF's netdev: the kernel's structs and rules, checked with pyroute2's own encoder too."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.requests.link import LinkIPRouteFilter
from wire_rig import ETH_PF, IB_PF, SETLINK, Rig, os_error, rig

from hostlab.machine import VfAdmin
from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import Message, attr, nest, string, u32

pytestmark = pytest.mark.lab

VFINFO_LIST, NUM_VF = 22, 21
MAC, VLAN, TX_RATE, SPOOFCHK, LINK_STATE, RATE, RSS, STATS, TRUST, NODE_GUID, PORT_GUID, VLAN_LIST = range(1, 13)
GUID = "aa:00:11:33:44:55:77:88"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        found.machine.set_numvfs(found.fn(ETH_PF), 3)
        found.machine.set_numvfs(found.fn(IB_PF), 2)
        yield found


def admin(lab: Rig, pf: str, index: int) -> VfAdmin:
    return lab.fn(pf).port.vfs[index].admin


def vf(*entries: bytes) -> bytes:
    return nest(VFINFO_LIST, *(nest(1, entry) for entry in entries))


def pair(kind: int, index: int, value: int) -> bytes:
    return attr(kind, struct.pack("=II", index, value))


def guid(kind: int, index: int, text: str) -> bytes:
    return attr(kind, struct.pack("=IxxxxQ", index, int(text.replace(":", ""), 16)))


def refused(lab: Rig, pf: str, number: int, *attrs: bytes) -> None:
    with os_error(number):
        lab.change(lab.ifindex(pf), *attrs)


def shown(lab: Rig, name: str) -> list[dict[int, bytes]]:
    fields = lab.link(name, mask=1)[1]
    assert codec.read_u32(fields[NUM_VF]) == len(codec.attrs(fields[VFINFO_LIST]))
    return [codec.attr_map(entry) for _, entry in codec.attrs(fields[VFINFO_LIST])]


def test_set_and_get_in_ethernet_mode(lab: Rig) -> None:
    lab.change(lab.ifindex(ETH_PF), vf(
        attr(MAC, struct.pack("=I32s", 1, b"\x02\0\0\0\0\7"))
        + attr(VLAN, struct.pack("=III", 1, 100, 3))
        + attr(RATE, struct.pack("=III", 1, 50, 1000))
        + pair(SPOOFCHK, 1, 1)
        + pair(LINK_STATE, 1, 1)
        + pair(TRUST, 1, 1)
    ))  # fmt: skip
    kept = admin(lab, ETH_PF, 1)
    assert (kept.mac, kept.vlan, kept.qos, kept.min_tx_rate, kept.max_tx_rate) == (
        "02:00:00:00:00:07", 100, 3, 50, 1000,
    )  # fmt: skip
    assert (kept.spoofchk, kept.trust, kept.link_state) == (True, True, 1)
    entry = shown(lab, "enp129s0np0")[1]
    assert entry[MAC] == struct.pack("=I32s", 1, b"\x02\0\0\0\0\7")
    assert entry[VLAN] == struct.pack("=III", 1, 100, 3)
    assert codec.attr_map(entry[VLAN_LIST])[1] == struct.pack("=III", 1, 100, 3) + b"\x81\x00\0\0"
    assert entry[RATE] == struct.pack("=III", 1, 50, 1000)
    assert entry[TX_RATE] == struct.pack("=II", 1, 1000)
    assert [entry[kind] for kind in (SPOOFCHK, TRUST, LINK_STATE)] == [struct.pack("=II", 1, 1)] * 3
    assert entry[RSS] == struct.pack("=II", 1, 0xFFFFFFFF)
    assert not {NODE_GUID, PORT_GUID} & entry.keys()
    assert len(codec.attrs(entry[STATS])) == 8


def test_a_vf_takes_its_mac_when_its_driver_binds(lab: Rig) -> None:
    target = lab.fn(ETH_PF).port.vfs[0]
    before = target.mac
    lab.change(lab.ifindex(ETH_PF), vf(attr(MAC, struct.pack("=I32s", 0, b"\x02\0\0\0\0\7"))))
    assert target.mac == before
    lab.machine.unbind(target, "mlx5_core")
    lab.machine.bind(target, "mlx5_core")
    assert lab.link("enp129s0v0")[1][1] == b"\x02\0\0\0\0\7"


def test_guids_in_infiniband_mode(lab: Rig) -> None:
    index = lab.ifindex(IB_PF)
    lab.change(index, vf(guid(NODE_GUID, 1, GUID), guid(PORT_GUID, 1, GUID[:-2] + "89")))
    lab.change(index, vf(pair(LINK_STATE, 1, 2)))
    kept = admin(lab, IB_PF, 1)
    assert (kept.node_guid, kept.port_guid, kept.link_state) == (GUID, GUID[:-2] + "89", 2)
    entry = shown(lab, "ibp59s0f0")[1]
    assert entry[NODE_GUID] == struct.pack("=IxxxxQ", 1, 0xAA00113344557788)
    assert entry[PORT_GUID] == struct.pack("=IxxxxQ", 1, 0xAA00113344557789)
    assert entry[MAC] == struct.pack("=I32s", 1, lab.link("ibp59s0f0")[1][1])


def test_both_guids_in_one_entry_set_the_node_guid_only_as_in_the_kernel(lab: Rig) -> None:
    lab.change(lab.ifindex(IB_PF), vf(guid(NODE_GUID, 0, GUID) + guid(PORT_GUID, 0, GUID)))
    assert admin(lab, IB_PF, 0).node_guid == GUID
    assert admin(lab, IB_PF, 0).port_guid == "00:00:00:00:00:00:00:00"


def test_each_mode_refuses_what_belongs_to_the_other(lab: Rig) -> None:
    refused(lab, ETH_PF, errno.EOPNOTSUPP, vf(guid(NODE_GUID, 0, GUID)))
    for entry in (
        attr(MAC, struct.pack("=I32s", 0, b"\x02\0\0\0\0\7")),
        attr(VLAN, struct.pack("=III", 0, 100, 0)),
        pair(TRUST, 0, 1),
        pair(SPOOFCHK, 0, 1),
    ):
        refused(lab, IB_PF, errno.EOPNOTSUPP, vf(entry))
    refused(lab, ETH_PF, errno.EOPNOTSUPP, vf(pair(RSS, 0, 1)))


def test_wrong_values(lab: Rig) -> None:
    refused(lab, ETH_PF, errno.EINVAL, vf(pair(TRUST, 3, 1)))
    refused(lab, IB_PF, errno.EINVAL, vf(guid(PORT_GUID, 2, GUID)))
    refused(lab, ETH_PF, errno.EINVAL, vf(attr(MAC, struct.pack("=I32s", 0, b"\x03\0\0\0\0\7"))))
    refused(lab, ETH_PF, errno.EINVAL, vf(attr(VLAN, struct.pack("=III", 0, 4096, 0))))
    refused(lab, ETH_PF, errno.EINVAL, vf(attr(RATE, struct.pack("=III", 0, 100, 50))))
    refused(lab, ETH_PF, errno.EINVAL, vf(pair(LINK_STATE, 0, 3)))
    refused(lab, ETH_PF, errno.ERANGE, vf(attr(TRUST, u32(0))))
    refused(lab, ETH_PF, errno.EINVAL, nest(VFINFO_LIST, nest(2, pair(TRUST, 0, 1))))
    other = attr(1, struct.pack("=III", 0, 5, 0) + b"\x88\xa8\0\0")
    refused(lab, ETH_PF, errno.EPROTONOSUPPORT, vf(nest(VLAN_LIST, other)))


def test_mixed_with_other_attributes_both_parts_are_done(lab: Rig) -> None:
    lab.change(lab.ifindex(ETH_PF), attr(4, u32(4000)), vf(pair(TRUST, 0, 1)), attr(20, b"mixed"))
    assert "mtu 4000" in lab.host.ip("link", "show", "dev", "enp129s0np0")
    assert "mixed" in lab.host.ip("link", "show", "dev", "enp129s0np0")
    assert admin(lab, ETH_PF, 0).trust


def test_when_the_kernel_refuses_its_part_the_vf_part_is_not_reached(lab: Rig) -> None:
    refused(lab, ETH_PF, errno.EEXIST, attr(3, string("lo")), vf(pair(TRUST, 0, 1)))
    assert not admin(lab, ETH_PF, 0).trust


def test_a_pf_in_a_container_cannot_be_reached_from_the_host(lab: Rig) -> None:
    space, index = lab.container(), lab.ifindex(ETH_PF)
    lab.change(index, to=space)
    refused(lab, ETH_PF, errno.ENODEV, vf(pair(TRUST, 0, 1)))
    lab.change(lab.ifindex(ETH_PF), vf(pair(TRUST, 0, 1)), space=space)
    assert admin(lab, ETH_PF, 0).trust


def test_vfs_and_other_links_have_no_vfs(lab: Rig) -> None:
    fields = lab.link("enp129s0v0", mask=1)[1]
    assert (fields[NUM_VF], fields[VFINFO_LIST]) == (u32(0), b"")
    assert VFINFO_LIST not in lab.link("ibp59s0f0v0", mask=1)[1]
    assert VFINFO_LIST not in lab.link("lo", mask=1)[1]
    with pytest.raises(OSError, match="Operation not supported"):
        lab.change(lab.link("lo")[0][1], vf(pair(TRUST, 0, 1)))


def test_link_state_reaches_the_vfs_carrier(lab: Rig) -> None:
    target = lab.fn(ETH_PF).port.vfs[0]
    lab.host.ip("link", "set", "enp129s0v0", "up")
    assert lab.wire.carrier(target)
    lab.change(lab.ifindex(ETH_PF), vf(pair(LINK_STATE, 0, 2)))
    assert not lab.wire.carrier(target)


def by_pyroute2(lab: Rig, pf: str, spec: dict[str, object]) -> None:
    message = ifinfmsg()
    message["index"] = lab.ifindex(pf)
    message["attrs"] = [["IFLA_VFINFO_LIST", LinkIPRouteFilter("set").get_vf(spec)]]
    message["header"]["type"] = SETLINK
    message["header"]["flags"] = 5
    message.encode()
    sent = codec.unpack(bytes(message.data))[0]
    lab.request(Message(sent.type, sent.flags, sent.body))


def test_pyroute2s_encoding_of_ethernet_vf_settings_is_understood(lab: Rig) -> None:
    by_pyroute2(lab, ETH_PF, {
        "vf": 2, "mac": "02:00:00:00:00:09", "vlan": {"vlan": 77, "qos": 5}, "trust": 1, "spoofchk": 1,
        "link_state": 1, "rate": {"min_tx_rate": 10, "max_tx_rate": 20},
    })  # fmt: skip
    kept = admin(lab, ETH_PF, 2)
    assert (kept.mac, kept.vlan, kept.qos, kept.trust, kept.spoofchk) == ("02:00:00:00:00:09", 77, 5, True, True)
    assert (kept.link_state, kept.min_tx_rate, kept.max_tx_rate) == (1, 10, 20)


def test_pyroute2s_encoding_of_guids_is_understood(lab: Rig) -> None:
    by_pyroute2(lab, IB_PF, {"vf": 1, "ib_node_guid": GUID, "link_state": 0})
    by_pyroute2(lab, IB_PF, {"vf": 1, "ib_port_guid": GUID})
    assert (admin(lab, IB_PF, 1).node_guid, admin(lab, IB_PF, 1).port_guid) == (GUID, GUID)


def test_pyroute2_reads_what_is_shown(lab: Rig) -> None:
    lab.change(lab.ifindex(ETH_PF), vf(attr(VLAN, struct.pack("=III", 1, 100, 3)) + pair(TRUST, 1, 1)))
    body = bytes(16) + attr(3, string("enp129s0np0")) + attr(29, u32(1))
    answer = lab.request(Message(18, 0, body))[0]
    read = ifinfmsg(codec.pack(answer))
    read.decode()
    entry = read.get_attr("IFLA_VFINFO_LIST").get_attrs("IFLA_VF_INFO")[1]
    assert entry.get_attr("IFLA_VF_VLAN")["vlan"] == 100
    assert entry.get_attr("IFLA_VF_TRUST")["trust"] == 1
    assert entry.get_attr("IFLA_VF_MAC")["mac"] == "00:00:00:00:00:00"
    assert read.get_attr("IFLA_NUM_VF") == 3
    assert read.get_attr("IFLA_PARENT_DEV_NAME") == ETH_PF
