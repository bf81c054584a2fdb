"""Read and write the link mode that a card's firmware remembers: one protocol, several drivers.

:func:`open_firmware` gives the facade that the layers above use; it keeps :class:`.base.FirmwareDriver` itself and
chooses the driver for each PF by its vendor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import commands
from .base import (
    CardReading,
    FirmwareDriver,
    Reading,
    ResetDone,
    ResetOffer,
    Written,
    link_type_name,
    link_type_of,
    mode_of_link_type,
    number,
    plain,
    same_value,
)
from .captured import Captured, NotCaptured
from .fixed import FixedMode
from .mstconfig import MstTools
from .tool import Answer, Report, log_report

if TYPE_CHECKING:
    from linkwright.kernel.system import System

MELLANOX = "0x15b3"


class Firmware:
    """All cards of one host. ``vendor_driver`` answers for the cards of the vendor."""

    def __init__(self, sys: Path, vendor_driver: FirmwareDriver) -> None:
        self._sys = sys
        self._vendor = vendor_driver
        self._fixed = FixedMode()

    def driver(self, pf: str) -> FirmwareDriver:
        """The driver for one PF. A device whose vendor cannot be read counts as the vendor's: then its tool
        says what is wrong, where a fixed mode would be a guess."""
        try:
            vendor = (self._sys / "bus/pci/devices" / pf / "vendor").read_text().strip().lower()
        except OSError:
            return self._vendor
        return self._vendor if vendor == MELLANOX else self._fixed

    def query(self, pf: str, names: Sequence[str] = ()) -> CardReading:
        return self.driver(pf).query(pf, names)

    def write(self, pf: str, settings: Mapping[str, str]) -> Written:
        return self.driver(pf).write(pf, settings)

    def backup(self, pf: str) -> str:
        return self.driver(pf).backup(pf)

    def uptime_s(self, pf: str) -> int | None:
        return self.driver(pf).uptime_s(pf)

    def reset_offer(self, pf: str) -> ResetOffer:
        return self.driver(pf).reset_offer(pf)

    def reset(self, pf: str) -> ResetDone:
        return self.driver(pf).reset(pf)

    def version(self) -> str | None:
        return self._vendor.version()

    def transcripts(self, pf: str) -> dict[str, Answer]:
        """What the tools print of this card, for a capture; empty for cards that they do not know."""
        driver = self.driver(pf)
        return driver.transcripts(pf) if isinstance(driver, MstTools) else {}


def open_firmware(system: System, *, report: Report = log_report) -> Firmware:
    """The firmware of ``system``'s cards. In a copied tree its capture answers, or nobody.
    ``report(pf, sentence)`` is told when a call takes unusually long."""
    if not system.captured and system.sys == Path("/sys"):
        return Firmware(system.sys, MstTools(sys=system.sys, run=system.run, report=report))
    captured = Captured.around(system.sys)
    return Firmware(system.sys, captured or NotCaptured())


__all__ = [
    "CardReading",
    "Firmware",
    "FirmwareDriver",
    "Reading",
    "ResetDone",
    "ResetOffer",
    "Written",
    "commands",
    "link_type_name",
    "link_type_of",
    "mode_of_link_type",
    "number",
    "open_firmware",
    "plain",
    "same_value",
]
