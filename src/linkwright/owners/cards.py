"""Which of this host's cards a text speaks of."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from linkwright.model.inventory import Adapter
from linkwright.model.values import PciAddress

_WORD = re.compile(r"[A-Za-z0-9_.@:-]+")
DRIVER = "mlx5_core"


class Cards:
    """PFs by everything that files name them by. Values are PF addresses; a VF stands for its PF."""

    def __init__(self, adapters: Iterable[Adapter]) -> None:
        self.pfs: list[PciAddress] = []
        self._known: dict[str, PciAddress] = {}
        for port in (p for adapter in adapters for p in adapter.ports):
            pf = port.pf.address
            self.pfs.append(pf)
            for function in port.functions:
                self._known[function.address] = pf
                if function.rdma is not None:
                    self._known[function.rdma.name] = pf
                if function.netdev is not None:
                    for name in (function.netdev.name, *function.netdev.altnames):
                        self._known[name] = pf
            if port.pf.netdev is not None:
                self._known[port.pf.netdev.address.lower()] = pf

    def named(self, pattern: str) -> tuple[PciAddress, ...]:
        """The PFs that a name matches: an address, MAC or name, with shell wildcards and ``|`` as udev and
        networkd have them; ``pci-0000:3b:00.0*`` is udev's ID_PATH."""
        found: dict[PciAddress, None] = {}
        for text in pattern.strip().strip('"').split("|"):
            wanted = text.strip().removeprefix("pci-")
            for name, pf in self._known.items():
                if wanted and fnmatch.fnmatchcase(name.lower(), wanted.lower()):
                    found[pf] = None
        return tuple(found)

    def mentioned(self, text: str) -> tuple[PciAddress, ...]:
        """The PFs that any word of the text names."""
        found: dict[PciAddress, None] = {}
        for word in _WORD.findall(text):
            for part in (word, word.rstrip(".:"), word.rpartition("pci-")[2]):
                if part in self._known:
                    found[self._known[part]] = None
        return tuple(found)
