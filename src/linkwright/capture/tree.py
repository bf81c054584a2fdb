"""The part of /sys that discovery reads, copied with its links, file by file.

Only files named here are read: no ``config`` (its reads and writes are a card's gateway), no ``resource``, no
``rom``, nothing that is written to. A file that cannot be read now (``speed`` of a link that is down) is left out,
as a reader would find it. The layout stays: real folders under ``devices/``, links in ``bus/`` and ``class/``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from . import vpd
from .scrub import Scrubber

FILE_LIMIT = 4096  # a sysfs attribute has one page at most
VPD_LIMIT = 32768
TABLE_LIMIT = 64  # of a port's GIDs and P_Keys

_PCI_FILES = (
    *("vendor", "device", "subsystem_vendor", "subsystem_device", "class", "revision", "uevent", "modalias"),
    *("numa_node", "local_cpulist", "driver_override", "enable", "reset_method", "power_state"),
    *("max_link_speed", "max_link_width", "current_link_speed", "current_link_width"),
    *("sriov_numvfs", "sriov_totalvfs", "sriov_offset", "sriov_stride", "sriov_vf_device"),
    *("sriov_drivers_autoprobe", "sriov_vf_total_msix", "sriov_vf_msix_count"),
)
_PCI_LINKS = ("driver", "iommu_group", "physfn", "virtfn*")
_NET_FILES = (
    *("address", "broadcast", "addr_len", "addr_assign_type", "type", "mtu", "flags", "operstate", "carrier"),
    *("ifindex", "iflink", "ifalias", "name_assign_type", "netdev_group", "link_mode", "speed", "duplex"),
    *("dev_id", "dev_port", "phys_port_name", "phys_port_id", "phys_switch_id", "tx_queue_len", "uevent"),
    *("mode", "pkey", "umcast"),
)
_NET_LINKS = ("device", "subsystem", "master", "upper_*", "lower_*")
_RDMA_FILES = (
    *("board_id", "fw_ver", "hca_type", "hw_rev", "node_desc", "node_guid", "node_type", "sys_image_guid"),
    *("uevent",),
)
_PORT_FILES = (
    *("link_layer", "state", "phys_state", "rate", "lid", "lid_mask_count", "sm_lid", "sm_sl", "cap_mask"),
    *("has_smi",),
)
_PORT_TABLES = ("gids", "gid_attrs/types", "gid_attrs/ndevs", "pkeys")


class TreeCopy:
    """Copies from ``sys`` to ``out``; ``functions`` are the PCI addresses copied, ``left_out`` what failed."""

    def __init__(self, sys: Path, out: Path, scrub: Scrubber, host: str) -> None:
        self._sys = Path(os.path.realpath(sys))
        self._out = out
        self._scrub = scrub
        self._host = host
        self.functions: list[str] = []
        self.left_out: list[str] = []

    def copy(self) -> None:
        listed = [d for d in self._list("bus/pci/devices") if _is_nic(self._sys / "bus/pci/devices" / d)]
        functions = [d for d in listed if self._inside(f"bus/pci/devices/{d}")]
        # Serial numbers first: they may stand in any later text.
        for address in functions:
            serial = vpd.fields(self._bytes(self._real(f"bus/pci/devices/{address}") / "vpd")).get("SN", "")
            self._scrub.serial(serial)
        for address in functions:
            self._function(address)
        self.functions = functions
        for name in filter(lambda name: self._inside(f"class/net/{name}"), self._list("class/net")):
            real = self._real(f"class/net/{name}")
            if real.is_dir() and not self._place(real).is_dir():  # those of functions are there
                self._netdev(real)
            self._class_link("class/net", name)
        for name in filter(lambda name: self._inside(f"class/infiniband/{name}"), self._list("class/infiniband")):
            self._class_link("class/infiniband", name)

    def _function(self, address: str) -> None:
        real = self._real(f"bus/pci/devices/{address}")
        self._files(real, _PCI_FILES)
        self._links(real, _PCI_LINKS)
        if data := self._bytes(real / "vpd"):
            self._write(real / "vpd", vpd.scrubbed(data, self._scrub.serial))
        for folder in ("net", "infiniband"):
            if (real / folder).is_dir():
                self._place(real / folder).mkdir(parents=True, exist_ok=True)
        for netdev in self._children(real / "net"):
            self._netdev(netdev)
        for device in self._children(real / "infiniband"):
            self._rdma(device)
        link = self._out / "bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(self._place(real), link.parent))

    def _netdev(self, real: Path) -> None:
        self._files(real, _NET_FILES)
        self._links(real, _NET_LINKS)

    def _rdma(self, real: Path) -> None:
        self._files(real, _RDMA_FILES)
        self._links(real, ("device", "subsystem"))
        for port in self._children(real / "ports"):
            self._files(port, _PORT_FILES)
            for table in _PORT_TABLES:
                entries = sorted((e for e in self._names(port / table) if e.isdigit()), key=int)
                self._files(port / table, entries[:TABLE_LIMIT])

    # -- one file -----------------------------------------------------------------------------------------------

    def _files(self, real: Path, names: Iterable[str]) -> None:
        for name in names:
            data = self._bytes(real / name)
            if data:
                text = self._attribute(name, data.decode("utf-8", errors="replace"), real)
                self._write(real / name, text.encode())

    def _attribute(self, name: str, text: str, real: Path) -> str:
        value = text.strip()
        if name == "ifalias":
            return self._scrub.word(value, "alias", "alias-{}") + "\n" if value else text
        if name == "node_desc":
            return f"{self._host} {self._scrub.name(real.name)}\n"
        if name in ("phys_switch_id", "phys_port_id"):
            is_guid = re.fullmatch(r"[0-9a-f]{16}", value)
            return (self._scrub.guid(value) if is_guid else self._scrub.word(value, "id", "{:08x}")) + "\n"
        if name.isdigit() and real.name == "ndevs":
            return self._scrub.name(value) + "\n"
        if name == "uevent" and ("INTERFACE=" in text or "NAME=" in text):
            return text.replace(f"={real.name}", f"={self._scrub.name(real.name)}")
        return self._scrub.text(text)

    def _links(self, real: Path, patterns: Iterable[str]) -> None:
        for pattern in patterns:
            found = real.glob(pattern) if "*" in pattern else [real / pattern]
            for link in sorted(found):
                if link.is_symlink():
                    self._symlink(link)

    def _symlink(self, link: Path) -> None:
        try:
            target = link.readlink()
        except OSError:
            return
        if target.is_absolute():  # sysfs has none
            return
        parts = self._renamed(target)
        if link.parent.parent.name == "net" and target.parent == Path(".."):
            parts = ["..", self._scrub.name(target.name)]  # master of a netdev of the same folder
        where = self._place(link)
        where.parent.mkdir(parents=True, exist_ok=True)
        where.symlink_to(Path(*parts))

    def _class_link(self, folder: str, name: str) -> None:
        real = self._real(f"{folder}/{name}")
        link = self._out / folder / self._scrub.name(name)
        if self._place(real).is_dir():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(self._place(real), link.parent))

    def _write(self, real: Path, data: bytes) -> None:
        where = self._place(real)
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(data)

    def _place(self, real: Path) -> Path:
        """Where it goes: the same path, with the names of netdevs and RDMA devices scrubbed."""
        return self._out.joinpath(*self._renamed(real.relative_to(self._sys)))

    def _renamed(self, path: Path) -> list[str]:
        """Its parts; a part is a name after ``net`` and ``infiniband``, and inside ``upper_…`` and ``lower_…``."""
        parts = []
        for before, part in zip(("", *path.parts), path.parts, strict=False):
            head, mark, name = part.partition("_")
            if before in ("net", "infiniband"):
                part = self._scrub.name(part)
            elif head in ("upper", "lower"):
                part = head + mark + self._scrub.name(name)
            parts.append(part)
        return parts

    # -- reading --------------------------------------------------------------------------------------------------

    def _real(self, path: str) -> Path:
        return Path(os.path.realpath(self._sys / path))

    def _inside(self, path: str) -> bool:
        """sysfs has no link that leads out; a tree that somebody gives as one may."""
        return self._real(path).is_relative_to(self._sys)

    def _list(self, path: str) -> list[str]:
        return self._names(self._sys / path)

    @staticmethod
    def _names(folder: Path) -> list[str]:
        try:
            return sorted(entry.name for entry in folder.iterdir())
        except OSError:
            return []

    def _children(self, folder: Path) -> list[Path]:
        return [folder / name for name in self._names(folder) if (folder / name).is_dir()]

    def _bytes(self, file: Path) -> bytes:
        """At most a page (32 kB of VPD); empty when it is not there or cannot be read now."""
        try:
            with file.open("rb", buffering=0) as f:
                return f.read(VPD_LIMIT if file.name == "vpd" else FILE_LIMIT) or b""
        except FileNotFoundError:
            return b""
        except OSError as e:
            if file.name == "vpd":
                self.left_out.append(f"{file.parent.name}: vpd: {e.strerror}")
            return b""


def _is_nic(device: Path) -> bool:
    """Class 0x02xxxx (network), or whatever has an RDMA device."""
    try:
        kind = (device / "class").read_text().strip().lower()
    except OSError:
        return False
    return kind.startswith("0x02") or (device / "infiniband").is_dir()
