"""Who else manages cards of this host: other tools, recognised by their files and processes (interlock rule 4).

Two tools on one card undo each other's work: one writes the VF count that the other counts on, one takes the mode
back at the next restart. So a card that another tool manages is left to it, by name, until host.yaml says
``takeOver: [name]``. Only what another tool *changes* counts here (VFs, link types, names); that it runs and looks
is no matter, as with NetworkManager and networkd without such settings (for those: ``hostsetup``).

- ``cards``      which card a file speaks of: by PCI address, MAC, name of a netdev or RDMA device
- ``operators``  the Kubernetes operators and device plugins: their processes and what they keep on the host
- ``settings``   files of netplan, NetworkManager, networkd, udev, ifupdown, openibd
- ``scripts``    boot scripts and units that write VF counts or firmware settings
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from linkwright.kernel.system import System
from linkwright.model.inventory import Adapter, Owner

from . import operators, scripts, settings
from .cards import Cards

__all__ = ["find"]


def find(system: System, adapters: Iterable[Adapter]) -> tuple[Owner, ...]:
    """The other tools that manage any of these cards; reads files and /proc only, raises nothing.

    What cannot be read (no root, a damaged file) shows nothing.
    """
    cards = Cards(adapters)
    if not cards.pfs:
        return ()
    root: Path = system.proc.parent
    found = [
        *operators.find(root, system.proc, cards),
        *settings.find(root, cards),
        *scripts.find(root, cards),
    ]
    return tuple(dict.fromkeys(found))
