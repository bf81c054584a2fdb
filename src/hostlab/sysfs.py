"""The /sys tree of an emulated host: where everything stands. What one function shows is in
``sysfs_function.py``, its netdevs in ``sysfs_net.py``, its RDMA device in ``sysfs_rdma.py``.

One tree with the real shape: devices under ``devices/pci…``, and ``bus``, ``class`` and ``kernel`` made of
relative links into it, so that programs that resolve links arrive. Pure: looking takes no lock and changes
nothing. The tree shows the host's own network namespace, as a sysfs mount made there would.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from hostlab import nodes
from hostlab.devicepath import bridge_of, device_path
from hostlab.machine import FunctionState, Machine
from hostlab.nodes import Attribute, Folder, Link, Node
from hostlab.pci import NET_DRIVER, VFIO_DRIVER
from hostlab.sysfs_function import FunctionFolder
from hostlab.sysfs_net import netdev_folder
from hostlab.sysfs_rdma import rdma_visible

BRIDGE: dict[str, Node] = {
    "vendor": nodes.text("0x8086"),
    "device": nodes.text("0x347a"),
    "class": nodes.text("0x060400"),
    "subsystem": Link("../../../bus/pci"),
}


class SysfsTree:
    """``lookup`` finds nodes by path; OSError(ENOENT) for what is not there now."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._functions: dict[str, FunctionFolder] = {}
        self.root = self._root()

    def lookup(self, path: str) -> Node:
        """``path`` begins with ``/``. Links are not followed."""
        node: Node | None = self.root
        for name in path.split("/"):
            if name:
                node = node.child(name) if isinstance(node, Folder) else None
        if node is None:
            raise nodes.error(errno.ENOENT)
        return node

    # --- the frame

    def _root(self) -> Folder:
        empty = Folder()
        pci = Folder(
            {
                "devices": Folder(live=self._bus_devices),
                "drivers": Folder({name: self._driver(name) for name in (NET_DRIVER, VFIO_DRIVER)}),
                "drivers_probe": Attribute(store=self._probe),
                "drivers_autoprobe": Attribute(
                    lambda: f"{int(self.machine.bus_autoprobe)}\n", self._set_bus_autoprobe
                ),
                "rescan": Attribute(store=self._rescan),
                "slots": empty,
            }
        )
        virtual = Folder({"net": Folder(live=self._virtual_netdevs), "iommu": Folder({"dmar0": empty})})
        devices = Folder({"system": empty, "virtual": virtual}, self._roots)
        classes = Folder(
            {
                "net": Folder(live=self._class_net),
                "infiniband": Folder(live=self._class_infiniband),
                "iommu": Folder({"dmar0": Link("../../devices/virtual/iommu/dmar0")}),
                "misc": empty,
            }
        )
        modules = (
            "ib_core",
            "ib_ipoib",
            "ib_uverbs",
            "mlx5_core",
            "mlx5_ib",
            "vfio",
            "vfio_iommu_type1",
            "vfio_pci",
        )
        return Folder(
            {
                "bus": Folder({"pci": pci}),
                "class": classes,
                "devices": devices,
                "fs": Folder({"cgroup": empty}),
                "kernel": Folder({"iommu_groups": Folder(live=self._iommu_groups), "security": empty}),
                "module": Folder(dict.fromkeys(modules, empty)),
                "firmware": empty,
                "power": empty,
            }
        )

    # --- devices

    def function_folder(self, fn: FunctionState) -> FunctionFolder:
        """The folder of a function; one object while it lives (a new VF may have an old one's address)."""
        folder = self._functions.get(fn.address)
        if folder is None or folder.function is not fn:
            folder = self._functions[fn.address] = FunctionFolder(self.machine, fn)
        return folder

    def _roots(self) -> Mapping[str, Node]:
        """``pciDDDD:BB`` with one bridge for each adapter, functions behind it."""
        found: dict[str, Node] = {}
        for slot in self._slots():
            root, bridge = bridge_of(slot)

            def behind(slot: str = slot) -> Mapping[str, Node]:
                return {
                    fn.address: self.function_folder(fn).folder
                    for fn in self.machine.functions()
                    if fn.port.slot == slot
                }

            if bridge is None:
                found[root] = Folder(live=behind)
            else:
                found[root] = Folder({bridge: Folder(BRIDGE, behind)})
        return found

    def _slots(self) -> list[str]:
        return [slot for adapter in self.machine.adapters for slot in adapter.slots]

    def _bus_devices(self) -> Mapping[str, Node]:
        links: dict[str, Node] = {}
        for slot in self._slots():
            root, bridge = bridge_of(slot)
            if bridge is not None:
                links[bridge] = Link(f"../../../devices/{root}/{bridge}")
        for fn in self.machine.functions():
            links[fn.address] = Link(f"../../../{device_path(fn)}")
        return links

    # --- drivers

    def _driver(self, name: str) -> Folder:
        def bound() -> Mapping[str, Node]:
            return {
                fn.address: Link(f"../../../../{device_path(fn)}")
                for fn in self.machine.functions()
                if fn.driver == name
            }

        fixed: dict[str, Node] = {
            "bind": Attribute(store=lambda text: self.machine.bind(self._named(text), name)),
            "unbind": Attribute(store=lambda text: self.machine.unbind(self._named(text), name)),
            "new_id": Attribute(store=lambda text: self.machine.add_id(name, *_ids(text))),
            "remove_id": Attribute(store=lambda text: self.machine.remove_id(name, *_ids(text))),
            "module": Link(f"../../../../module/{name.replace('-', '_')}"),
            "uevent": Attribute(store=lambda text: None),
        }
        return Folder(fixed, bound)

    def _named(self, written: str) -> FunctionState:
        """The function that a write names; ENODEV (bus_find_device_by_name)."""
        fn = self.machine.function(written.strip("\n"))
        if fn is None:
            raise nodes.error(errno.ENODEV)
        return fn

    def _probe(self, written: str) -> None:
        self.machine.probe(self._named(written))

    def _set_bus_autoprobe(self, written: str) -> None:
        """drivers_autoprobe_store: '0' is off, anything else on."""
        self.machine.bus_autoprobe = not written.startswith("0")

    def _rescan(self, written: str) -> None:
        """A card that fell off the bus is found again when its slot has power."""
        if nodes.number(written, 0, 0xFFFFFFFF):
            self.machine.rescan()

    # --- classes and groups

    def _class_net(self) -> Mapping[str, Node]:
        links: dict[str, Node] = {}
        for link in self.machine.netdevs.host_links():
            fn = self.machine.function(link.function) if link.function else None
            home = f"{device_path(fn)}/net" if fn is not None else "devices/virtual/net"
            links[link.name] = Link(f"../../{home}/{link.name}")
        return links

    def _virtual_netdevs(self) -> Mapping[str, Node]:
        machine = self.machine
        return {
            link.name: netdev_folder(machine, link.name, None)
            for link in machine.netdevs.host_links()
            if link.function is None or machine.function(link.function) is None
        }

    def _class_infiniband(self) -> Mapping[str, Node]:
        return {
            fn.rdma_name: Link(f"../../{device_path(fn)}/infiniband/{fn.rdma_name}")
            for fn in self.machine.functions()
            if fn.rdma_name and rdma_visible(self.machine, fn)
        }

    def _iommu_groups(self) -> Mapping[str, Node]:
        return {
            str(fn.iommu_group): Folder(
                {
                    "devices": Folder({fn.address: Link(f"../../../../{device_path(fn)}")}),
                    "type": nodes.text("DMA-FQ"),
                    "reserved_regions": nodes.text("0x00000000fee00000 0x00000000feefffff msi"),
                }
            )
            for fn in self.machine.functions()
        }


def _ids(written: str) -> tuple[int, int]:
    """``15b3 101c``: vendor and device in hex; EINVAL (new_id_store wants at least two fields)."""
    try:
        vendor, device = (int(word, 16) for word in written.split()[:2])
    except ValueError:
        raise nodes.error(errno.EINVAL) from None
    return vendor, device
