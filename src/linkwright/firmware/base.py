"""What the layers above see of a card's firmware: plain values, and one protocol that every driver keeps.

Three drivers keep it: ``mstconfig.py`` (the vendor's tools), ``fixed.py`` (cards whose mode cannot be changed)
and ``captured.py`` (answers from a capture). Values stay in the tool's own spelling, because that is the
evidence that people compare with their own terminal; :func:`plain` turns them into what the tool takes.

``None`` means *unknown* everywhere. A parameter that the card does not have is in ``missing``, not unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from linkwright.model.values import LinkMode

Activation = Literal["reboot", "power-cycle-or-reset", "unknown"]

_VALUE = re.compile(r"(?P<name>.*)\((?P<number>0x[0-9a-fA-F]+|\d+)\)", re.DOTALL)
_MODES = {"1": LinkMode.INFINIBAND, "2": LinkMode.ROCE}


class Reading(Struct, frozen=True, kw_only=True):
    """One parameter in its three columns, as the tool spells them: ``IB(1)``, ``True(1)``, ``8``."""

    default: str | None = None
    current: str | None = None
    next: str | None = None
    read_only: bool = False


class CardReading(Struct, frozen=True, kw_only=True):
    """What a query gave. ``missing``: the names asked for that this card does not have, in the order asked."""

    device_type: str | None = None  # "ConnectX6"
    name: str | None = None  # the part number: "MCX653106A-ECA_Ax"
    description: str | None = None  # "ConnectX-6 VPI adapter card; dual-port QSFP56"
    params: Mapping[str, Reading] = {}
    missing: tuple[str, ...] = ()


class Written(Struct, frozen=True, kw_only=True):
    """A write that the card took and that was read back.

    ``activation`` is the tool's own word on what loads it: ``reboot``, or ``power-cycle-or-reset`` when the
    card refused to arm itself for a warm reboot (mstconfig then says "power cycle"; a plain reboot would not
    load it). ``reading`` is the read-back of the written parameters.
    """

    command: tuple[str, ...]
    said: str
    activation: Activation
    reading: CardReading


class ResetOffer(Struct, frozen=True, kw_only=True):
    """What ``mstfwreset query`` offers now. ``levels``: supported reset levels (3: driver restart and PCI
    reset, 4: warm reboot). ``driver_sync``: level 3 with the driver as the owner, the only reset that does
    not stop the drivers of every other card of the vendor (so the only one that we ask for)."""

    levels: tuple[int, ...] = ()
    default_level: int | None = None
    types: tuple[int, ...] = ()
    driver_sync: bool = False
    said: str = ""

    @property
    def usable(self) -> bool:
        return 3 in self.levels and self.driver_sync


class ResetDone(Struct, frozen=True, kw_only=True):
    """A firmware reset after which the tool saw the firmware's uptime go back."""

    command: tuple[str, ...]
    said: str


class FirmwareDriver(Protocol):
    """One card's firmware, through one of its PFs (``pf``: ``0000:3b:00.0``). Every call may block for as long
    as the card takes; none is cut short. Raises only errors of :mod:`linkwright.model.errors`:
    Busy (``firmware-busy``), Vanished (``no-such-device``), NeedsPerson (a tool is not installed),
    HardwareFault (everything that the card or the tool refused; its own words in ``said``)."""

    def query(self, pf: str, names: Sequence[str] = ()) -> CardReading:
        """Read the named parameters (none: all the card shows); those it lacks come back in ``missing``."""

    def write(self, pf: str, settings: Mapping[str, str]) -> Written:
        """Set Next Boot values (``{"LINK_TYPE_P1": "2"}``) and read them back. HardwareFault ``half-applied``
        when some were taken and others were not: each parameter is a register write of its own."""

    def backup(self, pf: str) -> str:
        """All settings as text, to keep before the first write."""

    def uptime_s(self, pf: str) -> int | None:
        """Seconds since the firmware's last reset; None where the tool or the card cannot tell."""

    def reset_offer(self, pf: str) -> ResetOffer:
        """Which resets the card offers now."""

    def reset(self, pf: str) -> ResetDone:
        """Reset the card with the driver as the owner, so that Next Boot becomes Current."""

    def version(self) -> str | None:
        """The tool's version (``4.31.0``); None when it is not there."""


def plain(value: str | None) -> str | None:
    """The value as the tool takes it and as we store it: ``IB(1)`` → ``1``, ``True(1)`` → ``1``, ``8`` → ``8``."""
    if value is None:
        return None
    match = _VALUE.fullmatch(value.strip())
    return match["number"] if match else value.strip()


def number(value: str | None) -> int | None:
    """The value as a number (``0x10`` and ``Name(3)`` too); None when it is none."""
    text = plain(value)
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        return None


def same_value(left: str | None, right: str | None) -> bool:
    """Is it the same setting, however it is spelled (``ETH(2)``, ``2``, ``eth``)? Unknown equals nothing."""
    if left is None or right is None:
        return False
    return bool(_spellings(left) & _spellings(right))


def _spellings(value: str) -> set[str]:
    match = _VALUE.fullmatch(value.strip())
    if match:
        return {match["name"].strip().lower(), str(int(match["number"], 0))}
    as_number = number(value)
    return {value.strip().lower() if as_number is None else str(as_number)}


def mode_of_link_type(value: str | None) -> LinkMode | None:
    """``IB(1)``, ``1`` or ``IB`` → InfiniBand, ``ETH(2)`` → RoCE; else None (VPI(3) of ConnectX-3, unknown)."""
    text = plain(value)
    if text is None:
        return None
    return _MODES.get({"IB": "1", "ETH": "2"}.get(text.upper(), text))


def link_type_of(mode: LinkMode) -> Literal["1", "2"]:
    """The LINK_TYPE value of a mode (nv_vpi_link_type: IB=1, ETH=2)."""
    return "1" if mode is LinkMode.INFINIBAND else "2"


def link_type_name(port: int) -> str:
    """The parameter that holds a physical port's link mode."""
    return f"LINK_TYPE_P{port}"
