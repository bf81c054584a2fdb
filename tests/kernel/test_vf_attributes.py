"""The VF structures, byte for byte, against an independent encoder (pyroute2) and written-out kernel layouts."""

from __future__ import annotations

import struct

import pytest

from linkwright.kernel.linkcodec import LINK_HEADER, decode_vfs, vf_attributes
from linkwright.kernel.links import Links
from linkwright.kernel.netlink import codec, constants
from linkwright.kernel.netlink.codec import Message
from linkwright.kernel.netlink.transport import Subscription

ifinfmsg = pytest.importorskip("pyroute2.netlink.rtnl.ifinfmsg").ifinfmsg
GUID = "a0:88:c2:03:00:ad:ea:b8"


class Recorder:
    """A transport that keeps what it was sent and answers with ``answers``."""

    def __init__(self, *answers: Message) -> None:
        self.sent: list[Message] = []
        self.answers = list(answers)

    def request(
        self, family: int, messages: bytes, *, netns: int | None = None, passed_fd: int | None = None
    ) -> list[Message]:
        assert family == constants.NETLINK_ROUTE
        self.sent += codec.unpack(messages)
        return self.answers

    def subscribe(self, family: int, groups: int, *, netns: int | None = None) -> Subscription:
        raise NotImplementedError


def theirs(vf: int, **settings: object) -> dict[int, bytes]:
    """pyroute2's encoding of the same settings: attribute number -> payload."""
    names = {"mac": "mac", "link_state": "link_state", "trust": "trust", "spoofchk": "spoofchk"}
    names |= {"node_guid": "ib_node_guid", "port_guid": "ib_port_guid"}
    info = ifinfmsg.vflist.vfinfo
    kinds = {name: number for number, (name, *_) in enumerate(info.nla_map)}
    found = {}
    for key, value in settings.items():
        if key == "vlan":
            wire, fields = "IFLA_VF_VLAN", {"vf": vf, "vlan": value, "qos": settings["qos"]}
        elif key == "qos":
            continue
        else:
            wire, fields = f"IFLA_VF_{names[key].upper()}", {"vf": vf, names[key]: value}
        message = info()
        message["attrs"] = [(wire, fields)]
        message.encode()
        (entry,) = codec.attrs(bytes(message.data), 4)
        found[entry[0]] = entry[1]
        assert entry[0] in kinds.values()
    return found


SETTINGS = {"mac": "02:11:22:33:44:55", "vlan": 100, "qos": 3, "trust": 1, "spoofchk": 0, "link_state": 1}


@pytest.mark.parametrize("name", ["mac", "vlan", "trust", "spoofchk", "link_state"])
def test_same_bytes_as_pyroute2(name: str) -> None:
    chosen = {name: SETTINGS[name]} | ({"qos": 3} if name == "vlan" else {})
    ours = dict(codec.attrs(vf_attributes(5, **chosen)))  # type: ignore[arg-type]
    assert ours == theirs(5, **chosen)


@pytest.mark.parametrize("name", ["node_guid", "port_guid"])
def test_guids_agree_with_pyroute2_up_to_its_padding(name: str) -> None:
    """pyroute2 lays the u64 directly behind the u32 and pads to 36 bytes; the kernel's struct aligns it to 8."""
    ((kind, payload),) = codec.attrs(vf_attributes(5, **{name: GUID}))  # type: ignore[arg-type]
    assert kind == {"node_guid": 10, "port_guid": 11}[name]
    assert len(payload) == 16
    assert struct.unpack("@IQ", payload) == (5, 0xA088C20300ADEAB8)


def test_struct_sizes_are_the_kernels() -> None:
    inner = dict(codec.attrs(vf_attributes(1, node_guid=GUID, port_guid=GUID, **SETTINGS)))  # type: ignore[arg-type]
    sizes = {kind: len(payload) for kind, payload in inner.items()}
    assert sizes == {1: 36, 2: 12, 4: 8, 5: 8, 9: 8, 10: 16, 11: 16}
    assert inner[1] == b"\1\0\0\0" + bytes.fromhex("021122334455") + bytes(26)


def test_set_vf_sends_one_setlink() -> None:
    recorder = Recorder()
    Links(recorder).set_vf(7, 2, mac="02:00:00:00:00:01", link_state=0)
    (message,) = recorder.sent
    assert message.type == constants.RTM_SETLINK
    assert LINK_HEADER.unpack_from(message.body)[2] == 7
    (outer,) = codec.attrs(message.body, LINK_HEADER.size)
    assert outer[0] == constants.IFLA_VFINFO_LIST
    ((kind, inner),) = codec.attrs(outer[1])
    assert kind == constants.IFLA_VF_INFO
    assert inner == vf_attributes(2, mac="02:00:00:00:00:01", link_state=0)


def test_each_guid_travels_in_an_entry_of_its_own() -> None:
    """do_setvfinfo returns after the first GUID that it finds in an entry."""
    recorder = Recorder()
    Links(recorder).set_vf(7, 2, link_state=1, node_guid=GUID, port_guid=GUID)
    ((_, entries),) = codec.attrs(recorder.sent[0].body, LINK_HEADER.size)
    kinds = [[kind for kind, _ in codec.attrs(entry)] for _, entry in codec.attrs(entries)]
    assert kinds == [[5, 10], [11]]


def kernel_answer(link_type: int, address: bytes, *vfs: bytes) -> Message:
    body = LINK_HEADER.pack(0, link_type, 7, 1, 0) + codec.attr(constants.IFLA_ADDRESS, address)
    infos = [codec.nest(constants.IFLA_VF_INFO, vf) for vf in vfs]
    return Message(constants.RTM_NEWLINK, 0, body + codec.nest(constants.IFLA_VFINFO_LIST, *infos))


def test_vf_info_asks_without_statistics_and_reads_all() -> None:
    unknown = struct.pack("=II", 1, 0xFFFFFFFF)  # rtnl_fill_vfinfo: drivers that do not tell leave -1
    second = (
        codec.attr(1, struct.pack("=I32s", 1, bytes.fromhex("020000000001")))
        + codec.attr(13, bytes(32))
        + codec.attr(2, struct.pack("=III", 1, 100, 3))
        + codec.attr(6, struct.pack("=III", 1, 10, 20))
        + codec.attr(4, unknown)
        + codec.attr(5, struct.pack("=II", 1, 2))
        + codec.attr(9, struct.pack("=II", 1, 1))
    )
    recorder = Recorder(kernel_answer(1, bytes(6), second, vf_attributes(0, mac="02:00:00:00:00:00")))
    first, vf = Links(recorder).vf_info(7)
    assert (first.vf, vf.vf) == (0, 1)
    assert (vf.mac, vf.vlan, vf.qos, vf.min_tx_rate, vf.max_tx_rate) == ("02:00:00:00:00:01", 100, 3, 10, 20)
    assert (vf.spoofchk, vf.link_state, vf.trust) == (False, 2, True)
    assert (vf.node_guid, vf.port_guid) == (None, None)
    mask = dict(codec.attrs(recorder.sent[0].body, LINK_HEADER.size))[constants.IFLA_EXT_MASK]
    assert codec.read_u32(mask) == 9


def test_vf_info_of_an_infiniband_pf() -> None:
    address = bytes(range(20))
    inner = codec.attr(1, struct.pack("=I32s", 0, address)) + vf_attributes(0, node_guid=GUID, port_guid=GUID)
    (vf,) = decode_vfs(kernel_answer(32, address, inner))
    assert len(vf.mac) == 59
    assert (vf.node_guid, vf.port_guid) == (GUID, GUID)
