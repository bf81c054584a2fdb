"""A capture as the host file of an emulated host: the same cards in the same slots, in the modes they were in.

The file is plain YAML for hostlab, which this package does not import: an adapter's ``persona`` is written out
with the fields of hostlab's personas. Only what the capture shows is claimed: a fabric carries the mode that its
port was seen to use, and nobody knows what is at the end of a cable whose link is down. Cards of other vendors
have no persona; they are named in a comment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from linkwright.firmware import CardReading, link_type_name, mode_of_link_type, number
from linkwright.firmware.captured import DIRECTORY, MANIFEST, Captured
from linkwright.model.errors import InvalidInput, LinkwrightError
from linkwright.model.values import LinkMode

from . import vpd

_VENDOR = "0x15b3"
_MODES = {"InfiniBand": LinkMode.INFINIBAND, "Ethernet": LinkMode.ROCE}
_HARDWARE_ID = re.compile(r"^\s*hw_dev_id\s*\|\s*(0x[0-9a-fA-F]+)", re.MULTILINE)
# PCI device id → hw_dev_id (mstflint dev_mgt/tools_dev_types.c), where no MGIR register was captured.
_HARDWARE = {
    0x1013: 0x209,
    0x1015: 0x20B,
    0x1017: 0x20D,
    0x1019: 0x20D,
    0x101B: 0x20F,
    0x101D: 0x212,
    0x101F: 0x216,
    0x1021: 0x218,
    0x1023: 0x21E,
    0xA2D6: 0x214,
    0xA2DC: 0x21C,
}


def to_lab(directory: Path) -> str:
    """The host file for the capture in ``directory``. Raises InvalidInput ``bad-capture`` when it is none, or when
    it holds no card that can be emulated."""
    captured = Captured.around(directory / "sys")
    if captured is None:
        raise InvalidInput(f"has no {MANIFEST}", code="bad-capture", where=str(directory))
    manifest = msgspec.json.decode((directory / MANIFEST).read_bytes(), type=dict[str, Any])
    devices = directory / "sys/bus/pci/devices"
    slots: dict[str, list[Path]] = {}
    others = []
    for device in sorted(devices.iterdir() if devices.is_dir() else ()):
        if (device / "physfn").is_symlink():
            continue
        if _text(device, "vendor") == _VENDOR:
            slots.setdefault(device.name.rpartition(".")[0], []).append(device)
        else:
            others.append(f"{device.name} (vendor {_text(device, 'vendor')})")
    if not slots:
        raise InvalidInput("holds no card that can be emulated", code="bad-capture", where=str(directory))
    fabrics: dict[str, dict[str, Any]] = {}
    adapters = [_adapter(slot, pfs, directory, captured, fabrics) for slot, pfs in slots.items()]
    host = {"name": str(manifest.get("host") or "host-1"), "fabrics": fabrics, "adapters": adapters}
    notes = [f"# From a capture: kernel {manifest.get('kernel')}, mstflint {manifest.get('mstflint')}."]
    notes += [f"# Left out: {', '.join(others)}."] if others else []
    return "\n".join(notes) + "\n" + yaml.safe_dump(host, sort_keys=False, allow_unicode=True, width=110)


def _adapter(
    slot: str, pfs: list[Path], directory: Path, captured: Captured, fabrics: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    first = pfs[0]
    try:
        reading = captured.query(first.name)
    except LinkwrightError:
        reading = CardReading()
    modes = [_mode(pf, reading, n) for n, pf in enumerate(pfs, 1)]
    ports = []
    for pf, mode in zip(pfs, modes, strict=True):
        port = _rdma(pf) / "ports/1"
        is_up = "LinkUp" in _text(port, "phys_state") or _text(_net(pf), "carrier") == "1"
        if is_up:
            name = f"fabric-{len(fabrics) + 1}"
            fabrics[name] = {"linkModes": [mode.value]}
            if mode is LinkMode.INFINIBAND:
                fabrics[name]["subnetManager"] = bool(number(_text(port, "sm_lid")))
            ports.append({"fabric": name})
        else:
            ports.append({})
    persona = _persona(first, directory, reading, modes)
    return {"persona": persona, "address": slot, "ports": ports}


def _persona(pf: Path, directory: Path, reading: CardReading, modes: list[LinkMode]) -> Mapping[str, Any]:
    data = vpd.fields((pf / "vpd").read_bytes()) if (pf / "vpd").is_file() else {}
    device_id = number(_text(pf, "device")) or 0
    description = reading.description or data.get("") or "captured card"
    persona: dict[str, Any] = {
        "name": f"captured-{pf.name.rpartition('.')[0].replace(':', '-')}",
        "model": re.split(r" adapter card| network adapter|[;,]", description)[0].strip(),
        "device_type": reading.device_type or "unknown",
        "board": reading.name or data.get("PN") or "unknown",
        "part_number": data.get("PN") or reading.name or "unknown",
        "psid": _text(_rdma(pf), "board_id") or "MT_0000000000",
        "description": description,
        "firmware": _text(_rdma(pf), "fw_ver") or "0.0.0",
        "device_id": device_id,
        "vf_device_id": int(_text(pf, "sriov_vf_device") or "0", 16),
        "hw_id": _hardware_id(pf, directory, device_id),
        "link_modes": [mode.value for mode in modes],
        "changeable": [n for n in range(1, len(modes) + 1) if link_type_name(n) in reading.params],
        "speed_mbps": _speed(pf),
    }
    for key, parameter in (("sriov_enabled", "SRIOV_EN"), ("num_vfs", "NUM_OF_VFS")):
        value = number(reading.params[parameter].current) if parameter in reading.params else None
        if value is not None:
            persona[key] = bool(value) if key == "sriov_enabled" else value
    if (subsystem := number(_text(pf, "subsystem_device"))) is not None:
        persona["subsystem_device"] = subsystem
    return persona


def _mode(pf: Path, reading: CardReading, port: int) -> LinkMode:
    """As it was observed; else what the firmware ran; else Ethernet, which every card can."""
    seen = _MODES.get(_text(_rdma(pf) / "ports/1", "link_layer"))
    if seen is None and (kind := _text(_net(pf), "type")):
        seen = LinkMode.INFINIBAND if kind == "32" else LinkMode.ROCE
    if seen is None and link_type_name(port) in reading.params:
        seen = mode_of_link_type(reading.params[link_type_name(port)].current)
    return seen or LinkMode.ROCE


def _speed(pf: Path) -> int:
    """Mb/s of the port: its RDMA rate, its netdev's speed, or 100G when it is down."""
    rate = re.match(r"([\d.]+) Gb/sec", _text(_rdma(pf) / "ports/1", "rate"))
    if rate and "LinkUp" in _text(_rdma(pf) / "ports/1", "phys_state"):
        return int(float(rate[1]) * 1000)
    speed = number(_text(_net(pf), "speed"))
    return speed if speed is not None and speed > 0 else 100_000


def _hardware_id(pf: Path, directory: Path, device_id: int) -> int:
    try:
        text = (directory / DIRECTORY / f"{pf.name}.json").read_text(errors="replace").replace("\\n", "\n")
    except OSError:
        text = ""
    match = _HARDWARE_ID.search(text)
    return int(match[1], 16) if match else _HARDWARE.get(device_id, 0)


def _net(pf: Path) -> Path:
    return _first(pf / "net")


def _rdma(pf: Path) -> Path:
    return _first(pf / "infiniband")


def _first(folder: Path) -> Path:
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return found[0] if found else folder / "none"


def _text(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text(errors="replace").strip()
    except OSError:
        return ""
