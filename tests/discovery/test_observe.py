"""What one look makes of a sysfs tree: grouping, identity, modes, link texts, fabrics, firmware, faults."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import sysfs_tree
from sysfs_tree import Tree

from linkwright.discovery import observe
from linkwright.firmware.base import CardReading, Reading, ResetDone, ResetOffer, Written
from linkwright.kernel import sysfs
from linkwright.model.documents import Fabric, HostConfig, HostConfigSpec
from linkwright.model.errors import HardwareFault
from linkwright.model.inventory import Adapter, Inventory
from linkwright.model.records import Attachment
from linkwright.model.values import LinkMode, PortId

IB, ROCE = LinkMode.INFINIBAND, LinkMode.ROCE
PF1, PF2, OTHER = "0000:3b:00.0", "0000:3b:00.1", "0000:81:00.0"


class FakeFirmware:
    """``answers``: by PF, a reading or the error to raise. ``together``: queries that have to run at one time."""

    def __init__(self, answers: Mapping[str, CardReading | Exception], together: int = 0) -> None:
        self.answers = answers
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self._barrier = threading.Barrier(together) if together else None

    def query(self, pf: str, names: Sequence[str] = ()) -> CardReading:
        self.asked.append((pf, tuple(names)))
        if self._barrier is not None:
            self._barrier.wait(10)
        answer = self.answers[pf]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def uptime_s(self, pf: str) -> int | None:
        return 3600

    def version(self) -> str | None:
        return "4.21.0"

    def write(self, pf: str, settings: Mapping[str, str]) -> Written:
        raise AssertionError("discovery writes nothing")

    def backup(self, pf: str) -> str:
        raise AssertionError("discovery needs no backup")

    def reset_offer(self, pf: str) -> ResetOffer:
        raise AssertionError("discovery asks for no reset")

    def reset(self, pf: str) -> ResetDone:
        raise AssertionError("discovery resets nothing")


def reading(**params: tuple[str, str]) -> CardReading:
    """(current, next) of each parameter."""
    names = {"LINK_TYPE_P1", "LINK_TYPE_P2", "SRIOV_EN", "NUM_OF_VFS"}
    return CardReading(
        device_type="ConnectX6",
        name="MCX653106A-ECA_Ax",
        description="ConnectX-6 VPI adapter card; dual-port QSFP56; tall bracket",
        params={name: Reading(current=now, next=then) for name, (now, then) in params.items()},
        missing=tuple(sorted(names - set(params))),
    )


DUAL = reading(
    LINK_TYPE_P1=("IB(1)", "ETH(2)"),
    LINK_TYPE_P2=("ETH(2)", "ETH(2)"),
    SRIOV_EN=("False(0)", "True(1)"),
    NUM_OF_VFS=("0", "8"),
)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """One dual-port card: port 1 InfiniBand with two VFs, port 2 Ethernet."""
    tree = Tree(tmp_path)
    tree.pf(PF1)
    tree.file(tree.devices / PF1 / "vpd", sysfs_tree.vpd("x", PN="MCX653106A-ECAT", SN="MT2105X01234"))
    tree.net(PF1, "ibp59s0", 3, type="32", address=":".join(["00"] * 20), mtu="2044")
    tree.rdma(PF1, "ibp59s0")
    tree.vf(PF1, 0, "0000:3b:00.2")
    tree.net("0000:3b:00.2", "ibp59s0v0", 5, type="32")
    tree.vf(PF1, 1, "0000:3b:00.3", driver=None)
    tree.pf(PF2, kind=0x020000)
    tree.net(PF2, "enp59s0f1np1", 4, phys_port_name="p1", speed="100000")
    tree.rdma(PF2, "rocep59s0f1", layer="Ethernet", lid="0x0", sm_lid="0x0", node_guid="a088:c203:00ad:eab9")
    tree.pf("0000:00:1f.6", vendor="0x8086", total=0, kind=0x020000)  # an ordinary NIC
    tree.file(tree.devices / "0000:00:02.0" / "class", "0x030000")
    return tree


def look(tree: Tree, firmware: FakeFirmware | None = None, **more: Any) -> Inventory:
    host = more.pop("host", HostConfig())
    return observe(tree.system(), firmware, host, **more)


def only(inventory: Inventory) -> Adapter:
    (adapter,) = inventory.adapters
    return adapter


def test_one_card_with_two_ports(tree: Tree) -> None:
    inventory = look(tree)
    assert (inventory.host, inventory.boot_id, inventory.kernel) == ("gpu-01", sysfs_tree.BOOT, "6.12.48")
    adapter = only(inventory)
    assert adapter.id == "a0:88:c2:03:00:ad:ea:b0"
    first, second = adapter.ports
    assert (first.id, second.id) == ("0000:3b:00.0/1", "0000:3b:00.1/2")
    assert (first.observed_mode, second.observed_mode) == (IB, ROCE)
    assert (first.link, second.link) == ("up 200G", "up 100G")
    assert (first.num_vfs, first.total_vfs, second.num_vfs) == (2, 8, 0)
    pf, vf0, vf1 = first.functions
    assert (pf.vf_index, vf0.vf_index, vf1.vf_index) == (None, 0, 1)
    assert (vf0.address, vf0.driver, vf1.driver) == ("0000:3b:00.2", "mlx5_core", None)
    assert (pf.numa_node, pf.iommu_group, pf.driver_override) == (1, "40", None)
    assert pf.netdev is not None
    assert (pf.netdev.name, pf.netdev.link_type, pf.netdev.mtu, pf.netdev.carrier) == ("ibp59s0", 32, 2044, True)
    assert pf.rdma is not None
    assert (pf.rdma.name, pf.rdma.state, pf.rdma.phys_state) == ("ibp59s0", "ACTIVE", "LinkUp")
    assert (pf.rdma.lid, pf.rdma.sm_lid, pf.rdma.link_layer) == (7, 1, IB)
    assert (pf.rdma.node_guid, pf.rdma.port_guid) == ("a0:88:c2:03:00:ad:ea:b8", "a0:88:c2:03:00:ad:ea:b9")
    assert all(f.holders == () for port in adapter.ports for f in port.functions)


def test_identity_without_firmware_and_with(tree: Tree) -> None:
    identity = only(look(tree)).identity
    assert (identity.model, identity.device_type, identity.device_id) == ("x", None, "101b")
    assert (identity.part_number, identity.serial) == ("MCX653106A-ECAT", "MT2105X01234")
    assert (identity.psid, identity.firmware) == ("MT_0000000224", "20.41.1000")
    identity = only(look(tree, FakeFirmware({PF1: DUAL}))).identity
    assert (identity.model, identity.device_type) == ("ConnectX-6 VPI", "ConnectX6")


@pytest.mark.parametrize(
    ("description", "model"),
    [
        ("NVIDIA ConnectX-7 HHHL Adapter card; 400GbE / NDR IB (default mode); Single-port OSFP", "ConnectX-7"),
        ("ConnectX-6 Lx EN adapter card; 25GbE; Dual-port SFP28", "ConnectX-6 Lx EN"),
        ("I350 Gigabit Network Adapter, dual port", "I350 Gigabit"),
        ("Some NIC, 10G", "Some NIC"),
    ],
)
def test_model_from_the_cards_description(tree: Tree, description: str, model: str) -> None:
    answer = CardReading(description=description)
    assert only(look(tree, FakeFirmware({PF1: answer}))).identity.model == model


def test_without_firmware_next_current_and_change_are_unknown(tree: Tree) -> None:
    firmware = FakeFirmware({})
    inventory = look(tree, firmware, with_firmware=False)
    adapter = only(inventory)
    assert [(p.next_mode, p.current_mode, p.can_change) for p in adapter.ports] == [(None, None, None)] * 2
    assert (adapter.num_vfs_next, adapter.sriov_enabled_current, adapter.uptime_s) == (None, None, None)
    assert (adapter.faults, firmware.asked, inventory.mstflint) == ((), [], None)


def test_the_firmware_of_a_card_is_asked_once(tree: Tree) -> None:
    firmware = FakeFirmware({PF1: DUAL})
    inventory = look(tree, firmware)
    assert firmware.asked == [(PF1, ("LINK_TYPE_P1", "LINK_TYPE_P2", "SRIOV_EN", "NUM_OF_VFS"))]
    adapter = only(inventory)
    assert [(p.next_mode, p.current_mode, p.can_change) for p in adapter.ports] == [
        (ROCE, IB, True),
        (ROCE, ROCE, True),
    ]
    assert (adapter.sriov_enabled_current, adapter.sriov_enabled_next) == (False, True)
    assert (adapter.num_vfs_current, adapter.num_vfs_next, adapter.uptime_s) == (0, 8, 3600)
    assert inventory.mstflint == "4.21.0"


def test_a_card_of_one_mode_has_what_it_shows(tree: Tree) -> None:
    fixed = CardReading(missing=("LINK_TYPE_P1", "LINK_TYPE_P2", "SRIOV_EN", "NUM_OF_VFS"))
    ports = only(look(tree, FakeFirmware({PF1: fixed}))).ports
    assert [(p.can_change, p.next_mode, p.current_mode) for p in ports] == [(False, IB, IB), (False, ROCE, ROCE)]


def test_a_read_only_setting_cannot_be_changed(tree: Tree) -> None:
    locked = CardReading(params={"LINK_TYPE_P1": Reading(current="IB(1)", next="IB(1)", read_only=True)})
    first, second = only(look(tree, FakeFirmware({PF1: locked}))).ports
    assert (first.can_change, first.current_mode) == (False, IB)
    assert (second.can_change, second.current_mode) == (None, None)


def test_a_card_that_fails_stops_no_other(tree: Tree) -> None:
    tree.pf(OTHER, device="0x101f", kind=0x020000)
    tree.net(OTHER, "enp129s0np0", 9, phys_port_name="p0")
    firmware = FakeFirmware(
        {
            PF1: HardwareFault("the firmware did not answer.", code="firmware-timeout", where=PF1),
            OTHER: reading(SRIOV_EN=("True(1)", "True(1)")),
        },
        together=2,
    )
    broken, healthy = look(tree, firmware).adapters
    assert broken.faults == (f"{PF1}: the firmware did not answer.",)
    assert [(p.can_change, p.next_mode, p.observed_mode) for p in broken.ports] == [
        (None, None, IB),
        (None, None, ROCE),
    ]
    assert (healthy.faults, healthy.ports[0].can_change, healthy.identity.model) == ((), False, "ConnectX-6 VPI")
    assert healthy.sriov_enabled_current is True


def test_a_bug_in_a_driver_is_a_fault_of_that_card(tree: Tree) -> None:
    adapter = only(look(tree, FakeFirmware({PF1: KeyError("LINK_TYPE_P1")})))
    assert adapter.faults == ("'LINK_TYPE_P1'",)


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({}, "up 200G"),
        ({"state": "2: INIT", "lid": "0x0", "sm_lid": "0x0"}, "init, no SM"),
        ({"state": "2: INIT", "sm_lid": "0x1"}, "init"),
        ({"state": "3: ARMED"}, "armed"),
        ({"state": "1: DOWN", "phys_state": "2: Polling"}, "polling"),
        ({"state": "1: DOWN", "phys_state": "3: Disabled"}, "disabled"),
        ({"state": "1: DOWN", "phys_state": "5: LinkUp"}, "down"),
        ({"rate": "2.5 Gb/sec (1X SDR)"}, "up 2.5G"),
        ({"rate": "?"}, "up"),
    ],
)
def test_infiniband_link_texts(tmp_path: Path, files: dict[str, str], text: str) -> None:
    tree = Tree(tmp_path)
    tree.pf(PF1)
    tree.rdma(PF1, "ibp59s0", **files)
    assert only(look(tree)).ports[0].link == text


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"speed": "25000"}, "up 25G"),
        ({"speed": "-1"}, "up 200G"),
        ({"carrier": "0", "speed": "25000"}, "down"),
        ({"flags": "0x1002"}, "down"),
    ],
)
def test_ethernet_link_texts(tmp_path: Path, files: dict[str, str], text: str) -> None:
    tree = Tree(tmp_path)
    tree.pf(PF1)
    tree.rdma(PF1, "rocep59s0", layer="Ethernet")
    tree.net(PF1, "enp59s0np0", 3, **files)
    assert only(look(tree)).ports[0].link == text


def test_the_link_layer_tells_the_mode_where_no_netdev_does(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pf(PF1)
    tree.rdma(PF1, "mlx5_0", layer="Ethernet")
    tree.pf(OTHER, driver="vfio-pci")
    known, unknown = look(tree).adapters
    assert (known.ports[0].observed_mode, unknown.ports[0].observed_mode) == (ROCE, None)
    assert (unknown.id, unknown.ports[0].link) == (OTHER, "")


def test_one_card_in_two_slots_has_its_ports_once(tmp_path: Path) -> None:
    """Two connectors: each shows both ports; the second PF of a port is never offered."""
    tree = Tree(tmp_path)
    for bus in ("3b", "5e"):
        for function in (0, 1):
            tree.pf(f"0000:{bus}:00.{function}")
            tree.rdma(f"0000:{bus}:00.{function}", f"mlx5_{bus}{function}")
    ports = only(look(tree)).ports
    assert [(p.id, p.secondary_of) for p in ports] == [
        ("0000:3b:00.0/1", None),
        ("0000:3b:00.1/2", None),
        ("0000:5e:00.0/1", "0000:3b:00.0/1"),
        ("0000:5e:00.1/2", "0000:3b:00.1/2"),
    ]


def test_one_card_over_two_domains_has_two_ports(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for domain, port in (("0000", "p0"), ("0001", "p1")):
        address = f"{domain}:01:00.0"
        tree.pf(address)
        tree.rdma(address, f"rocep{domain}", layer="Ethernet")
        tree.net(address, f"eth{domain}", int(domain) + 3, phys_port_name=port)
    assert [(p.number, p.secondary_of) for p in only(look(tree)).ports] == [(1, None), (2, None)]


def test_representors_are_not_the_pfs_netdev(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pf(PF1)
    tree.net(PF1, "enp59s0npf0vf0", 8, phys_port_name="pf0vf0")
    tree.net(PF1, "enp59s0np0", 3, phys_port_name="p0")
    netdev = only(look(tree)).ports[0].pf.netdev
    assert netdev is not None
    assert netdev.name == "enp59s0np0"


def test_a_card_keeps_id_and_port_number_while_a_container_has_its_only_pf(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pf(OTHER)
    tree.net(OTHER, None)
    tree.rdma(OTHER, None)
    record = Attachment(
        target="trainer-0",
        interface="net1",
        policy="training",
        generation=1,
        port=PortId(f"{OTHER}/2"),
        adapter="a0:88:c2:03:00:ad:ea:b0",
        boot_id=sysfs_tree.BOOT,
    )
    adapter = only(look(tree, attachments=[record]))
    assert (adapter.id, adapter.ports[0].id) == ("a0:88:c2:03:00:ad:ea:b0", f"{OTHER}/2")
    adapter = only(look(tree))
    assert (adapter.id, adapter.ports[0].id) == (OTHER, f"{OTHER}/1")
    assert adapter.ports[0].pf.net_elsewhere


def test_fabrics_by_port_and_by_address(tree: Tree) -> None:
    fabrics = {
        "rail-0": Fabric(link_modes=(IB, ROCE), ports=("0000:3b:00.0/1",)),
        "office": Fabric(link_modes=(ROCE,), ports=("3b:00.1",)),
        "other": Fabric(link_modes=(IB,), ports=("not a port",)),
    }
    first, second = only(look(tree, host=HostConfig(spec=HostConfigSpec(fabrics=fabrics)))).ports
    assert (first.fabric, first.fabric_modes) == ("rail-0", (IB, ROCE))
    assert (second.fabric, second.fabric_modes) == ("office", (ROCE,))
    assert only(look(tree)).ports[0].fabric is None


def test_other_vendors_count_with_sriov_or_rdma(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pf("0000:01:00.0", vendor="0x8086", device="0x1572", total=64, driver="i40e", kind=0x020000)
    tree.pf("0000:02:00.0", vendor="0x8086", device="0x15b8", total=0, driver="e1000e", kind=0x020000)
    tree.pf("0000:03:00.0", vendor="0x14e4", total=0, driver="bnxt_en", kind=0x020000)
    tree.rdma("0000:03:00.0", "bnxt_re0", layer="Ethernet", sys_image_guid="0000:0000:0000:0000")
    assert [a.id for a in look(tree).adapters] == ["0000:01:00.0", "0000:03:00.0"]


def test_no_cards_no_sysfs(tmp_path: Path) -> None:
    assert look(Tree(tmp_path), FakeFirmware({})).adapters == ()


def test_what_nobody_can_read_is_unknown(tmp_path: Path) -> None:
    """A function that vanishes while it is looked at leaves empty directories and dangling links."""
    tree = Tree(tmp_path)
    path = tree.pf(PF1)
    for name in ("device", "numa_node", "sriov_numvfs"):
        (path / name).unlink()
    (path / "virtfn0").symlink_to("../0000:3b:00.2")
    (path / "infiniband/mlx5_0").mkdir(parents=True)
    (path / "net/eth0").mkdir(parents=True)
    port = only(look(tree)).ports[0]
    assert (port.observed_mode, port.link, port.pf.netdev, len(port.vfs)) == (None, "", None, 1)
    assert port.pf.rdma is not None
    assert port.pf.rdma.state is None


def test_each_file_is_read_once(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: Counter[str] = Counter()
    real_text, real_names = sysfs.text, sysfs.names

    def text(path: Any) -> str | None:
        reads[str(Path(path).resolve())] += 1
        return real_text(path)

    def names(path: Any) -> list[str] | None:
        reads[str(Path(path).resolve())] += 1
        return real_names(path)

    monkeypatch.setattr(sysfs, "text", text)
    monkeypatch.setattr(sysfs, "names", names)
    look(tree)
    assert {path: n for path, n in reads.items() if n > 1 and "phys_port_name" not in path} == {}
    assert len(reads) < 120
