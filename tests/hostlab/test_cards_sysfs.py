"""What the emulated /sys shows: shape, links, modes, names, port states."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from cards_rig import Rig

from hostlab import personas
from hostlab.sysfs_function import vpd
from linkwright.model.errors import InvalidInput
from linkwright.model.values import LinkMode

PF0, PF1, SINGLE, ETH = "0000:3b:00.0", "0000:3b:00.1", "0000:5e:00.0", "0000:81:00.0"
BUS = "/bus/pci/devices/"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def set_mode(rig: Rig, address: str, mode: LinkMode) -> None:
    """What mstconfig would do, without it."""
    fn = rig.fn(address)
    link_type = 1 if mode is LinkMode.INFINIBAND else 2
    fn.adapter.firmware.set_next("nv_vpi_link_type", {"default_link_type": link_type}, fn.port.number)


class TestShape:
    def test_every_link_of_the_tree_arrives(self, rig: Rig) -> None:
        rig.write(f"{BUS}{ETH}/sriov_numvfs", "2\n")
        rig.write(f"{BUS}{PF0}/sriov_numvfs", "1\n")
        seen = 0

        def walk(path: str) -> None:
            nonlocal seen
            for name, node in rig.tree.lookup(path or "/").entries().items():  # type: ignore[union-attr]
                here = f"{path}/{name}"
                if hasattr(node, "target"):
                    rig.tree.lookup(rig._resolve(here))
                    seen += 1
                elif hasattr(node, "entries"):
                    walk(here)

        walk("")
        assert seen > 50

    def test_identity_of_a_pf(self, rig: Rig) -> None:
        assert rig.read(f"{BUS}{PF0}/vendor") == "0x15b3"
        assert rig.read(f"{BUS}{PF0}/device") == "0x101b"
        assert rig.read(f"{BUS}{PF0}/class") == "0x020700"
        assert rig.read(f"{BUS}{ETH}/class") == "0x020000"
        assert "PCI_SLOT_NAME=0000:3b:00.0" in rig.read(f"{BUS}{PF0}/uevent")
        group = rig._resolve(f"{BUS}{PF0}/iommu_group").rsplit("/", 1)[1]
        assert rig.names(f"/kernel/iommu_groups/{group}/devices") == {PF0}

    def test_vpd_has_part_and_serial_number_and_a_right_checksum(self, rig: Rig) -> None:
        data = vpd(rig.fn(PF0).adapter)
        assert b"PN\x0fMCX653106A-ECAT" in data
        assert rig.fn(PF0).adapter.serial.encode() in data
        assert sum(data[:-1]) & 0xFF == 0

    def test_ports_of_one_card_share_the_image_guid(self, rig: Rig) -> None:
        guids = {rig.read(f"/class/infiniband/{n}/sys_image_guid") for n in ("ibp59s0f0", "ibp59s0f1")}
        assert len(guids) == 1
        assert rig.read("/class/infiniband/ibp59s0f0/board_id") == "MT_0000000224"
        assert guids == {rig.read("/class/infiniband/ibp59s0f0/node_guid")}


class TestModes:
    def test_names_and_type_follow_the_mode_after_a_boot(self, rig: Rig) -> None:
        assert rig.names("/class/net") == {"lo", "ibp59s0f0", "ibp59s0f1", "ibp94s0", "enp129s0np0"}
        set_mode(rig, PF0, LinkMode.ROCE)
        assert rig.read("/class/net/ibp59s0f0/type") == "32"
        rig.machine.boot()
        assert rig.names("/class/net") == {"lo", "enp59s0f0np0", "ibp59s0f1", "ibp94s0", "enp129s0np0"}
        assert rig.names("/class/infiniband") == {"rocep59s0f0", "ibp59s0f1", "ibp94s0", "rocep129s0"}
        assert rig.read("/class/net/enp59s0f0np0/type") == "1"
        assert rig.read("/class/net/enp59s0f0np0/phys_port_name") == "p0"
        assert rig.read(f"{BUS}{PF0}/class") == "0x020000"
        assert rig.read("/class/infiniband/rocep59s0f0/ports/1/link_layer") == "Ethernet"
        assert rig.read("/class/net/enp59s0f0np0/device/vendor") == "0x15b3"

    def test_vf_names(self, rig: Rig) -> None:
        for pf in (PF0, SINGLE, ETH):
            rig.write(f"{BUS}{pf}/sriov_numvfs", "1\n")
        assert rig.names("/class/net") >= {"ibp59s0f0v0", "ibp94s0v0", "enp129s0v0"}
        assert rig.names("/class/infiniband") >= {"ibp59s0f0v0", "ibp94s0v0", "rocep129s0v0"}

    def test_port_name_is_refused_where_there_is_none(self, rig: Rig) -> None:
        with pytest.raises(OSError, match=r".*") as caught:
            rig.read("/class/net/ibp59s0f0/phys_port_name")
        assert caught.value.errno == errno.EOPNOTSUPP


class TestPorts:
    def port(self, rig: Rig, device: str) -> tuple[str, str, str, str]:
        base = f"/class/infiniband/{device}/ports/1"
        return (
            rig.read(f"{base}/state"),
            rig.read(f"{base}/phys_state"),
            rig.read(f"{base}/lid"),
            rig.read(f"{base}/sm_lid"),
        )

    def test_infiniband_with_and_without_a_subnet_manager(self, rig: Rig) -> None:
        state, physical, lid, sm_lid = self.port(rig, "ibp59s0f0")
        assert (state, physical, sm_lid) == ("4: ACTIVE", "5: LinkUp", "0x1")
        assert 0 < int(lid, 16) < 0xC000
        assert self.port(rig, "ibp59s0f1") == ("2: INIT", "5: LinkUp", "0x0", "0x0")
        rig.machine.fabrics["rail-1"].subnet_manager = True
        assert self.port(rig, "ibp59s0f1")[0] == "4: ACTIVE"
        assert self.port(rig, "ibp59s0f1")[2] != lid

    def test_the_wrong_fabric_keeps_an_infiniband_port_polling(self, rig: Rig) -> None:
        rig.fn(PF0).port.fabric = "office"
        assert self.port(rig, "ibp59s0f0")[:2] == ("1: DOWN", "2: Polling")

    def test_roce_follows_the_carrier(self, rig: Rig) -> None:
        assert self.port(rig, "rocep129s0")[:2] == ("1: DOWN", "3: Disabled")
        rig.netdevs.devices[ETH].up = True
        assert self.port(rig, "rocep129s0")[:2] == ("4: ACTIVE", "5: LinkUp")
        assert rig.read("/class/infiniband/rocep129s0/ports/1/rate") == "25 Gb/sec (1X EDR)"
        assert rig.read("/class/net/enp129s0np0/speed") == "25000"
        rig.fn(ETH).port.link_broken = True
        assert self.port(rig, "rocep129s0")[0] == "1: DOWN"


class TestNamespaces:
    def test_a_netdev_elsewhere_leaves_an_empty_folder(self, rig: Rig) -> None:
        rig.netdevs.move(ETH, "container")
        assert rig.names(f"{BUS}{ETH}/net") == set()
        assert "enp129s0np0" not in rig.names("/class/net")
        rig.write("/bus/pci/drivers/mlx5_core/unbind", ETH)
        assert "net" not in rig.names(f"{BUS}{ETH}")

    def test_an_rdma_device_elsewhere_is_not_shown(self, rig: Rig) -> None:
        rig.machine.move_rdma(rig.fn(PF0), 4711)
        assert rig.names(f"{BUS}{PF0}/infiniband") == set()
        assert "ibp59s0f0" not in rig.names("/class/infiniband")
        assert rig.netdevs.destroyed == [(PF0, "host")]  # the IPoIB netdev was made anew
        assert "ibp59s0f0" in rig.names("/class/net")

    def test_a_card_that_fell_off_and_came_back(self, rig: Rig) -> None:
        rig.write(f"{BUS}{PF0}/remove", "1")
        assert PF0 not in rig.names("/bus/pci/devices")
        rig.write("/bus/pci/rescan", "1")
        assert rig.names("/class/net") >= {"ibp59s0f0"}


def test_every_persona_can_be_read() -> None:
    for name in personas.names():
        assert personas.load(name).ports >= 1


def test_a_persona_written_out_as_a_capture_does() -> None:
    fields = msgspec.to_builtins(personas.load("cx7-vpi-single"))
    assert personas.of(fields) == personas.load("cx7-vpi-single")
    with pytest.raises(InvalidInput, match="psid"):
        personas.of({**fields, "psid": 7})


def test_an_unknown_persona_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="cx6-vpi-dual"):
        personas.load("cx9")
