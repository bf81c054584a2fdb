"""What was observed on a host: adapters, ports, functions. Read from the kernel each time, never stored.

``None`` always means *unknown*: not readable now. Unknown causes no write, no activation and no fault.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from .values import Guid, LinkMode, PciAddress, PortId


class Identity(Struct, frozen=True, kw_only=True):
    """Who a card is, beside its address; compared whenever both sides can be read."""

    model: str | None = None  # "ConnectX-6 VPI"
    device_type: str | None = None  # as mstconfig names it, "ConnectX6"
    part_number: str | None = None  # VPD PN
    serial: str | None = None  # VPD SN
    device_id: str | None = None  # PCI device id of its PFs, four hex digits: "101b"
    psid: str | None = None
    firmware: str | None = None  # "20.41.1000"
    system_image_guid: Guid | None = None


class Holder(Struct, frozen=True, kw_only=True):
    """Who uses a function. ``ours`` when the agent's own attachment explains it."""

    kind: Literal["target", "netns", "vfio", "rdma", "upper", "route", "address", "protected"]
    detail: str  # "trainer-0 net1", "pid 4711 (qemu-system-x86)", "default route, 10.0.0.7"
    ours: bool = False
    target: str | None = None
    pid: int | None = None


class Netdev(Struct, frozen=True, kw_only=True):
    """A network device in the namespace it was looked at from. ``address`` has 6 or 20 bytes."""

    name: str
    ifindex: int
    link_type: int  # ARPHRD: 1 Ethernet, 32 InfiniBand
    address: str
    mtu: int
    up: bool = False
    carrier: bool = False
    alias: str = ""
    altnames: tuple[str, ...] = ()
    upper: str | None = None  # name of the master device
    addresses: tuple[str, ...] = ()  # "10.0.0.7/24"
    routes: tuple[str, ...] = ()  # "default", "10.9.0.0/16": beyond those its own addresses make


class RdmaDevice(Struct, frozen=True, kw_only=True):
    """An RDMA device, port 1 of it (ConnectX-4 and later have one port a device)."""

    name: str
    link_layer: LinkMode | None = None
    state: str | None = None  # DOWN INIT ARMED ACTIVE
    phys_state: str | None = None  # Polling LinkUp Disabled
    lid: int | None = None
    sm_lid: int | None = None
    node_guid: Guid | None = None
    port_guid: Guid | None = None  # from GID 0's lower half


class Function(Struct, frozen=True, kw_only=True):
    """A PF or a VF. ``net_elsewhere``: bound to a net driver, its netdev is in another namespace."""

    address: PciAddress
    vf_index: int | None = None  # None: the PF
    driver: str | None = None
    driver_override: str | None = None
    netdev: Netdev | None = None
    net_elsewhere: bool = False
    rdma: RdmaDevice | None = None
    iommu_group: str | None = None
    numa_node: int | None = None
    holders: tuple[Holder, ...] = ()

    @property
    def is_pf(self) -> bool:
        return self.vf_index is None

    @property
    def label(self) -> str:
        return "PF" if self.vf_index is None else f"VF {self.vf_index}"


class Port(Struct, frozen=True, kw_only=True):
    """A physical port with the PF that drives it, and three of its four readings (desired is the policy's)."""

    id: PortId
    number: int
    pf: Function
    vfs: tuple[Function, ...] = ()
    num_vfs: int = 0
    total_vfs: int = 0  # what the kernel allows now (sriov_totalvfs)
    next_mode: LinkMode | None = None
    current_mode: LinkMode | None = None
    observed_mode: LinkMode | None = None
    can_change: bool | None = None  # does the firmware offer LINK_TYPE for it? None: not readable
    link: str = ""  # "up 200G", "init, no SM", "down"
    fabric: str | None = None
    fabric_modes: tuple[LinkMode, ...] = ()  # what the fabric carries; empty: not told
    secondary_of: PortId | None = None  # a second PCI connector of the same physical port: never offered

    @property
    def functions(self) -> tuple[Function, ...]:
        return (self.pf, *self.vfs)


class Adapter(Struct, frozen=True, kw_only=True):
    """One card. ``id``: its system image GUID, else the address of its first PF."""

    id: str
    identity: Identity = Identity()
    ports: tuple[Port, ...] = ()
    sriov_enabled_next: bool | None = None
    sriov_enabled_current: bool | None = None
    num_vfs_next: int | None = None  # firmware NUM_OF_VFS
    num_vfs_current: int | None = None
    num_vfs_limit: int | None = None
    uptime_s: int | None = None  # the firmware's own, since its last reset
    reset_offered: bool | None = None  # a reset in which the driver takes part; asked for only where it matters
    dpu: bool | None = None  # a BlueField in DPU mode: its own processors run it, a host restart does not reset it
    roce_off: bool | None = None  # RoCE is switched off in the running firmware: Ethernet without RDMA
    merged: str = ""  # its ports are one RDMA device, by this bond ("bond0") or device ("mlx5_bond_0")
    replaced: str = ""  # what differs from the card that was known here: "serial MT1 → MT2"; nothing is done on it
    faults: tuple[str, ...] = ()  # why it could not be read, in words


OWNERS = (
    "sriov-network-operator",
    "nic-configuration-operator",
    "sriov-network-device-plugin",
    "rdma-shared-device-plugin",
    "openibd",
    "boot-scripts",
    "netplan",
    "NetworkManager",
    "systemd-networkd",
    "udev",
    "ifupdown",
)
"""Other tools that are recognised, by the names under which host.yaml can take over from them."""


class Owner(Struct, frozen=True, kw_only=True):
    """Another tool that manages cards of this host. ``pfs`` empty: it may manage every card."""

    name: str  # one of OWNERS
    evidence: str  # what shows it: "/etc/sriov-operator/pci/0000:3b:00.0", "pid 812 (sriovdp)"
    what: str  # "VFs", "names", "link types"
    pfs: tuple[PciAddress, ...] = ()


class Inventory(Struct, frozen=True, kw_only=True):
    """A host as observed. ``rdma_netns``: "exclusive" or "shared"; None without RDMA."""

    host: str
    boot_id: str
    kernel: str = ""
    mstflint: str | None = None
    rdma_netns: str | None = None
    adapters: tuple[Adapter, ...] = ()
    owners: tuple[Owner, ...] = ()
    notes: tuple[str, ...] = ()

    def port(self, port: str) -> Port | None:
        return next((p for a in self.adapters for p in a.ports if p.id == port), None)

    def adapter_of(self, port: str) -> Adapter | None:
        return next((a for a in self.adapters for p in a.ports if p.id == port), None)
