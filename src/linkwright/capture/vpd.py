"""A card's vital product data: read, and written again without what tells one card from another.

Layout: PCI Local Bus Specification 3.0, appendix I. Large resources: 0x82 identifier string, 0x90 read-only fields
(ending in RV: a checksum byte over everything so far, then padding), 0x91 writable fields; 0x78 ends it. A
field is a keyword of two letters, a length byte, the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

_IDENTIFIER, _READ_ONLY, _END = 0x82, 0x90, 0x78
_KEPT = (b"PN", b"EC", b"MN")


def fields(data: bytes) -> dict[str, str]:
    """The identifier string as ``""``, and the read-only fields (``PN``, ``SN``, …); what cannot be read is left
    out."""
    found: dict[str, str] = {}
    for tag, body in _resources(data):
        if tag == _IDENTIFIER:
            found[""] = body.decode("latin-1").strip("\0 ")
        elif tag == _READ_ONLY:
            for keyword, value in _fields(body):
                if keyword != b"RV":
                    found.setdefault(keyword.decode("latin-1"), value.decode("latin-1").strip("\0 "))
    return found


def scrubbed(data: bytes, serial: Callable[[str], str]) -> bytes:
    """Identifier, part number, engineering level and manufacture id as they are, the serial number through
    ``serial``; every other field and the writable part are dropped."""
    identifier, kept = b"", b""
    for tag, body in _resources(data):
        if tag == _IDENTIFIER:
            identifier = body
        elif tag == _READ_ONLY:
            for keyword, value in _fields(body):
                if keyword == b"SN":
                    value = serial(value.decode("latin-1").strip("\0 ")).encode("latin-1", "replace")[:255]
                elif keyword not in _KEPT:
                    continue
                kept += keyword + bytes([len(value)]) + value
    head = bytes([_IDENTIFIER]) + len(identifier).to_bytes(2, "little") + identifier
    head += bytes([_READ_ONLY]) + (len(kept) + 4).to_bytes(2, "little") + kept + b"RV\x01"
    return head + bytes([-sum(head) & 0xFF, _END])


def _resources(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 3 <= len(data) and data[at] & 0x80:
        size = int.from_bytes(data[at + 1 : at + 3], "little")
        yield data[at], data[at + 3 : at + 3 + size]
        at += 3 + size


def _fields(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at + 3 <= len(body):
        size = body[at + 2]
        yield body[at : at + 2], body[at + 3 : at + 3 + size]
        at += 3 + size
