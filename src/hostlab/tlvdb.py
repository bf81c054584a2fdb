"""Rules of the firmware settings (TLVs), read at run time from the parameter database of the installed mstflint.

An emulated card must agree with the tool that reads it about where a field lies, so both use the tool's own
file: SQLite, tables ``tlvs(name, id, class, size, cap, version, …)`` and ``params(name, tlv_name, offset, size,
…)``. A field's place is ``0x4.31`` (byte offset of its dword, first bit), its size ``0x0.16`` (dwords' bytes,
bits).
"""

from __future__ import annotations

import sqlite3
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from linkwright.model.errors import HardwareFault

DATABASE = Path("/usr/share/mstflint/mlxconfig_dbs/mlxconfig_host.db")
PORT_CLASS = 1
# How many low bits of a type word are the id, by class (tlv_type layouts of tools_layouts/nvconfig_data): the
# rest says whose.
_ID_BITS = {0: 24, 1: 16, 3: 10, 7: 18}


@dataclass(frozen=True)
class Field:
    """A number inside a TLV: ``width`` bits from bit ``shift`` of the big-endian dword at ``offset``."""

    offset: int
    shift: int
    width: int

    def get(self, data: bytes) -> int:
        (word,) = struct.unpack_from(">I", data, self.offset)
        return int(word >> self.shift & (1 << self.width) - 1)

    def put(self, data: bytes, value: int) -> bytes:
        mask = (1 << self.width) - 1 << self.shift
        (word,) = struct.unpack_from(">I", data, self.offset)
        new = bytearray(data)
        struct.pack_into(">I", new, self.offset, word & ~mask | value << self.shift & mask)
        return bytes(new)


@dataclass(frozen=True)
class Tlv:
    """One kind of setting. ``size`` in bytes; a capability TLV is read-only."""

    name: str
    id: int
    kind: int  # class: 0 global, 1 per port, 3 per host and function, 7 per host, …
    size: int
    version: int
    capability: bool
    fields: dict[str, Field]

    def type_word(self, port: int = 0) -> int:
        """The word that names it in a register: class, port (class 1), id; host and function 0."""
        return self.kind << 24 | (port << 16 if self.kind == PORT_CLASS else 0) | self.id

    def put(self, data: bytes, values: dict[str, int]) -> bytes:
        for name, value in values.items():
            data = self.fields[name].put(data, value)
        return data


@dataclass(frozen=True)
class Database:
    by_name: dict[str, Tlv]
    by_key: dict[tuple[int, int], Tlv]

    def of_word(self, word: int) -> Tlv | None:
        kind = word >> 24
        return self.by_key.get((kind, word & (1 << _ID_BITS.get(kind, 24)) - 1))


def port_of(word: int) -> int:
    """The port that a class 1 type word names."""
    return word >> 16 & 0xFF


def _place(text: str) -> tuple[int, int]:
    dword, bit = text.split(".")
    return int(dword, 16), int(bit)


@cache
def database(path: Path = DATABASE) -> Database:
    """Raises HardwareFault ``mstflint-missing`` when there is no such file."""
    if not path.is_file():
        raise HardwareFault(
            f"the emulated cards take their rules from {path}, which is missing",
            code="mstflint-missing",
            where=str(path),
            next_step="Install the package: apt install mstflint",
        )
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        fields: dict[str, dict[str, Field]] = {}
        for name, tlv, offset, size in connection.execute("select name, tlv_name, offset, size from params"):
            (at, shift), (size_bytes, bits) = _place(offset), _place(size)
            if size_bytes == 0:  # longer ones (texts, arrays) are kept whole, never looked into
                fields.setdefault(tlv, {})[name] = Field(at, shift, bits)
        rows = connection.execute("select name, id, class, size, version, cap from tlvs")
        tlvs = [
            Tlv(name, id_, kind, size, int(version or 0), bool(cap), fields.get(name, {}))
            for name, id_, kind, size, version, cap in rows
        ]
    connection.close()
    return Database({t.name: t for t in tlvs}, {(t.kind, t.id): t for t in tlvs})
