"""Cards with two connectors, domains, merged ports; BlueField; RoCE off; listeners."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import sysfs_tree
from sysfs_tree import Tree
from test_observe import FakeFirmware, look, only, reading

from linkwright.discovery import listeners
from linkwright.discovery.netdevs import HostNetdevs
from linkwright.discovery.observe import kept
from linkwright.firmware.base import CardReading
from linkwright.model.inventory import Netdev
from linkwright.model.records import Attachment
from linkwright.model.values import LinkMode, PortId

PF, FAR = "0000:3b:00.0", "0000:af:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def infiniband(tree: Tree, address: str, name: str, index: int) -> None:
    tree.pf(address)
    tree.net(address, name, index, type="32")
    tree.rdma(address, name, node_guid=f"a088:c203:00ad:eab{index}")


def ethernet(tree: Tree, address: str, name: str, index: int, *, rdma: str | None = None, **files: str) -> None:
    tree.pf(address, kind=0x020000)
    tree.net(address, name, index, **files)
    if rdma is not None:
        tree.rdma(address, rdma, layer="Ethernet")


def named(tree: Tree, words: str, *addresses: str) -> None:
    for address in addresses:
        tree.file(tree.devices / address / "vpd", sysfs_tree.vpd(words, PN="P", SN="S"))


@pytest.mark.parametrize("mode", list(LinkMode))
def test_two_pci_connectors_of_one_port_are_one_port_and_a_second_way_to_it(tree: Tree, mode: LinkMode) -> None:
    for index, address in enumerate((PF, FAR), 1):
        if mode is LinkMode.INFINIBAND:
            infiniband(tree, address, f"ib{index}", index)
        else:
            ethernet(tree, address, f"ens{index}np0", index, rdma=f"rocep{index}", phys_port_name="p0")
    named(tree, "ConnectX-6 VPI adapter card; 200Gb/s; single-port QSFP56; Socket Direct 2x PCIe3.0 x16", PF, FAR)
    card = only(look(tree))
    first, second = card.ports
    assert (first.id, first.number, first.secondary_of) == (f"{PF}/1", 1, None)
    assert (second.id, second.number, second.secondary_of) == (f"{FAR}/1", 1, f"{PF}/1")


def test_one_card_over_two_pci_domains_is_one_card_with_two_ports(tree: Tree) -> None:
    infiniband(tree, "0000:3b:00.0", "ib1", 1)
    infiniband(tree, "0001:3b:00.0", "ib2", 2)
    named(tree, "ConnectX-6 VPI adapter card; dual-port QSFP56", "0000:3b:00.0", "0001:3b:00.0")
    card = only(look(tree))
    assert [(p.id, p.secondary_of) for p in card.ports] == [("0000:3b:00.0/1", None), ("0001:3b:00.0/2", None)]


def test_eight_cards_with_one_serial_number_are_eight_cards(tree: Tree) -> None:
    for number in range(8):
        address = f"0000:{0x10 + number:02x}:00.0"
        tree.pf(address)
        tree.rdma(address, f"ib{number}", sys_image_guid=f"a088:c203:00ad:ea{number}0")
        named(tree, "ConnectX-8", address)
    found = look(tree).adapters
    assert len({a.id for a in found}) == 8
    assert {a.identity.serial for a in found} == {"S"}


def test_ports_merged_for_rdma_are_told_by_the_device_that_is_left(tree: Tree) -> None:
    ethernet(tree, PF, "ens1f0np0", 1, rdma="mlx5_bond_0", phys_port_name="p0")
    ethernet(tree, "0000:3b:00.1", "ens1f1np1", 2, phys_port_name="p1")
    assert only(look(tree)).merged == "mlx5_bond_0"


def test_ports_of_one_bond_are_merged_and_a_bridge_merges_nothing() -> None:
    def link(name: str, upper: str, kind: int = 1) -> Netdev:
        return Netdev(name=name, ifindex=1, link_type=kind, address="", mtu=1500, upper=upper)

    both = {"a": link("a", "bond0"), "b": link("b", "bond0"), "c": link("c", "br0"), "d": link("d", "br0")}
    uppers = {"a": ("bond0 (bond)",), "b": ("bond0 (bond)",), "c": ("br0 (bridge)",), "d": ("br0 (bridge)",)}
    netdevs = HostNetdevs(links=both, uppers=uppers)
    assert netdevs.bond_of(["a", "b"]) == "bond0"
    assert netdevs.bond_of(["a", "c"]) is None
    assert netdevs.bond_of(["c", "d"]) is None
    ipoib = HostNetdevs(links={n: link(n, "bond0", 32) for n in "ab"}, uppers=uppers)
    assert ipoib.bond_of(["a", "b"]) is None


def bluefield(**params: tuple[str, str]) -> CardReading:
    both = {"LINK_TYPE_P1": ("IB(1)", "IB(1)"), "SRIOV_EN": ("True(1)", "True(1)"), "NUM_OF_VFS": ("8", "8")}
    return reading(**(both | params))


@pytest.mark.parametrize(
    ("model", "engine", "dpu"),
    [
        ("EMBEDDED_CPU(1)", "ENABLED(0)", True),
        ("EMBEDDED_CPU(1)", "DISABLED(1)", False),
        ("SEPARATED_HOST(0)", "ENABLED(0)", False),
        (None, None, None),
    ],
)
def test_a_bluefield_says_whether_its_own_processors_run_it(
    tree: Tree, model: str | None, engine: str | None, dpu: bool | None
) -> None:
    tree.pf(PF, device="0xa2dc")
    tree.rdma(PF, "ib1")
    params = {}
    if model and engine:
        params = {"INTERNAL_CPU_MODEL": (model, model), "INTERNAL_CPU_OFFLOAD_ENGINE": (engine, engine)}
    firmware = FakeFirmware({PF: bluefield(**params)})
    assert only(look(tree, firmware)).dpu is dpu
    assert "INTERNAL_CPU_MODEL" in firmware.asked[0][1]


@pytest.mark.parametrize(("control", "off"), [("ROCE_DISABLE(1)", True), ("DEVICE_DEFAULT(0)", False)])
def test_ethernet_without_rdma_is_asked_whether_roce_is_off(tree: Tree, control: str, off: bool) -> None:
    ethernet(tree, PF, "ens1np0", 1)
    firmware = FakeFirmware({PF: bluefield(LINK_TYPE_P1=("ETH(2)", "ETH(2)"), ROCE_CONTROL=(control, control))})
    card = only(look(tree, firmware))
    assert card.roce_off is off
    assert card.ports[0].observed_mode is LinkMode.ROCE


def test_a_card_with_rdma_is_not_asked_about_roce(tree: Tree) -> None:
    infiniband(tree, PF, "ib1", 1)
    firmware = FakeFirmware({PF: bluefield()})
    assert only(look(tree, firmware)).roce_off is None
    assert "ROCE_CONTROL" not in firmware.asked[0][1]


def test_a_card_whose_device_has_an_ordinary_name_is_not_merged(tree: Tree) -> None:
    infiniband(tree, PF, "mlx5_0", 1)
    assert only(look(tree)).merged == ""


# -- servers of the host -----------------------------------------------------------------------------------------

TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0700000A:0CEA 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0
   2: 0100007F:0019 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 3 1 0 100 0 0 10 0
   3: 0800000A:0016 0100000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 5 1 0 100 0 0 10 0
   4: 0900000A:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 6 1 0 100 0 0 10 0
"""
TCP6 = """  sl  local_address                         remote_address                        st
   0: 000080FE00000000FF005450EE050CFE:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 77 1 0
"""


def test_only_servers_on_one_address_count(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.file(tree.proc / "self/net/tcp", TCP)
    tree.file(tree.proc / "self/net/tcp6", TCP6)
    found = listeners.read(tree.proc)
    assert found.sockets["10.0.0.7"] == [(3306, "tcp", "4711")]
    assert set(found.sockets) == {"10.0.0.7", "fe80::5054:ff:fe0c:5ee"}
    assert found.on("10.0.0.7") == "a process listens on port 3306"
    assert found.on("10.0.0.8") == ""


def test_a_link_local_address_on_which_somebody_listens_is_the_host_s_own(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.file(tree.proc / "self/net/tcp6", TCP6)
    link = Netdev(name="a", ifindex=1, link_type=1, address="", mtu=1500, addresses=("fe80::5054:ff:fe0c:5ee/64",))
    quiet = HostNetdevs(links={"a": link})
    assert quiet.holders("a") == ()
    (holder,) = HostNetdevs(links={"a": link}, listening=listeners.read(tree.proc)).holders("a")
    assert (holder.kind, holder.detail) == (
        "address",
        "fe80::5054:ff:fe0c:5ee (a process listens on port 8080)",
    )


def test_an_address_on_a_link_between_two_targets_is_some_manager_s_unless_it_is_used(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.file(tree.proc / "self/net/tcp", TCP)
    listening = listeners.read(tree.proc)

    def kinds(address: str, *routes: str, between: bool) -> list[str]:
        link = Netdev(name="a", ifindex=1, link_type=1, address="", mtu=1500, addresses=(address,), routes=routes)
        seen = HostNetdevs(links={"a": link}, listening=listening)
        return [h.kind for h in seen.holders("a", between=between)]

    assert kinds("192.0.2.1/32", between=False) == ["address"]
    assert kinds("192.0.2.1/32", between=True) == []
    assert kinds("192.0.2.1/32", "default", between=True) == ["route"]
    assert kinds("10.0.0.7/24", between=True) == ["address"]  # a server listens there


def test_which_functions_are_a_target_s_while_they_are_on_the_host() -> None:
    def record(vf_index: int | None, boot_id: str | None) -> Attachment:
        return Attachment(
            target="a", interface="net1", policy="p", generation=1, port=PortId(f"{PF}/1"), vf_index=vf_index,
            boot_id=boot_id,
        )  # fmt: skip

    vf = "0000:3b:00.2"
    assert kept({PF: record(None, None)}, "now") == set()
    assert kept({PF: record(None, "before")}, "now") == set()
    assert kept({PF: record(None, "now")}, "now") == {PF}
    assert kept({vf: record(0, None)}, "now") == {vf}
    assert kept({vf: record(0, "before")}, "now") == {vf}
    assert kept({vf: record(0, "now")}, "now") == {vf, PF}


def test_the_server_is_named() -> None:
    with socket.create_server(("127.0.0.9", 0)) as server:
        inode = str(os.fstat(server.fileno()).st_ino)
        found = listeners.Listeners(Path("/proc"), {"127.0.0.9": [(server.getsockname()[1], "tcp", inode)]})
        assert found.on("127.0.0.9").startswith(f"pid {os.getpid()} (")
