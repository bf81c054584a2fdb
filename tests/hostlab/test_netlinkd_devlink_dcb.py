"""devlink and DCB of emulated ports, as ``devlink dev info`` and ``dcb pfc`` would ask."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2.netlink.devlink import devlinkcmd
from wire_rig import ETH_PF, IB_PF, Rig, os_error, rig

from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import Message, attr, nest, string, u8, u16

pytestmark = pytest.mark.lab

GENERIC = 16
GETDCB, SETDCB = 78, 79
IEEE_SET, IEEE_GET, IEEE_DEL = 20, 21, 27


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        yield found


def devlink(lab: Rig, command: int, *attrs: bytes, dump: bool = False) -> list[dict[int, bytes]]:
    wanted = Message(0x10, 0, struct.pack("=BBH", 3, 1, 0) + attr(2, string("devlink")))
    family = lab.request(wanted, family=GENERIC)
    number = codec.read_u16(codec.attr_map(family[0].body, 4)[1])
    body = struct.pack("=BBH", command, 1, 0) + b"".join(attrs)
    answers = lab.request(Message(number, codec.NLM_F_DUMP if dump else 0, body), family=GENERIC)
    return [codec.attr_map(answer.body, 4) for answer in answers]


def of(address: str) -> tuple[bytes, bytes]:
    return attr(1, string("pci")), attr(2, string(address))


def test_devlink_devices_and_info(lab: Rig) -> None:
    assert [found[2] for found in devlink(lab, 1, dump=True)] == [
        b"0000:3b:00.0\0", b"0000:3b:00.1\0", b"0000:81:00.0\0",
    ]  # fmt: skip
    info = devlink(lab, 51, *of(IB_PF))[0]
    adapter = lab.fn(IB_PF).adapter
    assert info[98] == b"mlx5_core\0"
    assert info[99] == adapter.serial.encode() + b"\0"
    assert codec.attr_map(info[100]) == {103: b"fw.psid\0", 104: b"MT_0000000224\0"}
    assert codec.attr_map(info[101])[104] == b"20.41.1000\0"
    with os_error(errno.ENODEV):
        devlink(lab, 51, *of("0000:99:00.0"))
    with pytest.raises(OSError, match="not supported"):
        devlink(lab, 37, *of(IB_PF))


def test_devlink_ports(lab: Rig) -> None:
    infiniband = devlink(lab, 5, *of(IB_PF))[0]
    assert (infiniband[4], infiniband[8], infiniband[77]) == (u16(3), b"ibp59s0f0\0", u16(0))
    ethernet = devlink(lab, 5, *of(ETH_PF))[0]
    assert (ethernet[4], ethernet[7]) == (u16(2), b"enp129s0np0\0")


def test_pyroute2_names_our_devlink_attributes_as_we_do() -> None:
    names = [name for name, *_ in devlinkcmd.nla_map]
    assert names[98:105] == [
        "DEVLINK_ATTR_INFO_DRIVER_NAME", "DEVLINK_ATTR_INFO_SERIAL_NUMBER", "DEVLINK_ATTR_INFO_VERSION_FIXED",
        "DEVLINK_ATTR_INFO_VERSION_RUNNING", "DEVLINK_ATTR_INFO_VERSION_STORED",
        "DEVLINK_ATTR_INFO_VERSION_NAME", "DEVLINK_ATTR_INFO_VERSION_VALUE",
    ]  # fmt: skip


def test_other_generic_families_reach_the_kernel(lab: Rig) -> None:
    body = struct.pack("=BBH", 3, 1, 0) + attr(2, string("nlctrl"))
    answer = lab.request(Message(0x10, 0, body), family=GENERIC)[0]
    assert codec.attr_map(answer.body, 4)[2] == b"nlctrl\0"


def dcb(lab: Rig, kind: int, command: int, name: str, *attrs: bytes) -> dict[int, bytes]:
    body = struct.pack("=BBH", 0, command, 0) + attr(1, string(name)) + b"".join(attrs)
    return codec.attr_map(lab.request(Message(kind, 0, body))[0].body, 4)


def shown(lab: Rig, name: str) -> tuple[int, list[bytes]]:
    """(priorities with flow control, entries of the app table)"""
    ieee = codec.attr_map(dcb(lab, GETDCB, IEEE_GET, name)[13])
    return ieee[2][1], [entry for _, entry in codec.attrs(ieee[3])]


def test_flow_control_and_dscp_trust_of_a_roce_port(lab: Rig) -> None:
    assert shown(lab, "enp129s0np0") == (0, [])
    pfc = attr(2, struct.pack("=BBBxH2x", 8, 1 << 3, 0, 0) + bytes(128))
    app = struct.pack("=BBH", 5, 3, 26)
    verdict = dcb(lab, SETDCB, IEEE_SET, "enp129s0np0", nest(13, pfc, nest(3, attr(1, app))))
    assert verdict[13] == u8(0)
    assert shown(lab, "enp129s0np0") == (8, [app])
    assert dcb(lab, SETDCB, IEEE_DEL, "enp129s0np0", nest(13, nest(3, attr(1, app))))[13] == u8(0)
    assert shown(lab, "enp129s0np0") == (8, [])
    missing = dcb(lab, SETDCB, IEEE_DEL, "enp129s0np0", nest(13, nest(3, attr(1, app))))[13]
    assert missing == u8(256 - errno.ENOENT)


def test_the_settings_are_gone_after_a_driver_reload(lab: Rig) -> None:
    pfc = attr(2, struct.pack("=BBBxH2x", 8, 8, 0, 0) + bytes(128))
    dcb(lab, SETDCB, IEEE_SET, "enp129s0np0", nest(13, pfc))
    lab.machine.reload_driver(lab.fn(ETH_PF).adapter)
    assert shown(lab, "enp129s0np0") == (0, [])


def test_infiniband_ports_vfs_and_other_links_have_no_dcb(lab: Rig) -> None:
    lab.machine.set_numvfs(lab.fn(ETH_PF), 1)
    for name in ("ibp59s0f0", "enp129s0v0", "lo"):
        with pytest.raises(OSError, match="not supported"):
            dcb(lab, GETDCB, IEEE_GET, name)
