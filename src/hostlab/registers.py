"""The firmware's registers, as mstconfig, mstfwreset and mstreg use them: number and bytes in, status and bytes
out.

All big-endian. Layouts: mstflint's tools_layouts/reg_access_hca_layouts and reg_access_switch (MGIR, MFRL, MCAM,
MROQ), mlxconfig/mlxcfg_view and nvconfig layouts (MNVDA and family). What is not listed here answers "not
supported", as old firmware does, and the tools cope with that.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

from hostlab.firmware import Card

OK, BUSY, NOT_SUPPORTED, BAD_PARAMETER, NOT_AVAILABLE = 0, 1, 4, 7, 8  # status of an operation TLV

# MFRL reset_trigger bits: which resets there are (get), which one to do or arm (set).
PCI_RESET = 0x08  # reset level 3
WARM_REBOOT = 0x40  # reset level 4
FULL_CHIP = 0x01  # reset_type bit 0
TRIGGER_NOW = 3 << 29  # sync requests that start the reset at once (pci_sync_for_fw_update_start)
DRIVER_SYNC_CAPABLE = 1 << 19  # MCAM group 0, feature "pci_sync_for_fw_update"
MROQ_CAPABLE = 1 << 15  # MCAM group 0, register access mask


def access(card: Card, register: int, write: bool, data: bytes) -> tuple[int, bytes, bool]:
    """One register access; the caller holds ``card.lock``. Returns status, answer of the same length, and
    whether the firmware was told to reset now (the caller starts that after it let the lock go)."""
    if delay := card.faults.get("slow"):
        time.sleep(float(delay))
    if busy := card.faults.get("busy"):
        card.set_fault("busy", int(busy) - 1)
        return BUSY, data, False
    handler = _HANDLERS.get(register)
    if handler is None:
        return NOT_SUPPORTED, data, False
    answer = bytearray(data)
    status = handler(card, write, answer)
    reset = register == _MFRL and write and status == OK and bool(_word(data, 4) & TRIGGER_NOW)
    return status, bytes(answer), reset


def _word(data: bytes | bytearray, offset: int) -> int:
    return int(struct.unpack_from(">I", data, offset)[0])


def _put(data: bytearray, offset: int, value: int) -> None:
    struct.pack_into(">I", data, offset, value)


def _mgir(card: Card, write: bool, data: bytearray) -> int:
    """General information: device, number of ports, uptime, versions, PSID."""
    persona = card.persona
    major, minor, subminor = (int(part) for part in persona.firmware.split("."))
    _put(data, 0, persona.hw_id)
    data[5] = persona.ports
    _put(data, 8, persona.hw_id)
    _put(data, 28, card.uptime_s())
    if len(data) >= 0xA0:
        data[33:36] = bytes([major & 0xFF, minor & 0xFF, subminor & 0xFF])
        data[48:64] = persona.psid.encode().ljust(16, b"\0")
        struct.pack_into(">III", data, 68, major, minor, subminor)
    return OK


def _mnvgc(card: Card, write: bool, data: bytearray) -> int:
    """Which banks can be read: bit 0 default, bit 1 current."""
    _put(data, 0, 0 if card.faults.get("current_unreadable") else 0b11)
    return OK


def _mnvqc(card: Card, write: bool, data: bytearray) -> int:
    """Is this TLV there, and may it be written? Nothing set: no such TLV."""
    rule = card.rule(_word(data, 0))
    if rule is None:
        _put(data, 4, 0)
    else:
        _put(data, 4, (0b01 if rule.capability else 0b11) | (rule.version & 0xF) << 4)
    return OK


def _mnvda(card: Card, write: bool, data: bytearray) -> int:
    """Read a TLV from the bank that bits 23 (default) and 22 (current) of the header name, or set next."""
    header, word = _word(data, 0), _word(data, 4)
    rule = card.rule(word)
    if rule is None:
        return NOT_AVAILABLE
    if write:
        if rule.capability or card.refuses(rule, word):
            return NOT_SUPPORTED
        card.write(word, bytes(data[12 : 12 + (header & 0x1FF)]))
        return OK
    bank = "default" if header >> 23 & 1 else "current" if header >> 22 & 1 else "next"
    value = card.read(word, bank)
    data[12 : 12 + len(value)] = value
    _put(data, 0, header & ~0x1FF | len(value))
    return OK


def _mnvdi(card: Card, write: bool, data: bytearray) -> int:
    """One TLV back to its default."""
    card.invalidate(_word(data, 4))
    return OK


def _mnvia(card: Card, write: bool, data: bytearray) -> int:
    """All settings back to their defaults."""
    card.invalidate(None)
    return OK


def _mnvgn(card: Card, write: bool, data: bytearray) -> int:
    """Walk over the stored settings, for a backup: entry number in, the entry and the next number (0: end)
    out."""
    entries = card.stored()
    position = _word(data, 0)
    if position >= len(entries):
        _put(data, 0, 0)
        return OK
    word, value = entries[position]
    rule = card.rule(word)
    _put(data, 0, position + 1)
    _put(data, 16, len(value) | (rule.version & 0xF if rule else 0) << 12)
    _put(data, 20, word)
    data[28 : 28 + len(value)] = value
    return OK


def _mqis(card: Card, write: bool, data: bytearray) -> int:
    """Name (1) and description (2), in pieces of 8 bytes."""
    text = {1: card.persona.board, 2: card.persona.description}.get(data[3], "").encode()
    offset, length = struct.unpack_from(">HH", data, 8)
    piece = text[offset : offset + min(length, 8)]
    struct.pack_into(">H", data, 6, len(text))
    struct.pack_into(">H", data, 10, len(piece))
    data[16 : 16 + len(piece)] = piece
    return OK


def _mcam(card: Card, write: bool, data: bytearray) -> int:
    """Capabilities, group 0."""
    if data[3] == 0 and not card.faults.get("reset_unsupported"):
        _put(data, 16, MROQ_CAPABLE)
        _put(data, 52, DRIVER_SYNC_CAPABLE)
    return OK


def _mroq(card: Card, write: bool, data: bytearray) -> int:
    """Reset options (mstflint 4.31 and later): who may be the owner of a PCI reset: tool or driver."""
    _put(data, 0, _word(data, 0) & 0xFFFF | 1 << 16 | 0b010 << 17 | 0b01 << 24)
    return OK


def _mfrl(card: Card, write: bool, data: bytearray) -> int:
    """Reset: what there is (get); arm a warm reboot, or reset with the driver's help (set)."""
    unsupported = card.faults.get("reset_unsupported")
    if not write:
        _put(data, 4, FULL_CHIP << 8 | WARM_REBOOT | (0 if unsupported else PCI_RESET))
        return OK
    wanted = _word(data, 4)
    if wanted & 0xFF == WARM_REBOOT:
        return NOT_SUPPORTED if card.faults.get("power_cycle_text") else OK
    if wanted & PCI_RESET:
        return NOT_SUPPORTED if unsupported else OK if card.reset_allowed() else NOT_AVAILABLE
    return BAD_PARAMETER


_MFRL = 0x9028
_HANDLERS: dict[int, Callable[[Card, bool, bytearray], int]] = {
    0x9020: _mgir,
    0x9024: _mnvda,
    0x9025: _mnvdi,
    _MFRL: _mfrl,
    0x902F: _mroq,
    0x9030: _mnvqc,
    0x9033: _mnvia,
    0x9034: _mnvgc,
    0x9035: _mnvgn,
    0x9064: _mqis,
    0x907F: _mcam,
}
