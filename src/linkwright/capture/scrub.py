"""Take identity out of what a host shows, and keep its structure.

Serials, MACs, GUIDs, IP addresses, host names and names that people gave are replaced. The same input always
becomes the same replacement in one capture, and the relations that the software reads stay true:

- addresses are mapped in blocks of 256 with the last byte kept, and neighbouring blocks stay neighbours, so a
  port's GUID is still its node's plus one;
- a GUID that is made from a MAC (``OUI 03 00 xx xx xx``, or EUI-64 with ``ff fe``) is still made from that MAC;
- prefixes become 02:00:00, locally administered: they meet nobody's real hardware.

"Nothing" keeps its meaning: all zeros, all ones, multicast and loopback stay. So do names that only tell a place
(``enp59s0f0np0``, ``mlx5_0``); names that hold a MAC, or that people chose, do not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

_PLACE = re.compile(
    r"lo|(?:eth|ib|bond|team|br|virbr|docker|podman|cni|wlan|usb|dummy|tun|tap|wg|ifb|teql)\d*"
    r"|(?:sit|tunl|ip6tnl|gre|gretap|erspan|ip6gre|ip_vti|ip6_vti)\d+"
    r"|(?:en|ib|wl|ww|roce|rdma)(?:P\d+)?(?:p\d+)?[os]\d+(?:f\d+)?(?:(?:d|np|n|v|r)\d+)*"
    r"|mlx[45]_\d+|rxe\d+"
)
_WITH_MAC = re.compile(r"(?P<head>en|ib|roce|rdma)x(?P<mac>[0-9a-f]{12}(?:[0-9a-f]{4})?)")
_RUN = re.compile(r"(?<![\w:.])[0-9a-fA-F]{2,4}(?::[0-9a-fA-F]{2,4}){3,19}(?![\w:])")
_HEX64 = re.compile(r"\b0x(?P<digits>[0-9a-fA-F]{16})\b")
_BASE_MAC = re.compile(r"^(?P<head>\s*manufacturing_base_mac\w*\s*\|\s*)0x[0-9a-fA-F]+", re.MULTILINE)
_BLOCK_STEP = 16  # room for neighbours on both sides


class _Blocks:
    """Numbers for blocks, so that neighbours get neighbouring numbers."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._next = _BLOCK_STEP // 2

    def __call__(self, block: int) -> int:
        if block not in self._numbers:
            taken = set(self._numbers.values())
            for step in (1, -1):
                near = self._numbers.get(block - step)
                if near is not None and near + step not in taken:
                    self._numbers[block] = near + step
                    break
            else:
                self._numbers[block] = self._next
                self._next += _BLOCK_STEP
        return self._numbers[block]


class Scrubber:
    """One for each capture. ``seen`` counts the distinct values that were replaced, by kind."""

    def __init__(self) -> None:
        self._mac_blocks = _Blocks()
        self._guid_blocks = _Blocks()
        self._networks = _Blocks()
        self._words: dict[str, str] = {}
        self._known: set[tuple[str, str]] = set()
        self.seen: Counter[str] = Counter()

    # -- addresses --------------------------------------------------------------------------------------------

    def mac(self, text: str) -> str:
        """``aa:bb:cc:dd:ee:ff``, same spelling."""
        return self._respell(text, self._mac)

    def guid(self, text: str) -> str:
        """Eight bytes in any spelling: colons between bytes or words, ``0x…``, or digits alone."""
        return self._respell(text, self._guid)

    def gid(self, text: str) -> str:
        """Sixteen bytes as sysfs writes them: prefix and GUID, or an IP address (RoCE)."""
        return self._respell(text, self._gid)

    def hardware_address(self, text: str) -> str:
        """Of a netdev: 6 bytes, or IPoIB's 20 (flags and queue pair, then the port's GID)."""
        return self._respell(text, lambda b: b[:4] + self._gid(b[4:]) if len(b) == 20 else self._mac(b))

    def _respell(self, text: str, change: Callable[[bytes], bytes]) -> str:
        """The digits replaced, everything else (colons, 0x) left where it is."""
        head = "0x" if text.startswith("0x") else ""
        body = text[len(head) :]
        digits = iter(change(bytes.fromhex(body.replace(":", ""))).hex())
        return head + "".join(c if c == ":" else next(digits) for c in body)

    def _mac(self, old: bytes) -> bytes:
        if _says_nothing(old) or old[0] & 1:
            return old
        self._note("MAC address", old.hex())
        number = int.from_bytes(old, "big")
        return b"\x02\0" + self._mac_blocks(number >> 8).to_bytes(3, "big") + old[-1:]

    def _guid(self, old: bytes) -> bytes:
        if _says_nothing(old):
            return old
        if old[3:5] == b"\x03\0":  # Mellanox: OUI, 03 00, the lower half of the base MAC
            new = self._mac(old[:3] + old[5:])
            return new[:3] + old[3:5] + new[3:]
        if old[3:5] == b"\xff\xfe":  # EUI-64 of a MAC, universal/local bit turned (addrconf_addr_eui48)
            new = self._mac(bytes([old[0] ^ 2]) + old[1:3] + old[5:])
            return bytes([new[0] ^ 2]) + new[1:3] + old[3:5] + new[3:]
        self._note("GUID", old.hex())
        number = int.from_bytes(old, "big")
        return b"\x02\0\0\xfe" + self._guid_blocks(number >> 8).to_bytes(3, "big") + old[-1:]

    def _gid(self, old: bytes) -> bytes:
        if _says_nothing(old) or old[0] == 0xFF:
            return old
        if old[:12] == b"\0" * 10 + b"\xff\xff":  # an IPv4 address
            self._note("IP address", old.hex())
            network = self._networks(int.from_bytes(old[12:15], "big"))
            return old[:12] + bytes([198, 18 + (network >> 8 & 1), network & 0xFF]) + old[15:]  # RFC 2544
        if old[:8] == b"\xfe\x80" + bytes(6):
            return old[:8] + self._guid(old[8:])
        self._note("IP address", old.hex())  # an IPv6 address, or a subnet prefix of the site's own
        network = self._networks(int.from_bytes(old[:8], "big"))
        return b"\x20\x01\x0d\xb8" + network.to_bytes(4, "big") + self._guid(old[8:])

    # -- names ------------------------------------------------------------------------------------------------

    def name(self, text: str) -> str:
        """Of a netdev or an RDMA device, with a VLAN's suffix."""
        base, dot, vlan = text.partition(".")
        if _PLACE.fullmatch(base) and (not dot or vlan.isdigit()):
            return text
        if match := _WITH_MAC.fullmatch(base):
            change = self.mac if len(match["mac"]) == 12 else self.guid
            return f"{match['head']}x{change(match['mac'])}{dot}{vlan if vlan.isdigit() else ''}"
        return self.word(text, "name", "net{}")

    def host(self, text: str) -> str:
        """A host's name; its first label is known by the same word."""
        if text in ("", "localhost"):
            return text
        short = self.word(text.partition(".")[0], "host name", "host-{}")
        if "." in text:
            self._words[text] = short
        return short

    def serial(self, text: str) -> str:
        """Of the same length, so that a VPD keeps its layout."""
        if not text.strip():
            return text
        return self.word(text, "serial number", f"LW{{:0{max(1, len(text) - 2)}d}}")

    def word(self, text: str, kind: str, pattern: str) -> str:
        """Replace ``text`` here and, from now on, wherever :meth:`text` meets it as a word."""
        if text not in self._words:
            self._note(kind, text)
            self._words[text] = pattern.format(self.seen[kind])
        return self._words[text]

    # -- free text --------------------------------------------------------------------------------------------

    def text(self, content: str) -> str:
        """Any text: known words, and whatever looks like an address."""
        content = _BASE_MAC.sub(lambda m: f"{m['head']}0x00000000", content)
        content = _HEX64.sub(lambda m: self.guid(m[0]), content)
        content = _RUN.sub(lambda m: self._run(m[0]), content)
        words = [w for w in self._words if len(w) > 2]
        if words:
            longest_first = "|".join(re.escape(w) for w in sorted(words, key=len, reverse=True))
            content = re.sub(rf"(?<![\w-])(?:{longest_first})(?![\w-])", lambda m: self._words[m[0]], content)
        return content

    def _run(self, run: str) -> str:
        sizes = {len(part) for part in run.split(":")}
        count = run.count(":") + 1
        if sizes == {4} and count in (4, 8):
            return self.gid(run) if count == 8 else self.guid(run)
        if sizes == {2} and count in (6, 20):
            return self.hardware_address(run)
        if sizes == {2} and count == 8:
            return self.guid(run)
        return run

    def _note(self, kind: str, value: str) -> None:
        if (kind, value) not in self._known:
            self._known.add((kind, value))
            self.seen[kind] += 1


def _says_nothing(value: bytes) -> bool:
    return value in (bytes(len(value)), b"\xff" * len(value)) or value == bytes(len(value) - 1) + b"\x01"
