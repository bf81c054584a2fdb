"""A capture becomes a host file that hostlab can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml
from captured_host import RecordedFirmware, answers, link, make, write

from hostlab.personas import Persona
from linkwright.capture import capture
from linkwright.capture.to_lab import to_lab
from linkwright.firmware import Firmware
from linkwright.model.errors import InvalidInput
from linkwright.model.values import LinkMode


def lab_file(tmp_path: Path, *, refuse: bool = False) -> tuple[str, dict[str, Any]]:
    host = make(tmp_path / "host")
    write(host.sys, {"devices/pci0000:80/0000:81:00.0/class": "0x020000"})
    write(host.sys, {"devices/pci0000:80/0000:81:00.0/vendor": "0x8086"})
    link(host.sys, "bus/pci/devices/0000:81:00.0", "../../../devices/pci0000:80/0000:81:00.0")
    capture(host, cast(Firmware, RecordedFirmware(answers(), refuse=refuse)), tmp_path / "out")
    text = to_lab(tmp_path / "out")
    return text, yaml.safe_load(text)


def test_a_card_with_its_slot_modes_and_fabrics(tmp_path: Path) -> None:
    text, host = lab_file(tmp_path)
    assert host["name"] == "host-1"
    (adapter,) = host["adapters"]
    assert adapter["address"] == "0000:3b:00"
    assert adapter["ports"] == [{"fabric": "fabric-1"}, {"fabric": "fabric-2"}]
    assert host["fabrics"]["fabric-1"] == {"linkModes": ["InfiniBand"], "subnetManager": True}
    assert "0000:81:00.0 (vendor 0x8086)" in text.splitlines()[1]
    persona = msgspec.convert(adapter["persona"], Persona)
    assert persona.link_modes == (LinkMode.INFINIBAND, LinkMode.INFINIBAND)
    assert persona.changeable == (1, 2)
    assert (persona.device_id, persona.vf_device_id, persona.hw_id) == (0x101B, 0x101C, 0x20F)
    assert (persona.psid, persona.part_number, persona.board) == (
        "MT_0000000224", "MCX653106A-ECAT", "MCX653106A-ECA_Ax"
    )  # fmt: skip
    assert persona.model == "ConnectX-6 VPI"
    assert persona.speed_mbps == 200_000
    assert (persona.sriov_enabled, persona.num_vfs) == (False, 0)


def test_without_firmware_the_modes_are_those_observed(tmp_path: Path) -> None:
    _, host = lab_file(tmp_path, refuse=True)
    persona = msgspec.convert(host["adapters"][0]["persona"], Persona)
    assert persona.changeable == ()
    assert persona.hw_id == 0x20F
    assert persona.link_modes == (LinkMode.INFINIBAND, LinkMode.INFINIBAND)


def test_a_directory_that_is_no_capture(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(InvalidInput) as caught:
        to_lab(tmp_path)
    assert caught.value.code == "bad-capture"
