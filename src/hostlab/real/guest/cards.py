"""The firmware of emulated ConnectX cards, laid over physical functions of the guest: started before Linkwright.

An igb card has no link mode to set. So a FUSE file system serves ``config`` (with the gateway to the emulated
firmware), ``vendor`` and ``device``, each bound over the file of that name of the real function; the unmodified
mstconfig then finds a ConnectX at the address where sriov_numvfs makes real VFs, and reaches its firmware by a
character device (``driver``). The kernel's own view stays real: drivers, SR-IOV, IOMMU groups. One thing of it is
told otherwise: the link type of a PF in InfiniBand mode (``lens``).

The kernel's command line names the cards: ``hostlab.card=0000:01:00.0,cx7-vpi-single,RoCE``; the mode is the one
it is delivered with, when that is not the persona's. Settings are kept in /lab, which survives restarts.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mfusepy

from hostlab import firmware, mounts, personas, tlvdb, vsc
from hostlab.fuse import serve
from hostlab.real.guest.driver import Driver
from hostlab.real.guest.lens import Lens
from linkwright.model.values import LinkMode

RUN = Path("/run/hostlab")
STATE = Path("/lab/firmware")
NETWORK_CLASS = 0x020000
GATEWAY_SIZE = 24


@dataclass
class Function:
    """A PF whose firmware is emulated. ``real``: its config file, opened before it was covered."""

    address: str
    card: firmware.Card
    gateway: vsc.Gateway
    real: int

    def read(self, name: str, size: int, offset: int) -> bytes:
        persona = self.card.persona
        if name == "config":
            # Each dword of the real config space is an access of emulated hardware; the gateway needs none.
            gateway = size == 4 and vsc.CAPABILITY < offset < vsc.CAPABILITY + GATEWAY_SIZE
            return self.gateway.read(b"" if gateway else self._config(), offset, size)
        text = {"vendor": "0x15b3", "device": f"{persona.device_id:#06x}"}[name] + "\n"
        return text.encode()[offset : offset + size]

    def write(self, name: str, data: bytes, offset: int) -> int:
        if name != "config":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        self.gateway.write(offset, data)
        return len(data)

    def _config(self) -> bytes:
        """The real function's, with the emulated ids and the gateway as the first of its capabilities."""
        space = bytearray(os.pread(self.real, vsc.SIZE, 0).ljust(vsc.SIZE, b"\0"))
        ids = vsc.header(0x15B3, self.card.persona.device_id, NETWORK_CLASS, (0x15B3, 1), gateway=True)
        first = space[0x34]
        for start, size in ((0x00, 4), (0x2C, 4), (0x34, 1), (vsc.CAPABILITY, 4)):
            space[start : start + size] = ids[start : start + size]
        space[vsc.CAPABILITY + 1] = first
        return bytes(space)


class Files(mfusepy.Operations):  # type: ignore[misc]
    """``/ADDRESS/NAME`` for each function; direct, since each access of a gateway has an effect."""

    use_ns = True
    NAMES = ("config", "vendor", "device")

    def __init__(self, functions: dict[str, Function]) -> None:
        self._functions = functions
        self._numbers = [(f, name) for f in functions.values() for name in self.NAMES]

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        parts = path.strip("/").split("/")
        if len(parts) == 1 and (not parts[0] or parts[0] in self._functions):
            return {"st_mode": 0o40755, "st_nlink": 2}
        if len(parts) == 2 and parts[0] in self._functions and parts[1] in self.NAMES:
            writable = parts[1] == "config"
            return {
                "st_mode": 0o100644 if writable else 0o100444,
                "st_nlink": 1,
                "st_size": vsc.SIZE if writable else 4096,
            }
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *(self._functions if path == "/" else self.NAMES)]

    def open(self, path: str, flags: int) -> int:
        _, address, name = path.split("/")
        return self._numbers.index((self._functions[address], name))

    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        function, name = self._numbers[fh]
        return function.read(name, size, offset)

    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        function, name = self._numbers[fh]
        return function.write(name, data, offset)


def make(text: str) -> Function:
    """``ADDRESS,PERSONA[,MODE]``."""
    address, persona, *mode = text.split(",")
    STATE.mkdir(parents=True, exist_ok=True)
    memory = STATE / f"card-{address.replace(':', '-')}.json"
    new = not memory.exists()
    card = firmware.Card(personas.load(persona), memory)
    if new and mode:
        rule = tlvdb.database().by_name[firmware.LINK_TYPE_TLV]
        value = {firmware.LINK_TYPE: firmware.LINK_TYPE_VALUES[LinkMode(mode[0])]}
        for port in card.persona.changeable:
            card.write(rule.type_word(port), rule.put(bytes(rule.size), value))
        card.reset_done()
    started = RUN / f"started-{address}"
    if not started.exists():  # once a boot, however often this program starts
        card.host_restarted()
        started.touch()
    real = os.open(f"/sys/bus/pci/devices/{address}/config", os.O_RDONLY | os.O_CLOEXEC)
    return Function(address, card, vsc.Gateway(card), real)


def main() -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    RUN.mkdir(parents=True, exist_ok=True)
    words = Path("/proc/cmdline").read_text().split()
    functions = [make(word.partition("=")[2]) for word in words if word.startswith("hostlab.card=")]
    files = RUN / "cards"
    zero: dict[str, Any] = {"entry_timeout": 0, "attr_timeout": 0, "negative_timeout": 0}
    served = serve(Files({f.address: f for f in functions}), files, direct_io=True, fsname="cards", **zero)
    covered = []
    for function in functions:
        place = Path(f"/sys/bus/pci/devices/{function.address}").resolve()
        for name in Files.NAMES:
            mounts.bind(files / function.address / name, place / name)
            covered.append(place / name)
    for function in functions:
        Driver(function.address, function.card).start()
    lens = Lens({f.address: f.card for f in functions}, RUN / "netlink.sock")
    lens.start()
    _ready()
    stopping.wait()
    for path in covered:
        mounts.unmount(path)
    served.close()


def _ready() -> None:
    """sd_notify(3)."""
    if path := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"READY=1", "\0" + path[1:] if path.startswith("@") else path)


if __name__ == "__main__":
    main()
