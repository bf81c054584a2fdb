"""From functions to cards: which PFs are one adapter, which physical port each drives, what its link does.

Cards are told by their system image GUID, which all functions of a card share, whatever slots and domains it
sits in. The number of a port is the one its driver names (phys_port_name ``p0`` is port 1); IPoIB netdevs and
netdevs in other namespaces name none, then the order of the PFs counts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from linkwright.kernel.netlink.constants import ARPHRD_ETHER, ARPHRD_INFINIBAND
from linkwright.model.documents import HostConfig
from linkwright.model.inventory import Netdev, RdmaDevice
from linkwright.model.values import LinkMode, PciAddress, PortId, parse_port_id, pci_address, port_id

from .functions import RawFunction

_MODES = {ARPHRD_ETHER: LinkMode.ROCE, ARPHRD_INFINIBAND: LinkMode.INFINIBAND}


@dataclass(frozen=True)
class RawPort:
    """A PF and the number of its port. ``secondary_of``: another PF drives the same physical port."""

    id: PortId
    number: int
    pf: RawFunction
    secondary_of: PortId | None = None


@dataclass(frozen=True)
class RawAdapter:
    """``id``: system image GUID, else the address of the first PF."""

    id: str
    ports: tuple[RawPort, ...]

    @property
    def first(self) -> RawFunction:
        return self.ports[0].pf


def group(pfs: list[RawFunction], recorded: Mapping[str, str] | None = None) -> list[RawAdapter]:
    """Adapters in the order of their first PF.

    A PF whose GUID cannot be read (bound to vfio, unbound, its RDMA device in a container) joins the PFs of its
    bus and device. When none of them tells it, ``recorded`` may: port id → adapter id, from attachments made while
    it could be read; so a card keeps its id, and a port its number, while a container has its only PF.
    """
    recorded = recorded or {}
    slots: dict[str, list[RawFunction]] = defaultdict(list)
    for pf in pfs:
        slots[_slot(pf.address)].append(pf)
    remembered = {_slot(port): adapter for port, adapter in recorded.items() if adapter}
    cards: dict[str, list[RawFunction]] = defaultdict(list)
    for slot, members in slots.items():
        shown = (f.card.system_image_guid for pf in members for f in pf.all if f.card.system_image_guid)
        cards[next(shown, None) or remembered.get(slot) or slot] += members
    return [_adapter(key, sorted(each, key=lambda f: f.address), recorded) for key, each in cards.items()]


def _slot(address: str) -> str:
    """``0000:3b:00`` of a PCI address or a port id."""
    return address.rpartition(".")[0]


def _adapter(key: str, pfs: list[RawFunction], recorded: Iterable[str]) -> RawAdapter:
    told = {PciAddress(pf): int(number) for pf, _, number in (port.partition("/") for port in recorded)}
    told |= {pf.address: int(pf.port_name[1:]) + 1 for pf in pfs if pf.port_name}
    told = {address: number for address, number in told.items() if any(pf.address == address for pf in pfs)}
    by_slot: dict[str, list[RawFunction]] = defaultdict(list)
    for pf in pfs:
        by_slot[_slot(pf.address)].append(pf)
    several = len(by_slot) > 1 and max(map(len, by_slot.values())) > 1
    ports: list[RawPort] = []
    first: dict[int, PortId] = {}
    for position, pf in enumerate(pfs, 1):
        # A card with two connectors shows each port once a connector: then the function number is the port.
        number = told.get(pf.address) or (int(pf.address[-1]) + 1 if several else _free(position, told, pf))
        identity = port_id(pf.address, number)
        ports.append(RawPort(identity, number, pf, first.get(number)))
        first.setdefault(number, identity)
    is_guid = len(key.split(":")) == 8
    return RawAdapter(id=key if is_guid else pfs[0].address, ports=tuple(ports))


def one_port(adapter: RawAdapter) -> RawAdapter:
    """A card that has one physical port, by its own description: its PFs are the connectors of that port.

    In RoCE mode their drivers name the same port (``group`` sees it); IPoIB netdevs name none.
    """
    slots = {_slot(port.pf.address) for port in adapter.ports}
    if len(adapter.ports) < 2 or len(slots) < len(adapter.ports):
        return adapter
    first = port_id(adapter.first.address, 1)
    ports = [
        RawPort(port_id(port.pf.address, 1), 1, port.pf, first if number else None)
        for number, port in enumerate(adapter.ports)
    ]
    return replace(adapter, ports=tuple(ports))


def merged(adapter: RawAdapter, bond: str | None) -> str:
    """What makes one RDMA device of the ports of a card: a bond over their netdevs, or, by its name, the device
    that mlx5 makes then (``mlx5_bond_0``, drivers/infiniband/hw/mlx5/main.c). Empty: they are apart."""
    devices = [port.pf.rdma.name for port in adapter.ports if port.pf.rdma is not None]
    return bond or next((name for name in devices if re.fullmatch(r"mlx5_bond_\d+", name)), "")


def _free(position: int, told: dict[PciAddress, int], pf: RawFunction) -> int:
    taken = {number for address, number in told.items() if address != pf.address}
    return next(n for n in range(position, position + len(taken) + 1) if n not in taken)


def observed_mode(link_type: int | None, rdma: RdmaDevice | None) -> LinkMode | None:
    """What the running kernel shows: the netdev's type, else the RDMA device's link layer."""
    if link_type in _MODES:
        return _MODES[link_type]
    return rdma.link_layer if rdma is not None else None


def link_text(pf: RawFunction, netdev: Netdev | None, carrier_elsewhere: bool | None, speed: int | None) -> str:
    """``up 200G``, ``init, no SM``, ``polling``, ``down``; empty when nothing tells. ``speed`` in Mb/s."""
    rdma = pf.rdma
    if rdma is not None and rdma.link_layer is LinkMode.INFINIBAND:
        return _infiniband_text(rdma, pf.card.rate)
    if netdev is not None:
        if not netdev.carrier:
            return "down"
        return f"up {_gigabits(speed / 1000)}" if speed and speed > 0 else _up(pf.card.rate)
    if rdma is not None and rdma.state is not None:
        return _up(pf.card.rate) if rdma.state == "ACTIVE" else "down"
    if carrier_elsewhere is not None:
        return "up" if carrier_elsewhere else "down"
    return ""


def _infiniband_text(rdma: RdmaDevice, rate: str) -> str:
    if rdma.state == "ACTIVE":
        return _up(rate)
    if rdma.state == "INIT":
        return "init, no SM" if not rdma.sm_lid else "init"
    if rdma.state == "ARMED":
        return "armed"
    if rdma.state == "DOWN" and rdma.phys_state in ("Polling", "Disabled"):
        return rdma.phys_state.lower()
    return (rdma.state or "").lower()


def _up(rate: str) -> str:
    """``200 Gb/sec (4X HDR)`` → ``up 200G``."""
    match = re.match(r"([\d.]+) Gb/sec", rate)
    return f"up {_gigabits(float(match[1]))}" if match else "up"


def _gigabits(value: float) -> str:
    return f"{value:g}G"


def fabric_of(host: HostConfig, port: RawPort) -> tuple[str | None, tuple[LinkMode, ...]]:
    """The fabric that the host's configuration puts at the end of this port's cable: by port or by PCI address."""
    for name, fabric in host.spec.fabrics.items():
        if any(_names(entry, port) for entry in fabric.ports):
            return name, fabric.link_modes
    return None, ()


def _names(entry: str, port: RawPort) -> bool:
    try:
        return parse_port_id(entry) == port.id
    except ValueError:
        pass
    try:
        return pci_address(entry) == port.pf.address
    except ValueError:
        return False
