"""The small words: link mode, PCI address, port id, MAC and GUID, each with one reader and one spelling.

All are plain strings once read (normalised, lower case), so that they travel through JSON, SQLite and
msgspec without converters; the functions here are the only way to make them from foreign text.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NewType

PciAddress = NewType("PciAddress", str)
"""``dddd:bb:dd.f``, lower case; the domain may have more than four digits (VMD)."""
PortId = NewType("PortId", str)
"""``dddd:bb:dd.f/N``: the PF's address and the physical port's number on the adapter, from 1."""
Mac = NewType("Mac", str)
"""Six bytes, ``aa:bb:cc:dd:ee:ff``."""
Guid = NewType("Guid", str)
"""Eight bytes, ``aa:bb:cc:dd:ee:ff:00:11``; also the text of sysfs ``aabb:ccdd:eeff:0011`` is read."""


class LinkMode(StrEnum):
    """What a port speaks. RoCE means an Ethernet link layer."""

    INFINIBAND = "InfiniBand"
    ROCE = "RoCE"


_PCI = re.compile(r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<dev>[01][0-9a-f])\.(?P<fn>[0-7])")
_PORT = re.compile(r"(?P<pci>[^/]+)(?:/|\s+p)(?P<number>[1-9][0-9]?)")


def pci_address(text: str) -> PciAddress:
    """Read ``0000:3b:00.0`` or ``3b:00.0``; raises ValueError."""
    match = _PCI.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a PCI address like 0000:3b:00.0")
    return PciAddress(f"{match['domain'] or '0000'}:{match['bus']}:{match['dev']}.{match['fn']}")


def port_id(pf: str, number: int) -> PortId:
    return PortId(f"{pf}/{number}")


def parse_port_id(text: str) -> PortId:
    """Read ``0000:3b:00.0/1`` (or ``0000:3b:00.0 p1`` as tables print it); raises ValueError."""
    match = _PORT.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a port like 0000:3b:00.0/1")
    return port_id(pci_address(match["pci"]), int(match["number"]))


def port_label(port: str) -> str:
    """``0000:3b:00.0 p1``: how people read a port id."""
    return port.replace("/", " p")


def _hex_bytes(text: str, count: int, what: str) -> str:
    digits = re.sub(r"[:.-]", "", text.strip().lower().removeprefix("0x"))
    if not re.fullmatch(rf"[0-9a-f]{{{count * 2}}}", digits):
        raise ValueError(f"{text!r} is not a {what} of {count} bytes")
    return ":".join(digits[i : i + 2] for i in range(0, count * 2, 2))


def mac(text: str) -> Mac:
    """Read a 6-byte hardware address; raises ValueError."""
    return Mac(_hex_bytes(text, 6, "MAC"))


def guid(text: str) -> Guid:
    """Read an 8-byte GUID in colon, sysfs or 0x form; raises ValueError."""
    return Guid(_hex_bytes(text, 8, "GUID"))


def guid_is_set(value: str | None) -> bool:
    """A GUID of all zeros or all ones means "none" to drivers and subnet managers."""
    return value is not None and value.replace(":", "") not in ("0" * 16, "f" * 16)


def interface_name_problem(name: str) -> str | None:
    """Why Linux would refuse this interface name (dev_valid_name in net/core/dev.c), or None."""
    if not name:
        return "is empty"
    if len(name) > 15:
        return f"has {len(name)} characters; Linux allows 15"
    if name in (".", "..") or "/" in name or ":" in name or any(c.isspace() or not c.isprintable() for c in name):
        return "holds a character that Linux does not allow in an interface name"
    if "%" in name:
        return "holds '%', which Linux would expand"
    return None


_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def parse_duration(text: str) -> float:
    """Seconds of ``90s``, ``10m``, ``1h30m``; raises ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration like 90s, 10m or 4h")
    hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return float(hours * 3600 + minutes * 60 + seconds)
