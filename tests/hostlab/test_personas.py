"""The kinds of cards: each loads, is listed, and answers the unmodified mstconfig as its kind does."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path

import cards_rig
import pytest
from typer.testing import CliRunner

from hostlab import faults, personas
from hostlab.cli import app
from hostlab.spec import parse
from linkwright.model.errors import InvalidInput
from linkwright.model.values import LinkMode

SLOTS = {
    "cx6-vpi-p1": "0000:10:00",
    "cx6-socket-direct": "0000:20:00",
    "cx5-vpi-4vfs": "0000:30:00",
    "cx6dx-roce-off": "0000:40:00",
    "bf3-dpu": "0000:50:00",
}
SPEC = {
    "name": "gpu-01",
    "fabrics": {"rail-0": {"linkModes": ["InfiniBand", "RoCE"], "subnetManager": True}},
    "adapters": [
        {"persona": name, "address": slot, "ports": [{"fabric": "rail-0"}, {"fabric": "rail-0"}]}
        for name, slot in SLOTS.items()
    ],
}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cards_rig.Rig]:
    spec = copy.deepcopy(SPEC)
    spec["adapters"][1]["connectors"] = ["0000:a0:00"]  # type: ignore[index]
    spec["adapters"][0]["ports"][1]["address"] = "0001:10:00.0"  # type: ignore[index]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cards_rig, "SPEC", spec)
        rig = cards_rig.Rig(tmp_path_factory.mktemp("personas"))
        before = os.sched_getaffinity(0)
        cards_rig.pin_to_one_cpu()
        yield rig
        rig.close()
        os.sched_setaffinity(0, before)


def test_every_persona_is_complete_and_listed_with_every_fault() -> None:
    cards = [personas.load(name) for name in personas.names()]
    assert {"cx6-vpi-dual", "cx7-vpi-single", "cx6lx-eth", *SLOTS} <= {card.name for card in cards}
    assert all(1 <= port <= card.ports for card in cards for port in card.changeable)
    shown = CliRunner().invoke(app, ["personas", "-o", "json"])
    listed = json.loads(shown.stdout)
    assert [p["name"] for p in listed["personas"]] == personas.names()
    assert listed["faults"] == faults.known()


def test_functions_in_another_domain_and_at_another_connector_are_there(
    rig: cards_rig.Rig,
) -> None:
    assert "0001:10:00.0" in rig.names("/bus/pci/devices")
    guid = "infiniband/{}/sys_image_guid"
    first = rig.fn("0000:20:00.0")
    second = rig.fn("0000:a0:00.0")
    assert (first.port.number, second.port.number) == (1, 1)
    assert rig.read(f"/bus/pci/devices/{first.address}/{guid.format(first.rdma_name)}") == rig.read(
        f"/bus/pci/devices/{second.address}/{guid.format(second.rdma_name)}"
    )
    assert first.port_guid != second.port_guid


def test_vfs_of_a_port_in_another_domain_are_there_too(rig: cards_rig.Rig) -> None:
    rig.write("/bus/pci/devices/0001:10:00.0/sriov_numvfs", "2")
    assert [vf.address for vf in rig.fn("0001:10:00.0").port.vfs] == ["0001:10:00.1", "0001:10:00.2"]
    rig.write("/bus/pci/devices/0001:10:00.0/sriov_numvfs", "0")


def test_the_port_without_link_type_keeps_its_mode(rig: cards_rig.Rig) -> None:
    card = rig.fn("0000:10:00.0").adapter.firmware
    assert (card.mode(1), card.mode(2)) == (LinkMode.INFINIBAND, LinkMode.ROCE)


def test_roce_off_means_ethernet_without_an_rdma_device(rig: cards_rig.Rig) -> None:
    fn = rig.fn("0000:40:00.0")
    assert (fn.port.mode, fn.rdma_name) == (LinkMode.ROCE, None)
    assert fn.netdev_name == "enp64s0f0np0"


def test_a_restart_does_not_reset_a_dpu(rig: cards_rig.Rig) -> None:
    card = rig.fn("0000:50:00.0").adapter.firmware
    card.set_next("nv_vpi_link_type", {"default_link_type": 1}, 1)
    rig.machine.boot()
    assert card.mode(1) is LinkMode.ROCE
    card.set_next("nv_internal_cpu_conf", {"offload_engine": 1})
    card.reset_done()
    assert not card.dpu
    card.set_next("nv_vpi_link_type", {"default_link_type": 2}, 1)
    rig.machine.boot()
    assert card.mode(1) is LinkMode.ROCE
    card.factory_fresh()
    assert card.dpu


def test_ports_merged_for_rdma_are_one_device_and_apart_again(rig: cards_rig.Rig) -> None:
    adapter = rig.fn("0000:50:00.0").adapter
    rig.machine.merge_ports(adapter, True)
    assert [port.pf.rdma_name for port in adapter.ports] == ["mlx5_bond_0", None]
    rig.machine.merge_ports(adapter, False)
    assert [port.pf.rdma_name for port in adapter.ports] == ["rocep80s0f0", "rocep80s0f1"]


def test_a_swapped_card_is_another_one_as_delivered(rig: cards_rig.Rig) -> None:
    adapter = rig.fn("0000:30:00.0").adapter
    before = (adapter.serial, adapter.system_image_guid, adapter.ports[0].base_mac)
    adapter.firmware.set_next("nv_vpi_link_type", {"default_link_type": 2}, 1)
    rig.machine.swap(adapter)
    after = (adapter.serial, adapter.system_image_guid, adapter.ports[0].base_mac)
    assert all(old != new for old, new in zip(before, after, strict=True))
    rig.machine.boot()
    assert adapter.ports[0].mode is LinkMode.INFINIBAND


def test_the_host_file_checks_slots(tmp_path: Path) -> None:
    text = 'name: a\nadapters:\n- {persona: cx6-socket-direct, address: "0000:20:00", connectors: ["a0"]}\n'
    with pytest.raises(InvalidInput, match="connectors"):
        parse(text, "host.yaml")
    good = text.replace('"a0"', '"0000:a0:00"').replace("connectors", "serial: S1, connectors")
    assert parse(good, "host.yaml")["adapters"][0]["connectors"] == ["0000:a0:00"]


@pytest.mark.lab
@pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="needs root and FUSE")
def test_the_unmodified_tool_sees_each_kind(rig: cards_rig.Rig) -> None:
    def query(slot: str, *names: str) -> str:
        return rig.run("mstconfig", "-d", f"{SLOTS[slot]}.0", "-e", "query", *names).stdout

    assert "doesn't support LINK_TYPE_P2" in query("cx6-vpi-p1", "LINK_TYPE_P2")
    assert "ROCE_DISABLE(1)" in query("cx6dx-roce-off", "ROCE_CONTROL")
    shown = query("bf3-dpu", "INTERNAL_CPU_MODEL", "INTERNAL_CPU_OFFLOAD_ENGINE")
    assert "EMBEDDED_CPU(1)" in shown
    assert "ENABLED(0)" in shown
    set_ = ["mstconfig", "-y", "-d", f"{SLOTS['cx5-vpi-4vfs']}.0", "set"]
    assert rig.run(*set_, "NUM_OF_VFS=8").returncode == 0
    refused = rig.run(*set_, "NUM_OF_VFS=9")
    assert refused.returncode != 0, refused.stdout
    assert "-E-" in refused.stdout
