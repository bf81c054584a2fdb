"""The parts of an emulated machine as plain values: fabrics, adapters, ports, functions, netdev protocol.

Values only, no behaviour, so that the sysfs tree, the netlink server and the wire can share them.
Who reads: anybody, without a lock. Who changes: ``Machine`` (and ``netlinkd`` for ``VfAdmin``) under
``Machine.lock``; lists are replaced, never changed in place, so that a reader never sees one half done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from linkwright.model.values import LinkMode

if TYPE_CHECKING:
    from hostlab.firmware import Card
    from hostlab.personas import Persona

NO_MAC = "00:00:00:00:00:00"
NO_GUID = "00:00:00:00:00:00:00:00"


@dataclass
class FabricState:
    """What is at the other end of a cable. ``subnet_manager`` may be switched while the host runs."""

    name: str
    modes: tuple[LinkMode, ...]
    subnet_manager: bool = False


@dataclass
class VfAdmin:
    """What a PF's driver keeps for one VF (``vfs_ctx`` of mlx5); lost when the PF driver or the host
    restarts."""

    mac: str = NO_MAC
    vlan: int = 0
    qos: int = 0
    spoofchk: bool = False
    trust: bool = False
    link_state: int = 0  # IFLA_VF_LINK_STATE_AUTO
    min_tx_rate: int = 0
    max_tx_rate: int = 0
    node_guid: str = NO_GUID
    port_guid: str = NO_GUID


@dataclass(eq=False)
class FunctionState:
    """A PF or VF. ``mac``/``node_guid``/``port_guid`` are the effective values: taken when the driver binds."""

    address: str  # 0000:3b:00.0
    adapter: AdapterState = field(repr=False)
    port: PortState = field(repr=False)
    vf_index: int | None = None
    driver: str | None = None  # mlx5_core | vfio-pci | None
    driver_override: str | None = None
    mac: str = NO_MAC
    node_guid: str = NO_GUID
    port_guid: str = NO_GUID
    netdev_name: str | None = None  # the name given at bind; the live one is asked from Netdevs
    rdma_name: str | None = None  # None: no RDMA device (unbound, or RoCE off in firmware)
    rdma_index: int = 0
    rdma_netns: int | None = None  # inode of the namespace holding the RDMA device; None: the host's
    admin: VfAdmin = field(default_factory=VfAdmin)
    vfio_holder: str | None = None  # a guest holds it: unbind and VF removal block
    iommu_group: int = 0  # another one after each boot
    lid: int = 0  # in InfiniBand mode, given by the fabric's subnet manager; stays while the machine lives
    locked: bool = False  # the kernel's device lock, see PciBus

    @property
    def is_pf(self) -> bool:
        return self.vf_index is None


@dataclass(eq=False)
class PortState:
    """A physical port. ``mode`` is the mode the running firmware has (current), fixed at boot or reset."""

    number: int
    adapter: AdapterState = field(repr=False)
    fabric: str | None
    mode: LinkMode
    pf: FunctionState = field(init=False)
    vfs: list[FunctionState] = field(default_factory=list)
    num_vfs: int = 0  # sriov_numvfs: follows ``vfs`` when a change is complete, as in the kernel
    total_vfs: int = 0  # sriov_totalvfs: NUM_OF_VFS of the running firmware, 0 when SRIOV_EN is off
    autoprobe: bool = True
    base_mac: str = NO_MAC
    port_guid: str = NO_GUID
    link_broken: bool = False  # fault: the link does not come up whatever the fabric carries
    guid_zero: bool = False  # fault: its PF comes back without a node GUID
    host: Mapping[str, object] = field(default_factory=dict)  # the lab file's `host:` (addresses, defaultRoute)

    @property
    def functions(self) -> list[FunctionState]:
        return [self.pf, *self.vfs]

    @property
    def slot(self) -> str:
        """Where its PF sits: the PCI address without the function."""
        return self.pf.address.rpartition(".")[0]

    @property
    def neighbours(self) -> int:
        """How many PFs share its slot, itself among them."""
        return sum(port.slot == self.slot for port in self.adapter.ports)


@dataclass(eq=False)
class AdapterState:
    """A card: its persona (what it is), firmware (what it remembers) and ports."""

    persona: Persona
    firmware: Card
    address: str  # 0000:3b:00, without the function
    ports: list[PortState] = field(default_factory=list)
    system_image_guid: str = ""
    serial: str = ""
    numa_node: int = 0
    present: bool = True  # False: it fell off the bus (fault); its functions are not shown
    swaps: int = 0  # how often another card of the same kind was put in its place

    @property
    def slots(self) -> list[str]:
        """``0000:3b:00``, and more for a card with several connectors or in several PCI domains."""
        return list(dict.fromkeys(port.slot for port in self.ports))


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
    alias: str = ""
    tx_queue_len: int = 1000
    statistics: Mapping[str, int] = field(default_factory=dict)  # names of class/net/*/statistics


@dataclass(frozen=True)
class RdmaPort:
    """Port 1 of an RDMA device as sysfs and RDMA netlink show it. Numbers are IB_PORT_* /
    IB_PORT_PHYS_STATE_*."""

    link_layer: str  # "InfiniBand" | "Ethernet"
    state: int  # 1 DOWN, 2 INIT, 4 ACTIVE
    phys_state: int  # 2 Polling, 3 Disabled, 5 LinkUp
    lid: int
    sm_lid: int


class Netdevs(Protocol):
    """The real network devices behind functions (``wire.Wire``).

    ``create``, ``destroy`` and ``rehome`` are called with the machine's lock held, in the order of the events.
    The others are called by sysfs readers from any thread **without** it: they answer from the implementation's
    own state or from a quick request to the kernel, and never take the machine's lock.
    """

    def create(self, fn: FunctionState) -> None:
        """Make fn's netdev in the host's namespace, named ``fn.netdev_name``: with ``fn.mac`` (RoCE) or the
        20-byte address from ``fn.port_guid`` (InfiniBand), default MTU and peer on the fabric's bridge when
        ``Machine.carries(fn.port)``."""

    def destroy(self, fn: FunctionState) -> None:
        """Remove it from whichever namespace holds it, as an unbind does; nothing if there is none."""

    def rehome(self, fn: FunctionState) -> None:
        """The RDMA device moved in IB mode: the IPoIB netdev is destroyed and made again in the host's
        namespace."""

    def host_name(self, fn: FunctionState) -> str | None:
        """Its name if it is in the host's namespace now, else None."""

    def host_links(self) -> list[LinkInfo]:
        """Every link of the host's namespace, emulated or not (lo, podman's bridges)."""

    def carrier(self, fn: FunctionState) -> bool:
        """Is the port connected: cabled to a fabric that carries its mode, and admin-up?"""
