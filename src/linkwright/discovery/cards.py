"""What each adapter's firmware and product data say; all adapters side by side, a fault stays with its adapter."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from linkwright.firmware import base
from linkwright.firmware.base import CardReading, FirmwareDriver, Reading
from linkwright.model.errors import LinkwrightError
from linkwright.model.inventory import Identity
from linkwright.model.values import LinkMode

from . import vpd
from .adapters import RawAdapter
from .vpd import Vpd

log = logging.getLogger(__name__)

# Where the card itself does not name its model: PCI device id to family (pci.ids).
_FAMILIES = {
    "1013": "ConnectX-4",
    "1015": "ConnectX-4 Lx",
    "1017": "ConnectX-5",
    "1019": "ConnectX-5 Ex",
    "101b": "ConnectX-6",
    "101d": "ConnectX-6 Dx",
    "101f": "ConnectX-6 Lx",
    "1021": "ConnectX-7",
    "1023": "ConnectX-8",
    "a2d2": "BlueField",
    "a2d6": "BlueField-2",
    "a2dc": "BlueField-3",
}
_BLUEFIELDS = ("a2d2", "a2d6", "a2dc")
_ROCE_DISABLE = 1  # ROCE_CONTROL: DEVICE_DEFAULT 0, ROCE_DISABLE 1, ROCE_ENABLE 2


@dataclass(frozen=True)
class Card:
    """``reading`` None: the firmware was not asked or did not answer (``faults`` says why)."""

    reading: CardReading | None = None
    uptime_s: int | None = None
    vpd: Vpd = field(default_factory=Vpd)
    faults: tuple[str, ...] = ()

    def modes(self, port: int) -> tuple[LinkMode | None, LinkMode | None, bool | None]:
        """(next, current, can it be changed) of a physical port; None: not readable."""
        name = base.link_type_name(port)
        if self.reading is None:
            return None, None, None
        if name in self.reading.missing:
            return None, None, False
        found = self.reading.params.get(name)
        if found is None:
            return None, None, None
        return base.mode_of_link_type(found.next), base.mode_of_link_type(found.current), not found.read_only

    def setting(self, name: str) -> Reading:
        """A parameter in its columns; all unknown when it was not read."""
        return (self.reading.params.get(name) if self.reading else None) or Reading()

    @property
    def dpu(self) -> bool | None:
        """Is it a BlueField whose own processors run it (DPU mode)? None: no BlueField, or it does not tell."""
        model, engine = self.setting("INTERNAL_CPU_MODEL"), self.setting("INTERNAL_CPU_OFFLOAD_ENGINE")
        embedded, offload = base.number(model.current), base.number(engine.current)
        if embedded is None:
            return None
        return embedded == 1 and offload in (None, 0)

    @property
    def roce_off(self) -> bool | None:
        control = base.number(self.setting("ROCE_CONTROL").current)
        return None if control is None else control == _ROCE_DISABLE

    @property
    def single_port(self) -> bool:
        """Does the card's own description speak of one port? Then several PFs are connectors of it."""
        words = f"{self.vpd.name or ''} {self.reading.description if self.reading else ''}".lower()
        return bool(re.search(r"single[- ]port", words))

    def identity(self, adapter: RawAdapter) -> Identity:
        """Who the card is, from whatever can be read of it."""
        told = [f.card for port in adapter.ports for f in port.pf.all]
        reading = self.reading or CardReading()
        named = _model(reading.description) or _model(self.vpd.name)
        return Identity(
            model=named or _FAMILIES.get(adapter.first.device),
            device_type=reading.device_type,
            part_number=self.vpd.part_number or reading.name,
            serial=self.vpd.serial,
            device_id=adapter.first.device or None,
            psid=next((card.board_id for card in told if card.board_id), None),
            firmware=next((card.firmware for card in told if card.firmware), None),
            system_image_guid=next((card.system_image_guid for card in told if card.system_image_guid), None),
        )


def read_all(adapters: Sequence[RawAdapter], firmware: FirmwareDriver | None) -> list[Card]:
    """One query an adapter, through its first PF, at the same time for all: the slowest card sets the time."""
    if not adapters:
        return []
    if firmware is None:
        return [Card(vpd=vpd.read(f"{a.first.path}/vpd")) for a in adapters]
    with ThreadPoolExecutor(len(adapters), thread_name_prefix="firmware") as pool:
        return list(pool.map(lambda a: _read(a, firmware), adapters))


def _read(adapter: RawAdapter, firmware: FirmwareDriver) -> Card:
    pf = adapter.first.address
    names = [base.link_type_name(n) for n in sorted({port.number for port in adapter.ports})]
    data = vpd.read(f"{adapter.first.path}/vpd")
    names += ["SRIOV_EN", "NUM_OF_VFS"]
    if adapter.first.device in _BLUEFIELDS:
        names += ["INTERNAL_CPU_MODEL", "INTERNAL_CPU_OFFLOAD_ENGINE"]
    if any(port.pf.net and port.pf.rdma is None for port in adapter.ports):
        names.append("ROCE_CONTROL")  # is it without RDMA because the firmware was told so?
    try:
        reading = firmware.query(pf, names)
    except Exception as problem:  # interlock rule 7: a card, or a fault of ours with its output, stops no other
        return Card(vpd=data, faults=(_words(problem),))
    try:
        return Card(reading=reading, uptime_s=firmware.uptime_s(pf), vpd=data)
    except Exception as problem:
        return Card(reading=reading, vpd=data, faults=(_words(problem),))


def _words(problem: Exception) -> str:
    if not isinstance(problem, LinkwrightError):
        log.exception("a card could not be read")
    return str(problem) or type(problem).__name__


def _model(description: str | None) -> str | None:
    """``NVIDIA ConnectX-7 HHHL Adapter card; 400GbE`` → ``ConnectX-7``; ``ConnectX-6 VPI adapter card; …`` →
    ``ConnectX-6 VPI``; of other cards what comes before "adapter" or the first comma."""
    text = description or ""
    match = re.search(r"(?:ConnectX|BlueField)-\d+(?: (?:Lx|Dx|Ex|VPI|EN|DPU)\b)*", text)
    if match is None:
        match = re.match(r"\S.*?(?=,|;| (?:network |ethernet )?adapter|$)", text, re.IGNORECASE)
    return match[0].strip() if match else None
