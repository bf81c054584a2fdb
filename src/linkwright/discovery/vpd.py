"""Vital product data of a PCI card: name, part number, serial (PCI Local Bus 3.0, appendix I).

Large resources are one byte of tag, two of length; the read-only one (0x90) holds fields of two letters, one
byte of length, value. Reading it takes a card up to a tenth of a second, so it is done beside the firmware's
query.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

_IDENTIFIER, _READ_ONLY, _END = 0x82, 0x90, 0x78


@dataclass(frozen=True)
class Vpd:
    """None: not told, or not readable (it takes root)."""

    name: str | None = None
    part_number: str | None = None
    serial: str | None = None


def read(path: str | os.PathLike[str]) -> Vpd:
    try:
        with open(path, "rb", buffering=0) as file:
            return parse(file.read(4096))
    except OSError:
        return Vpd()


def parse(data: bytes) -> Vpd:
    """What can be read of it; a cut or wrong block gives what came before."""
    name = None
    fields: dict[bytes, str] = {}
    offset = 0
    while offset + 3 <= len(data) and data[offset] not in (_END, 0, 0xFF):
        tag, length = data[offset], int.from_bytes(data[offset + 1 : offset + 3], "little")
        body = data[offset + 3 : offset + 3 + length]
        if tag == _IDENTIFIER and len(body) == length:
            name = _text(body)
        elif tag == _READ_ONLY:
            fields |= _fields(body)
        offset += 3 + length
    return Vpd(name=name or None, part_number=fields.get(b"PN") or None, serial=fields.get(b"SN") or None)


def _fields(body: bytes) -> dict[bytes, str]:
    found = {}
    offset = 0
    while offset + 3 <= len(body):
        length = body[offset + 2]
        if offset + 3 + length > len(body):
            break  # half a serial number would be another card's
        found[body[offset : offset + 2]] = _text(body[offset + 3 : offset + 3 + length])
        offset += 3 + length
    return found


def _text(body: bytes) -> str:
    return body.decode("ascii", errors="replace").strip("\0 \t\r\n")
