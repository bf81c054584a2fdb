"""A PF's PCI config space with the vendor specific capability: the gateway through which tools reach the
firmware.

mstflint opens ``/sys/bus/pci/devices/<bdf>/config`` and, dword by dword, writes an address space number, takes a
semaphore and reads or writes addresses in that space (mtcr_ul/mtcr_ul_com.c, mtcr_ul_icmd_cif.c). A
two-parameter query is about 10 000 such accesses, so ``read`` and ``write`` are short and take no lock; only a
firmware command takes the card's.

Layout from the capability's offset: +4 control (space, and in bits 31..29 whether the space is there), +8 ticket
counter, +12 semaphore, +16 address (bit 31: written 1 to write, becomes 1 when a read is done), +20 data.
"""

from __future__ import annotations

import errno
import os
import struct

from hostlab import registers
from hostlab.firmware import Card

SIZE = 4096
CAPABILITY = 0x60
_CONTROL, _COUNTER, _SEMAPHORE, _ADDRESS, _DATA = (CAPABILITY + offset for offset in (4, 8, 12, 16, 20))
_END = CAPABILITY + 24
# Address spaces. A card without ICMD_EXT makes mstflint crash, so all four are always there.
_ICMD_EXT, _CR, _ICMD, _SEMAPHORES = 1, 2, 3, 0xA
_SPACES = frozenset((_ICMD_EXT, _CR, _ICMD, _SEMAPHORES))
_CR_HARDWARE_ID = 0xF0014
_MAILBOX, _MAILBOX_SIZE = 0x100000, 0x400
_MAILBOX_SIZE_ADDRESS = 0x1000
_ACCESS_REGISTER = 0x9001  # ICMD opcode
_QUERY_CAPABILITIES = 0x8400
_NV_ACCESS, _ALL_REGISTERS = (
    1 << 31,
    1 << 29,
)  # icmd_query_cap_general: what mstreg asks before it reads a register
_METHOD_GET = 1
_ONES = 0xFFFFFFFF
_DWORD = struct.Struct("<I")


def header(vendor: int, device: int, device_class: int, subsystem: tuple[int, int], *, gateway: bool) -> bytes:
    """A type 0 config space: ids, class, memory decoding on, and the capability when the function is a PF."""
    space = bytearray(SIZE)
    struct.pack_into("<HHHH", space, 0, vendor, device, 0x0406, 0x0010)
    _DWORD.pack_into(space, 8, device_class << 8)
    struct.pack_into("<HH", space, 0x2C, *subsystem)
    if gateway:
        space[0x34] = CAPABILITY
        space[CAPABILITY : CAPABILITY + 4] = bytes(
            [0x09, 0, 0x18, 0]
        )  # vendor specific, last, 24 bytes, functional
    return bytes(space)


class Gateway:
    """Config space of one PF. ``read`` and ``write`` are pread and pwrite on it."""

    def __init__(self, card: Card) -> None:
        self.card = card
        self.clear()
        card.on_reset.append(self.clear)

    def clear(self) -> None:
        """As after a reset: semaphores free, no command running."""
        self._space = self._semaphore = self._address = self._data = 0
        self._counter = 1
        self._icmd = self._icmd_semaphore = 0
        self._mailbox = bytearray(_MAILBOX_SIZE)

    def read(self, plain: bytes, offset: int, size: int) -> bytes:
        """``plain`` is the rest of the config space (``header``). Reads that do not aim at one dword of the
        gateway (lspci's) get the plain bytes."""
        if size != 4 or not CAPABILITY < offset < _END:
            return plain[offset : offset + size]
        if offset == _DATA:
            value = self._data
        elif offset == _ADDRESS:
            value = self._address
        elif offset == _SEMAPHORE:
            value = _ONES if "stuck_semaphore" in self.card.faults else self._semaphore
        elif offset == _CONTROL:
            value = self._space | (1 << 29 if self._space in _SPACES else 0)
        elif offset == _COUNTER:
            value = self._counter
            self._counter = value + 1 & _ONES or 1
        else:
            return plain[offset : offset + size]
        return _DWORD.pack(value)

    def write(self, offset: int, data: bytes) -> None:
        """EPERM in lockdown, as security/lockdown does for PCI access. Writes outside the gateway have no
        effect."""
        faults = self.card.faults
        if faults and "lockdown" in faults:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        if len(data) != 4:
            return
        (value,) = _DWORD.unpack(data)
        if offset == _ADDRESS:
            address = value & 0x3FFFFFFF
            if value >> 31:
                self._address = address
                self._store(address, self._data)
            else:
                self._data = self._load(address)
                self._address = address | 1 << 31
        elif offset == _DATA:
            self._data = value
        elif offset == _SEMAPHORE:
            if value == 0 or self._semaphore == 0:  # the first ticket wins until it is given back
                self._semaphore = value
        elif offset == _CONTROL:
            self._space = value & 0xFFFF

    def _load(self, address: int) -> int:
        space = self._space
        if "unreadable" in self.card.faults:
            return _ONES
        if space == _ICMD:
            at = address - _MAILBOX
            if 0 <= at < _MAILBOX_SIZE:
                return int.from_bytes(self._mailbox[at : at + 4], "big")
            return {0: self._icmd, _MAILBOX_SIZE_ADDRESS: _MAILBOX_SIZE}.get(address, 0)
        if space == _CR:
            return self.card.persona.hw_id if address == _CR_HARDWARE_ID else 0
        return self._icmd_semaphore if space == _SEMAPHORES else 0

    def _store(self, address: int, value: int) -> None:
        space = self._space
        if space == _ICMD:
            at = address - _MAILBOX
            if 0 <= at < _MAILBOX_SIZE:
                self._mailbox[at : at + 4] = value.to_bytes(4, "big")
            elif address == 0:
                self._icmd = value
                if value & 1:
                    self._run()
        elif space == _SEMAPHORES and (value == 0 or self._icmd_semaphore == 0):
            self._icmd_semaphore = value

    def _run(self) -> None:
        """The command in the mailbox: an operation TLV of 16 bytes (status in bits 14..8 of its first dword,
        register and method in its second), a register TLV header of 4, the register."""
        status, reset = 0, False
        if self._icmd >> 16 == _ACCESS_REGISTER:
            box = self._mailbox
            first, second = struct.unpack_from(">II", box, 0)
            (head,) = struct.unpack_from(">I", box, 16)
            length = (head >> 16 & 0x7FF) * 4 - 4
            write = second >> 8 & 0x7F != _METHOD_GET
            with self.card.lock:
                result, answer, reset = registers.access(
                    self.card, second >> 16, write, bytes(box[20 : 20 + length])
                )
            struct.pack_into(">I", box, 0, first & ~(0x7F << 8) | result << 8)
            box[20 : 20 + length] = answer
        elif self._icmd >> 16 == _QUERY_CAPABILITIES:
            struct.pack_into(">I", self._mailbox, 0, _ALL_REGISTERS | _NV_ACCESS)
        else:
            status = 1
        self._icmd = self._icmd & ~0xFF01 | status << 8
        if reset:
            mailbox, icmd, space, ticket = self._mailbox, self._icmd, self._space, self._semaphore
            self.card.reset_wanted()
            # The tool still reads the answer of its command: the reset, in truth a moment later, must not take
            # it.
            self._mailbox, self._icmd, self._space, self._semaphore = mailbox, icmd, space, ticket
