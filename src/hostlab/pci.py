"""The PCI core of an emulated host: drivers, binding and SR-IOV, with the kernel's rules and error numbers.

Each method is one sysfs write: it returns when the write would, and raises OSError with the kernel's errno.
Sources: drivers/pci/iov.c (sriov_numvfs_store), drivers/pci/pci-driver.c (pci_match_device,
pci_device_can_probe, new_id_store), drivers/base/bus.c (bind_store, unbind_store, drivers_probe_store),
drivers/base/driver.c (driver_set_override), drivers/vfio/vfio_main.c (vfio_unregister_group_dev waits for the
user to let go).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hostlab import naming
from hostlab.parts import NO_GUID, NO_MAC, AdapterState, FunctionState, Netdevs, PortState, VfAdmin
from linkwright.model.values import LinkMode

NET_DRIVER = "mlx5_core"
VFIO_DRIVER = "vfio-pci"


def kernel_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class PciBus:
    """Functions and drivers of one host. See ``machine.py`` for the rules of ``lock`` and ``changed``."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.name = "host"
        self.adapters: list[AdapterState] = []
        self.netdevs: Netdevs
        self.boots = 0
        self.powered = False
        self.bus_autoprobe = True
        self.vfio_ids: set[tuple[int, int]] = set()
        self.listeners: list[Callable[[str, FunctionState], None]] = []
        self._groups = 0
        self._lids: dict[tuple[str, int | None], int] = {}

    # --- look-ups

    def functions(self) -> list[FunctionState]:
        """All functions on the bus, PFs before their VFs."""
        return [fn for a in self.adapters if a.present for port in a.ports for fn in port.functions]

    def function(self, address: str) -> FunctionState | None:
        return next((fn for fn in self.functions() if fn.address == address), None)

    def has_net(self, fn: FunctionState) -> bool:
        """Has it a net driver, and so a ``net/`` directory (perhaps an empty one)?"""
        return fn.driver == NET_DRIVER and fn.netdev_name is not None

    # --- SR-IOV

    def set_numvfs(self, pf: FunctionState, count: int) -> None:
        """ERANGE over sriov_totalvfs, EBUSY from N to M, ENOENT without a PF driver. Lowering destroys netdevs
        in containers, silently, and blocks while a guest holds a VF; the VFs before it are already gone then."""
        port = pf.port
        if count > port.total_vfs:
            raise kernel_error(errno.ERANGE)
        with self._device(pf):
            if count == port.num_vfs:
                return
            if pf.driver != NET_DRIVER:
                raise kernel_error(errno.ENOENT)
            if count == 0:
                self._remove_vfs(port)
                return
            if port.num_vfs:
                raise kernel_error(errno.EBUSY)
            for index in range(count):
                with self.lock:
                    self._alive(pf)
                    if len(port.vfs) != index:  # the card was reset meanwhile
                        raise kernel_error(errno.ENODEV)
                    vf = FunctionState(naming.vf_address(port, index), pf.adapter, port, index)
                    vf.iommu_group = self._next_group()
                    vf.lid = self._lid(vf)
                    port.vfs = [*port.vfs, vf]
                    self._attach(vf)
            with self.lock:
                port.num_vfs = count

    def set_autoprobe(self, pf: FunctionState, on: bool) -> None:
        with self.lock:
            pf.port.autoprobe = on

    # --- drivers

    def set_override(self, fn: FunctionState, text: str) -> None:
        """An empty text or a lone newline clears it."""
        with self._device(fn):
            fn.driver_override = text.split("\n", 1)[0] or None

    def bind(self, fn: FunctionState, driver: str) -> None:
        """ENODEV when the driver does not match or the VF may not be probed (autoprobe off, no override); EBUSY
        when it has a driver. A bound VF takes the MAC and GUIDs that its PF's driver keeps for it, here only."""
        with self._device(fn):
            if not self._matches(fn, driver):
                raise kernel_error(errno.ENODEV)
            if fn.driver is not None:
                raise kernel_error(errno.EBUSY)
            if not self._may_probe(fn):
                raise kernel_error(errno.ENODEV)
            with self.lock:
                self._attach(fn, driver)

    def unbind(self, fn: FunctionState, driver: str) -> None:
        """ENODEV when it is not bound to this driver. Destroys the netdev wherever it is; a PF loses its VFs;
        blocks while a guest holds it (or one of the VFs)."""
        if fn.driver != driver:
            raise kernel_error(errno.ENODEV)
        with self._device(fn):
            if fn.driver != driver:
                raise kernel_error(errno.ENODEV)
            if fn.is_pf:
                self._remove_vfs(fn.port)
            self._wait_for_guest(fn)
            with self.lock:
                self._release(fn)
                if fn.is_pf:
                    fn.admin = VfAdmin()

    def probe(self, fn: FunctionState) -> None:
        """drivers_probe: attach the driver that matches, if any; no error when none does."""
        with self._device(fn), self.lock:
            if fn.driver is None:
                self._attach(fn)

    def add_id(self, driver: str, vendor: int, device: int) -> None:
        """new_id: the driver takes such devices from now on, and at once those without a driver."""
        if driver == VFIO_DRIVER:
            if (vendor, device) in self.vfio_ids:
                raise kernel_error(errno.EEXIST)
            self.vfio_ids.add((vendor, device))
        for fn in self.functions():
            if fn.driver is None:
                self.probe(fn)

    def remove_id(self, driver: str, vendor: int, device: int) -> None:
        if driver != VFIO_DRIVER or (vendor, device) not in self.vfio_ids:
            raise kernel_error(errno.ENODEV)
        self.vfio_ids.discard((vendor, device))

    def hold_vfio(self, fn: FunctionState, who: str) -> None:
        """A guest opens the function's vfio device; EBUSY when one has it, ENODEV when it has no vfio driver."""
        with self.lock:
            if fn.driver != VFIO_DRIVER:
                raise kernel_error(errno.ENODEV)
            if fn.vfio_holder is not None:
                raise kernel_error(errno.EBUSY)
            fn.vfio_holder = who

    def release_vfio(self, fn: FunctionState) -> None:
        """The guest closed it; writes that waited for that go on."""
        with self.lock:
            fn.vfio_holder = None
            self.changed.notify_all()

    # --- inside

    def device_id(self, fn: FunctionState) -> int:
        persona = fn.adapter.persona
        return persona.device_id if fn.is_pf else persona.vf_device_id

    def _matches(self, fn: FunctionState, driver: str) -> bool:
        if fn.driver_override is not None:
            return fn.driver_override == driver
        return driver == NET_DRIVER or (driver == VFIO_DRIVER and (0x15B3, self.device_id(fn)) in self.vfio_ids)

    def _may_probe(self, fn: FunctionState) -> bool:
        return fn.is_pf or fn.port.autoprobe or fn.driver_override is not None

    def _attach(self, fn: FunctionState, driver: str | None = None) -> None:
        """Probe: give fn ``driver``, or the first that matches when the bus probes by itself. Under ``lock``."""
        if driver is None:
            matching = (name for name in (NET_DRIVER, VFIO_DRIVER) if self._matches(fn, name))
            driver = next(matching, None) if self.bus_autoprobe and self._may_probe(fn) else None
        if driver is None:
            return
        if driver == NET_DRIVER:
            if not fn.is_pf:
                self._take_identity(fn)
            fn.netdev_name = naming.netdev_name(fn)
            if fn.port.mode is LinkMode.INFINIBAND or fn.adapter.firmware.roce_enabled(fn.port.number):
                fn.rdma_index = self._free_rdma_index()
                fn.rdma_netns = None
                wanted = naming.rdma_name(fn)
                taken = any(other.rdma_name == wanted for other in self.functions())
                fn.rdma_name = f"mlx5_{fn.rdma_index}" if taken else wanted  # udev's rename fails on a taken name
            fn.driver = driver
            self.netdevs.create(fn)
            if fn.rdma_name:
                self._tell("rdma-add", fn)
        fn.driver = driver
        self._tell("driver", fn)
        self.changed.notify_all()

    def _release(self, fn: FunctionState) -> None:
        """What a driver's remove does. Under ``lock``."""
        if fn.driver is None:
            return
        if fn.rdma_name:
            self._tell("rdma-remove", fn)
        fn.rdma_name, fn.rdma_netns = None, None
        if fn.netdev_name is not None:
            self.netdevs.destroy(fn)
        fn.netdev_name, fn.driver = None, None
        self._tell("driver", fn)
        self.changed.notify_all()

    def _take_identity(self, vf: FunctionState) -> None:
        """In RoCE mode a VF without admin MAC gets a random one; in InfiniBand mode one without GUIDs stays
        without."""
        admin, port = vf.admin, vf.port
        index = vf.vf_index or 0
        vf.mac = admin.mac if admin.mac != NO_MAC else naming.random_vf_mac(vf.adapter, port, index, self.boots)
        if port.mode is LinkMode.INFINIBAND:
            vf.node_guid, vf.port_guid = admin.node_guid, admin.port_guid
        else:
            vf.port_guid = naming.eui64(vf.mac)
            vf.node_guid = admin.node_guid if admin.node_guid != NO_GUID else vf.port_guid

    def _remove_vfs(self, port: PortState) -> None:
        """sriov_disable: VF after VF from the first; each may have to wait for its guest."""
        while port.vfs:
            vf = port.vfs[0]
            with self._device(vf):
                self._wait_for_guest(vf)
                with self.lock:
                    self._release(vf)
                    port.vfs = port.vfs[1:]
        with self.lock:
            port.num_vfs = 0

    def _wait_for_guest(self, fn: FunctionState) -> None:
        with self.lock:
            boots = self.boots
            while fn.vfio_holder is not None:
                self.changed.wait()
                self._alive(fn, boots)

    @contextmanager
    def _device(self, fn: FunctionState) -> Iterator[None]:
        """The kernel's device_lock: one driver or SR-IOV operation on a function at a time; others wait here."""
        with self.lock:
            boots = self.boots
            self._alive(fn, boots)
            while fn.locked:
                self.changed.wait()
                self._alive(fn, boots)
            fn.locked = True
        try:
            yield
        finally:
            with self.lock:
                fn.locked = False
                self.changed.notify_all()

    def _alive(self, fn: FunctionState, boots: int | None = None) -> None:
        """ENODEV when the host is off or was restarted meanwhile, or the function went away."""
        here = fn.adapter.present and fn in fn.port.functions
        if not self.powered or not here or (boots is not None and boots != self.boots):
            raise kernel_error(errno.ENODEV)

    def _free_rdma_index(self) -> int:
        taken = {fn.rdma_index for fn in self.functions() if fn.rdma_name}
        return next(index for index in range(len(taken) + 1) if index not in taken)

    def _next_group(self) -> int:
        """IOMMU groups are numbered in the order devices appear; the start differs after each boot."""
        self._groups += 1
        return 20 + 7 * (self.boots % 5) + self._groups

    def _lid(self, fn: FunctionState) -> int:
        """A unicast LID (below 0xC000) of its own; the same after restarts, as a subnet manager remembers
        GUIDs."""
        first = 2 + (naming.seed_of(self.name, "") >> 8 & 0xFF) * 180
        return self._lids.setdefault((fn.port.pf.address, fn.vf_index), first + len(self._lids))

    def _tell(self, event: str, fn: FunctionState) -> None:
        for listener in self.listeners:
            listener(event, fn)
