"""The emulated machine: adapters, ports and functions as values in memory, and what may be done to them.

One ``Machine`` lives in the supervisor process of a host. The sysfs server (``sysfs.py``), the firmware
gateway (``vsc.py``) and the netlink server (``netlinkd.py``) look at it and call it; it calls the
``Netdevs`` protocol (``wire.py``) for everything that is a real network device. All under ``lock``; calls that block
(a write that waits for a guest) wait on ``changed`` so that readers go on.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Protocol

from linkwright.model.values import LinkMode


@dataclass
class VfAdmin:
    """What a PF's driver keeps for one VF (``vfs_ctx`` of mlx5); lost when the PF driver or the host restarts."""

    mac: str = "00:00:00:00:00:00"
    vlan: int = 0
    qos: int = 0
    spoofchk: bool = False
    trust: bool = False
    link_state: int = 0  # IFLA_VF_LINK_STATE_AUTO
    min_tx_rate: int = 0
    max_tx_rate: int = 0
    node_guid: str = "00:00:00:00:00:00:00:00"
    port_guid: str = "00:00:00:00:00:00:00:00"


@dataclass
class FunctionState:
    """A PF or VF. ``mac``/``node_guid``/``port_guid`` are the effective values: taken when the driver binds."""

    address: str  # 0000:3b:00.0
    adapter: AdapterState
    port: PortState
    vf_index: int | None = None
    driver: str | None = None  # mlx5_core | vfio-pci | None
    driver_override: str | None = None
    mac: str = "00:00:00:00:00:00"
    node_guid: str = "00:00:00:00:00:00:00:00"
    port_guid: str = "00:00:00:00:00:00:00:00"
    netdev_name: str | None = None  # the name given at bind; the live one is asked from Netdevs
    rdma_name: str | None = None  # None: no RDMA device (unbound, or RoCE off in firmware)
    rdma_index: int = 0
    rdma_netns: int | None = None  # inode of the namespace holding the RDMA device; None: the host's
    admin: VfAdmin = field(default_factory=VfAdmin)
    vfio_holder: str | None = None  # a guest holds it: unbind and VF removal block

    @property
    def is_pf(self) -> bool:
        return self.vf_index is None


@dataclass
class PortState:
    """A physical port. ``mode`` is the mode the running firmware has (current), fixed at boot or reset."""

    number: int
    adapter: AdapterState
    fabric: str | None
    mode: LinkMode
    pf: FunctionState = field(init=False)
    vfs: list[FunctionState] = field(default_factory=list)
    autoprobe: bool = True
    base_mac: str = "00:00:00:00:00:00"
    port_guid: str = "00:00:00:00:00:00:00:00"
    lid: int = 0

    @property
    def functions(self) -> list[FunctionState]:
        return [self.pf, *self.vfs]


@dataclass
class AdapterState:
    """A card: its persona (what it is), firmware (what it remembers) and ports. ``firmware`` is firmware.Card."""

    persona: object
    firmware: object
    address: str  # 0000:3b:00, without the function
    ports: list[PortState] = field(default_factory=list)
    system_image_guid: str = ""


@dataclass(frozen=True)
class LinkInfo:
    """One link of the host's namespace as class/net shows it."""

    name: str
    ifindex: int
    link_type: int
    address: str
    broadcast: str
    mtu: int
    flags: int
    operstate: str
    carrier: bool
    function: str | None  # PCI address when it belongs to an emulated function


class Netdevs(Protocol):
    """The real network devices behind functions (``wire.Wire``). Called with the machine's lock held."""

    def create(self, fn: FunctionState) -> None:
        """Make fn's netdev in the host's namespace: named for its mode, with the MAC / 20-byte address,
        default MTU and peer on the fabric's bridge when the fabric carries the port's mode."""

    def destroy(self, fn: FunctionState) -> None:
        """Remove it from whichever namespace holds it, as an unbind does; nothing if there is none."""

    def rehome(self, fn: FunctionState) -> None:
        """The RDMA device moved in IB mode: the IPoIB netdev is destroyed and made again in the host's namespace."""

    def host_name(self, fn: FunctionState) -> str | None:
        """Its name if it is in the host's namespace now, else None."""

    def host_links(self) -> list[LinkInfo]:
        """Every link of the host's namespace, emulated or not (lo, podman's bridges)."""

    def carrier(self, fn: FunctionState) -> bool:
        """Is the port connected: cabled to a fabric that carries its mode, and admin-up?"""


class Machine:
    """All adapters of one host, by PCI address."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.adapters: list[AdapterState] = []
        self.rdma_exclusive = True
        self.netdevs: Netdevs
