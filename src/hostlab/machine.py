"""The emulated machine: its life (boot, reset, power off) and its RDMA devices, on top of the PCI bus.

One ``Machine`` lives in the supervisor process of a host. The sysfs tree (``sysfs.py``), the firmware
gateway (``vsc.py``) and the netlink server (``netlinkd.py``) look at it and call it; it calls the
``Netdevs`` protocol (``wire.py``) for everything that is a real network device. ``build.build_machine`` makes
one from a lab's host file. The values are in ``parts.py``, what the PCI core does with drivers and VFs in
``pci.py``.

Locks, so that nothing waits in a circle:

- readers take none: values are replaced whole (see ``parts.py``);
- changes happen under ``lock``, step by step, never over a wait; the kernel's per-device lock is
  ``FunctionState.locked``;
- calls that block (a VF that a guest holds) wait on ``changed``, which gives ``lock`` up; ``power_off`` ends
  such waits;
- ``Card.lock`` (firmware) may be taken under ``lock``, never the other way round.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from hostlab import naming
from hostlab.identity import give_identity
from hostlab.parts import (
    NO_GUID,
    AdapterState,
    FabricState,
    FunctionState,
    LinkInfo,
    Netdevs,
    PortState,
    RdmaPort,
    VfAdmin,
)
from hostlab.pci import PciBus
from linkwright.model.values import LinkMode, guid_is_set

__all__ = [
    "AdapterState",
    "FabricState",
    "FunctionState",
    "LinkInfo",
    "Machine",
    "Netdevs",
    "PortState",
    "RdmaPort",
    "VfAdmin",
]

DOWN, INIT, ACTIVE = 1, 2, 4
POLLING, DISABLED, LINK_UP = 2, 3, 5


class Machine(PciBus):
    """All adapters of one host. ``netdevs`` must be set before ``boot``.

    Inherited from ``PciBus``: ``function``, ``functions``, ``set_numvfs``, ``set_autoprobe``, ``set_override``,
    ``bind``, ``unbind``, ``probe``, ``add_id``, ``hold_vfio``, ``release_vfio``.
    """

    def __init__(self, name: str = "host", fabrics: dict[str, FabricState] | None = None) -> None:
        super().__init__()
        self.name = name
        self.fabrics = fabrics or {}
        self.rdma_exclusive = True

    # --- life

    def boot(self) -> None:
        """The host has (re)started: cards were reset (next → current, unless a fault says not), no VFs, VF
        identities forgotten, every PF probed. Call when the host's network namespace exists and ``netdevs`` is
        set; what is left of an earlier life is cleared first (``power_off``)."""
        self.power_off()
        with self.lock:
            self.boots += 1
            self.powered = True
            self._groups = 0
            self.vfio_ids = set()
            self.bus_autoprobe = True
            for adapter in self.adapters:
                adapter.firmware.host_restarted()
                self._appear(adapter)

    def power_off(self) -> None:
        """The host stops or crashes: every blocked call ends with ENODEV, VFs and netdevs are gone. Call it
        while (not after) the host's processes are killed: one that is blocked in a sysfs write dies only when it
        ends."""
        with self.lock:
            self.powered = False
            self.changed.notify_all()
            for adapter in self.adapters:
                self._disappear(adapter)

    def reset(self, adapter: AdapterState) -> None:
        """A firmware reset of the card took effect: next → current, firmware uptime restarts, VFs are gone,
        netdevs and RDMA devices vanish (from containers too) and PFs come back in the new mode. Raises
        OSError(EBUSY) while a guest holds one of its functions: the driver would refuse the reset request."""
        with self.lock:
            if not self.may_reset(adapter):
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            self._disappear(adapter)
            adapter.firmware.reset_done()
            self._appear(adapter)

    def may_reset(self, adapter: AdapterState) -> bool:
        return not any(fn.vfio_holder for port in adapter.ports for fn in port.functions)

    def vanish(self, adapter: AdapterState) -> None:
        """Fault: the card falls off the bus, with everything on it."""
        with self.lock:
            self._disappear(adapter)
            adapter.present = False
            self.changed.notify_all()

    def reappear(self, adapter: AdapterState) -> None:
        """The card comes back, as after a bus rescan; its firmware was not reset."""
        with self.lock:
            if not adapter.present:
                adapter.present = True
                self._appear(adapter)

    def rescan(self) -> None:
        """Every card that fell off is found again."""
        for adapter in self.adapters:
            self.reappear(adapter)

    def reload_driver(self, adapter: AdapterState) -> None:
        """Fault: somebody reloads the driver; all functions vanish and come back, firmware and mode stay."""
        with self.lock:
            self._disappear(adapter)
            self._appear(adapter)

    def swap(self, adapter: AdapterState) -> None:
        """Fault: another card of the same kind is put into the slot, as it leaves the factory."""
        with self.lock:
            self._disappear(adapter)
            adapter.swaps += 1
            give_identity(adapter, self.name)
            adapter.firmware.factory_fresh()
            self._appear(adapter)

    def merge_ports(self, adapter: AdapterState, on: bool) -> None:
        """Fault: a bond over the ports of a card in RoCE mode: mlx5 makes one RDMA device of them
        (``mlx5_bond_0``), the first port's; without the bond each port has its own again."""
        if not on:
            self.reload_driver(adapter)
            return
        with self.lock:
            first, *others = (port.pf for port in adapter.ports)
            for fn in others:
                if fn.rdma_name:
                    self._tell("rdma-remove", fn)
                    fn.rdma_name, fn.rdma_netns = None, None
            if first.rdma_name and first.port.mode is LinkMode.ROCE:
                self.rename_rdma(first, "mlx5_bond_0")

    # --- fabrics and ports

    def carries(self, port: PortState) -> bool:
        """Is the port cabled to a fabric that speaks its mode, by a link that works?"""
        fabric = self.fabrics.get(port.fabric or "")
        return fabric is not None and port.mode in fabric.modes and not port.link_broken

    def rdma_port(self, fn: FunctionState) -> RdmaPort:
        """State of fn's RDMA port now. RoCE follows the netdev's carrier. InfiniBand: DOWN/Polling on the wrong
        fabric; DOWN/LinkUp for a VF without GUIDs or with its link state off; INIT without a subnet manager."""
        if fn.port.mode is LinkMode.ROCE:
            up = self.netdevs.carrier(fn)
            return RdmaPort("Ethernet", ACTIVE if up else DOWN, LINK_UP if up else DISABLED, 0, 0)
        if not self.carries(fn.port):
            return RdmaPort("InfiniBand", DOWN, POLLING, 0, 0)
        if not fn.is_pf and (not guid_is_set(fn.port_guid) or fn.admin.link_state == naming.VF_LINK_DISABLE):
            return RdmaPort("InfiniBand", DOWN, LINK_UP, 0xFFFF, 0)
        if not self.fabrics[fn.port.fabric or ""].subnet_manager or (fn.is_pf and not guid_is_set(fn.node_guid)):
            return RdmaPort("InfiniBand", INIT, LINK_UP, 0, 0)
        return RdmaPort("InfiniBand", ACTIVE, LINK_UP, fn.lid, 1)

    # --- RDMA devices

    def by_rdma_index(self, index: int) -> FunctionState | None:
        return next((fn for fn in self.functions() if fn.rdma_name and fn.rdma_index == index), None)

    def move_rdma(self, fn: FunctionState, netns: int | None) -> None:
        """Move fn's RDMA device to the namespace with this inode (None: the host's). In InfiniBand mode its
        IPoIB netdev is destroyed and made anew in the host's namespace (drivers/infiniband/core/device.c
        re-registers the clients). Raises OSError: EOPNOTSUPP in shared mode, ENODEV without a device."""
        with self.lock:
            if not self.rdma_exclusive:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            if fn.rdma_name is None:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
            fn.rdma_netns = netns
            if fn.port.mode is LinkMode.INFINIBAND:
                self.netdevs.rehome(fn)
            self._tell("rdma-move", fn)

    def rename_rdma(self, fn: FunctionState, name: str) -> None:
        """Raises OSError(EEXIST) when another device has the name: RDMA names are unique over all namespaces."""
        with self.lock:
            if any(other.rdma_name == name for other in self.functions() if other is not fn):
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
            fn.rdma_name = name
            self._tell("rdma-rename", fn)

    def subscribe(self, listener: Callable[[str, FunctionState], None]) -> None:
        """Be told of ``rdma-add``, ``rdma-remove``, ``rdma-move``, ``rdma-rename`` and ``driver`` (bound or
        unbound), under the lock: the listener must not block."""
        self.listeners.append(listener)

    # --- inside

    def _disappear(self, adapter: AdapterState) -> None:
        """VFs gone, drivers off, even under holders (``vfio_holder`` is dropped: the guest lost its device)."""
        for port in adapter.ports:
            for fn in reversed(port.functions):
                fn.vfio_holder = None
                self._release(fn)
            port.vfs = []
            port.num_vfs = 0
            port.pf.admin = VfAdmin()
        self.changed.notify_all()

    def _appear(self, adapter: AdapterState) -> None:
        """Ports take the running firmware's mode and VF limits; their PFs are found again and probed."""
        if not adapter.present:
            return
        for port in adapter.ports:
            port.mode = adapter.firmware.mode(port.number)
            port.total_vfs = adapter.firmware.vf_limit(port.number)
            port.autoprobe = True
            port.pf.driver_override = None
            port.pf.iommu_group = self._next_group()
            port.pf.mac = port.base_mac
            port.pf.node_guid = NO_GUID if port.guid_zero else port.port_guid
            port.pf.port_guid = port.port_guid if port.mode is LinkMode.INFINIBAND else naming.eui64(port.base_mac)
            port.pf.lid = self._lid(port.pf)
            self._attach(port.pf)
