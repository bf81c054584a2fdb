"""/sys/devices/pci…/<bdf>: what one PF or VF shows and accepts.

Attributes follow drivers/pci/pci-sysfs.c and drivers/pci/iov.c. Those that never change are made once for the
life of the function; links and folders that come and go (driver, net, infiniband, virtfn) each time somebody
looks.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from hostlab import naming, nodes, vsc
from hostlab.devicepath import to_sys
from hostlab.machine import AdapterState, FunctionState, Machine, PortState
from hostlab.nodes import Attribute, Folder, Link, Node, Raw
from hostlab.sysfs_net import netdev_folder
from hostlab.sysfs_rdma import rdma_folder, rdma_visible
from linkwright.model.values import LinkMode

VENDOR = 0x15B3
CLASS_ETHERNET = 0x020000
CLASS_INFINIBAND = 0x020700
VFS_MAX = 0xFFFF  # kstrtou16


def device_class(port: PortState) -> int:
    """A PF's class follows the mode of its port, and so does a VF's."""
    return CLASS_INFINIBAND if port.mode is LinkMode.INFINIBAND else CLASS_ETHERNET


def vpd(adapter: AdapterState) -> bytes:
    """Vital product data as PCI 3.0 appendix I lays it out: identifier string, read-only fields with a checksum
    (RV)."""
    name = adapter.persona.description.encode()
    fields = b"".join(
        key + bytes([len(value)]) + value
        for key, value in (
            (b"PN", adapter.persona.part_number.encode()),
            (b"EC", b"A5"),
            (b"SN", adapter.serial.encode()),
            (b"V0", b"PCIeGen4 x16"),
        )
    )
    start = b"\x82" + len(name).to_bytes(2, "little") + name
    start += b"\x90" + (len(fields) + 4).to_bytes(2, "little") + fields + b"RV\x01"
    return start + bytes([-sum(start) & 0xFF]) + b"\x78"


class FunctionFolder:
    """The folder of one function. ``folder`` is its node."""

    def __init__(self, machine: Machine, fn: FunctionState) -> None:
        self._machine = machine
        self.function = self._fn = fn
        self._persona = fn.adapter.persona
        self._config: tuple[int, bytes] = (0, b"")
        self._gateway = vsc.Gateway(fn.adapter.firmware) if fn.is_pf else None
        self.folder = Folder(self._identity() | self._controls() | (self._of_pf() if fn.is_pf else {}), self._live)

    # --- what it is

    def _identity(self) -> dict[str, Node]:
        fn, persona = self._fn, self._persona
        adapter = fn.adapter
        device = self._machine.device_id(fn)
        return {
            "vendor": nodes.text(f"{VENDOR:#06x}"),
            "device": nodes.text(f"{device:#06x}"),
            "class": nodes.shown(lambda: f"{device_class(fn.port):#08x}"),
            "revision": nodes.text("0x00"),
            "subsystem_vendor": nodes.text(f"{VENDOR:#06x}"),
            "subsystem_device": nodes.text(f"{persona.subsystem_device:#06x}"),
            "subsystem": Link(f"{to_sys(fn)}bus/pci"),
            "modalias": nodes.shown(self._modalias),
            "uevent": Attribute(self._uevent, lambda text: None),
            "numa_node": nodes.text(adapter.numa_node),
            "local_cpulist": nodes.text("0-15"),
            "local_cpus": nodes.text("ffff"),
            "irq": nodes.text(0),
            "max_link_speed": nodes.text("16.0 GT/s PCIe"),
            "max_link_width": nodes.text("16"),
            "current_link_speed": nodes.text("16.0 GT/s PCIe"),
            "current_link_width": nodes.text("16"),
            "dma_mask_bits": nodes.text(64),
            "resource": Attribute(lambda: "0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 13),
            "ari_enabled": nodes.text(1),
            "msi_bus": nodes.text(1),
            "power": Folder({"control": nodes.text("on"), "runtime_status": nodes.text("active")}),
        }

    def _modalias(self) -> str:
        device, kind = self._machine.device_id(self._fn), device_class(self._fn.port)
        return (
            f"pci:v{VENDOR:08X}d{device:08X}sv{VENDOR:08X}sd{self._persona.subsystem_device:08X}"
            f"bc{kind >> 16:02X}sc{kind >> 8 & 0xFF:02X}i{kind & 0xFF:02X}"
        )

    def _uevent(self) -> str:
        fn = self._fn
        lines = [f"DRIVER={fn.driver}"] if fn.driver else []
        lines += [
            f"PCI_CLASS={device_class(fn.port):X}",
            f"PCI_ID={VENDOR:04X}:{self._machine.device_id(fn):04X}",
            f"PCI_SUBSYS_ID={VENDOR:04X}:{self._persona.subsystem_device:04X}",
            f"PCI_SLOT_NAME={fn.address}",
            f"MODALIAS={self._modalias()}",
        ]
        return "\n".join(lines) + "\n"

    # --- what may be done

    def _controls(self) -> dict[str, Node]:
        fn, machine = self._fn, self._machine
        return {
            "config": Raw(self._read_config, self._write_config, size=vsc.SIZE),
            "driver_override": Attribute(
                lambda: f"{fn.driver_override or '(null)'}\n", lambda text: machine.set_override(fn, text)
            ),
            "enable": Attribute(lambda: f"{int(fn.driver is not None)}\n", lambda text: None),
            "reset": Attribute(store=self._reset),
            "reset_method": nodes.text("flr bus"),
            "remove": Attribute(store=self._remove),
            "rescan": Attribute(store=lambda text: None),
        }

    def _read_config(self, offset: int, size: int) -> bytes:
        kind = device_class(self._fn.port)
        if self._config[0] != kind:
            subsystem = (VENDOR, self._persona.subsystem_device)
            device = self._machine.device_id(self._fn)
            self._config = (
                kind,
                vsc.header(VENDOR, device, kind, subsystem, gateway=self._gateway is not None),
            )
        if self._gateway is not None:
            return self._gateway.read(self._config[1], offset, size)
        return self._config[1][offset : offset + size]

    def _write_config(self, offset: int, data: bytes) -> None:
        if self._gateway is not None:
            self._gateway.write(offset, data)

    def _reset(self, written: str) -> None:
        """reset_store: only 1 is taken; a function level reset changes nothing that this tree shows."""
        if nodes.number(written, 0, 0xFFFFFFFF) != 1:
            raise nodes.error(errno.EINVAL)

    def _remove(self, written: str) -> None:
        """The whole card leaves the bus: a PF alone cannot be removed from under its VFs here."""
        if nodes.number(written, 0, 0xFFFFFFFF):
            self._machine.vanish(self._fn.adapter)

    def _of_pf(self) -> dict[str, Node]:
        fn, machine, port = self._fn, self._machine, self._fn.port
        return {
            "vpd": Raw(lambda offset, size: vpd(fn.adapter)[offset : offset + size]),
            "sriov_numvfs": Attribute(
                lambda: f"{port.num_vfs}\n", lambda text: machine.set_numvfs(fn, nodes.number(text, 0, VFS_MAX))
            ),
            "sriov_totalvfs": nodes.shown(lambda: port.total_vfs),
            "sriov_offset": nodes.shown(lambda: naming.vf_offset(port)),
            "sriov_stride": nodes.text(1),
            "sriov_vf_device": nodes.text(f"{self._persona.vf_device_id:x}"),
            "sriov_drivers_autoprobe": Attribute(
                lambda: f"{int(port.autoprobe)}\n", lambda text: machine.set_autoprobe(fn, nodes.boolean(text))
            ),
        }

    # --- what comes and goes

    def _live(self) -> Mapping[str, Node]:
        fn, machine = self._fn, self._machine
        up = to_sys(fn)
        found: dict[str, Node] = {"iommu_group": Link(f"{up}kernel/iommu_groups/{fn.iommu_group}")}
        if fn.driver is not None:
            found["driver"] = Link(f"{up}bus/pci/drivers/{fn.driver}")
            found["msi_irqs"] = Folder({str(64 + vector): nodes.text("msix") for vector in range(4)})
        if machine.has_net(fn):
            found["net"] = Folder(live=self._net)
        if fn.rdma_name is not None:
            found["infiniband"] = Folder(live=self._infiniband)
        if fn.is_pf:
            for vf in fn.port.vfs:
                found[f"virtfn{vf.vf_index}"] = Link(f"../{vf.address}")
        else:
            found["physfn"] = Link(f"../{fn.port.pf.address}")
        return found

    def _net(self) -> Mapping[str, Node]:
        """Empty when the netdev lives in another namespace."""
        name = self._machine.netdevs.host_name(self._fn)
        return {name: netdev_folder(self._machine, name, self._fn)} if name else {}

    def _infiniband(self) -> Mapping[str, Node]:
        fn, name = self._fn, self._fn.rdma_name
        if name is None or not rdma_visible(self._machine, fn):
            return {}
        return {name: rdma_folder(self._machine, fn)}
