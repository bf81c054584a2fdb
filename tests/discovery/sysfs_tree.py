"""A host's sysfs, proc and dev as plain files in a temporary directory, for discovery to read."""

from __future__ import annotations

from pathlib import Path

from linkwright.kernel.netlink.transport import NoTransport, Transport
from linkwright.kernel.system import System

BOOT = "11111111-2222-3333-4444-555555555555"


def vpd(name: str, **fields: str) -> bytes:
    body = b"".join(k.encode() + bytes([len(v)]) + v.encode() for k, v in fields.items())
    text = name.encode()
    head = b"\x82" + len(text).to_bytes(2, "little") + text
    return head + b"\x90" + len(body).to_bytes(2, "little") + body + b"\x78"


class Tree:
    """``pf`` and ``vf`` make functions; the rest changes what they show."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sys = root / "sys"
        self.devices = self.sys / "bus/pci/devices"
        self.devices.mkdir(parents=True)
        self.dev = root / "dev"
        self.dev.mkdir()
        self.proc = root / "proc"
        for name, text in {
            "sys/kernel/random/boot_id": BOOT,
            "sys/kernel/hostname": "gpu-01",
            "sys/kernel/osrelease": "6.12.48",
        }.items():
            self.file(self.proc / name, text)

    def system(self, netlink: Transport | None = None, *, proc: Path | None = None) -> System:
        """Captured unless there is a transport. ``proc``: another one, such as the real /proc."""
        return System(
            sys=self.sys,
            dev=self.dev,
            proc=proc or self.proc,
            netlink=netlink or NoTransport(),
            captured=netlink is None,
        )

    @staticmethod
    def file(path: Path, text: str | bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())

    def _function(self, address: str, driver: str | None, kind: int) -> Path:
        path = self.devices / address
        self.file(path / "class", f"{kind:#08x}")
        self.file(path / "driver_override", "(null)")
        self.file(path / "numa_node", "1")
        group = self.sys / "kernel/iommu_groups" / str(int(address[-1]) + 40)
        group.mkdir(parents=True, exist_ok=True)
        (path / "iommu_group").symlink_to(group)
        if driver:
            self.drive(address, driver)
        return path

    def drive(self, address: str, driver: str | None) -> None:
        link = self.devices / address / "driver"
        link.unlink(missing_ok=True)
        if driver:
            (self.sys / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
            link.symlink_to(self.sys / "bus/pci/drivers" / driver)

    def pf(
        self,
        address: str,
        *,
        device: str = "0x101b",
        vendor: str = "0x15b3",
        total: int = 8,
        driver: str | None = "mlx5_core",
        kind: int = 0x020700,
    ) -> Path:
        path = self._function(address, driver, kind)
        self.file(path / "vendor", vendor)
        self.file(path / "device", device)
        if total:
            self.file(path / "sriov_totalvfs", str(total))
            self.file(path / "sriov_numvfs", "0")
        return path

    def vf(self, pf: str, index: int, address: str, *, driver: str | None = "mlx5_core") -> Path:
        path = self._function(address, driver, 0x020700)
        self.file(path / "vendor", "0x15b3")
        (path / "physfn").symlink_to(self.devices / pf)
        (self.devices / pf / f"virtfn{index}").symlink_to(path)
        self.file(self.devices / pf / "sriov_numvfs", str(index + 1))
        return path

    def net(self, pci: str, name: str | None, ifindex: int = 0, **files: str) -> None:
        """A netdev on a function; ``name`` None: the directory alone (the netdev is in another namespace)."""
        folder = self.devices / pci / "net"
        folder.mkdir(exist_ok=True)
        if name is None:
            return
        shown = {"ifindex": str(ifindex), "type": "1", "mtu": "1500", "flags": "0x1003", "carrier": "1"}
        shown |= {"address": f"02:00:00:00:00:{ifindex:02x}"}
        for key, value in (shown | files).items():
            self.file(folder / name / key, value)
        (self.sys / "class/net").mkdir(parents=True, exist_ok=True)
        (self.sys / "class/net" / name).symlink_to(folder / name)

    def rdma(self, address: str, name: str | None, *, layer: str = "InfiniBand", **files: str) -> None:
        folder = self.devices / address / "infiniband"
        folder.mkdir(exist_ok=True)
        if name is None:
            return
        card = {
            "sys_image_guid": "a088:c203:00ad:eab0",
            "node_guid": "a088:c203:00ad:eab8",
            "board_id": "MT_0000000224",
            "fw_ver": "20.41.1000",
        }
        port = {
            "link_layer": layer,
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "lid": "0x7",
            "sm_lid": "0x1",
            "rate": "200 Gb/sec (4X HDR)",
            "gids/0": "fe80:0000:0000:0000:a088:c203:00ad:eab9",
        }
        for key, value in files.items():
            (card if key in card else port)[key] = value
        for key, value in card.items():
            self.file(folder / name / key, value)
        for key, value in port.items():
            self.file(folder / name / "ports/1" / key, value)
