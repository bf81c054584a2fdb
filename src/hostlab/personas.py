"""Personas: what kinds of cards there are, as data, one YAML file each in ``personas/``.

A persona says only what tells one kind of card from another; how firmware behaves is in ``firmware.py``, what
is wrong with one card (faults) in the lab's host file. Values are read as plain YAML; PCI ids are written 0x….
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from linkwright.model.errors import InvalidInput
from linkwright.model.values import LinkMode


@dataclass(frozen=True, kw_only=True)
class Persona:
    """One kind of card. ``link_modes``: mode of each port as it left the factory. ``changeable``: the ports
    whose LINK_TYPE the firmware offers. ``settings``: factory values of further TLVs, ``{tlv: {field: number}}``
    in the names of mstflint's parameter database. ``speed_mbps``: of one port when it is up."""

    name: str  # cx6-vpi-dual
    model: str  # "ConnectX-6 VPI"
    device_type: str  # as mstconfig prints it
    board: str  # the name mstconfig prints, MCX653106A-ECA_Ax
    part_number: str  # the one in the VPD, MCX653106A-ECAT
    psid: str
    description: str
    firmware: str  # 20.41.1000
    device_id: int
    vf_device_id: int
    hw_id: int
    link_modes: tuple[LinkMode, ...]
    changeable: tuple[int, ...] = ()
    sriov_enabled: bool = True
    num_vfs: int = 16
    max_vfs: int = 127
    speed_mbps: int = 100_000
    subsystem_device: int = 0x0001
    settings: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def ports(self) -> int:
        return len(self.link_modes)


def names() -> list[str]:
    """The personas there are, sorted."""
    folder = resources.files("hostlab") / "personas"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def of(value: str | Mapping[str, Any]) -> Persona:
    """A lab file's ``persona``: a name, or the fields written out as a capture does. InvalidInput."""
    if isinstance(value, str):
        return load(value)
    try:  # a host file's scalars are text, ids like 0x101b too
        numbers = {k: int(v, 0) if k.endswith("_id") and isinstance(v, str) else v for k, v in value.items()}
        return msgspec.convert(numbers, Persona, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidInput(str(error), code="bad-persona", where=str(value.get("name", "persona"))) from None


@cache
def load(name: str) -> Persona:
    """Read one persona; InvalidInput ``unknown-persona`` or ``bad-persona``."""
    if name not in names():
        raise InvalidInput(
            f"there is no persona {name!r}",
            code="unknown-persona",
            where=name,
            next_step=f"Known personas: {', '.join(names())}.",
        )
    text = (resources.files("hostlab") / "personas" / f"{name}.yaml").read_text(encoding="utf-8")
    try:
        return msgspec.yaml.decode(f"name: {name}\n{text}", type=Persona)
    except msgspec.MsgspecError as error:
        raise InvalidInput(str(error), code="bad-persona", where=f"personas/{name}.yaml") from None
