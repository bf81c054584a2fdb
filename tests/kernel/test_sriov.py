"""VF counts and driver binding on a directory tree whose writes are answered as drivers/pci would.

The tree is plain files; ``Kernel`` stands in for what the kernel does on a write. The live behaviour over a real
file system is tested on emulated hosts.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from linkwright.kernel import sriov, sysfs
from linkwright.kernel.netlink.transport import NoTransport
from linkwright.kernel.system import System
from linkwright.model.errors import Busy, HardwareFault, InvalidInput, Vanished

PF = "0000:3b:00.0"


class Kernel:
    """Answers writes to the tree."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.devices = root / "bus/pci/devices"
        self.writes: list[tuple[str, str]] = []
        self.ignore_counts = False
        self.bind_vfs = True
        for name in ("mlx5_core", "vfio-pci"):
            (root / "bus/pci/drivers" / name).mkdir(parents=True)
        self.add(PF, total=8)
        self.bind(PF, "mlx5_core")

    def add(self, address: str, *, total: int = 0) -> Path:
        path = self.devices / address
        path.mkdir(parents=True)
        (path / "driver_override").write_text("(null)\n")
        if total:
            (path / "sriov_numvfs").write_text("0\n")
            (path / "sriov_totalvfs").write_text(f"{total}\n")
            (path / "sriov_drivers_autoprobe").write_text("1\n")
        return path

    def bind(self, address: str, driver: str) -> None:
        path = self.devices / address
        (path / "driver").symlink_to(self.root / "bus/pci/drivers" / driver)
        if driver == "mlx5_core":
            (path / "net" / f"eth-{address[-1]}").mkdir(parents=True)

    def unbind(self, address: str) -> None:
        path = self.devices / address
        (path / "driver").unlink()
        for entry in (path / "net").glob("*"):
            entry.rmdir()

    def write(self, path: Path, value: str, *, limit_s: float, where: str, doing: str) -> None:
        self.writes.append((path.name, value))
        if path.name == "sriov_numvfs" and not self.ignore_counts:
            self._count(path, int(value))
        elif path.name == "unbind":
            self.unbind(value)
        elif path.name == "bind":
            self.bind(value, path.parent.name)
        elif path.name == "drivers_probe":
            override = (self.devices / value / "driver_override").read_text().strip()
            self.bind(value, "mlx5_core" if override == "(null)" else override)
        elif path.name == "driver_override":
            path.write_text(value if value.strip() else "(null)\n")

    def _count(self, path: Path, count: int) -> None:
        before = int(path.read_text())
        if before and count:
            raise Busy("the kernel says that it is in use.", code="function-busy", where=PF)
        for index in range(before):
            (path.parent / f"virtfn{index}").unlink()
        for index in range(count):
            address = f"0000:3b:00.{index + 2}"
            if not (self.devices / address).exists():
                self.add(address)
                if self.bind_vfs:
                    self.bind(address, "mlx5_core")
            (path.parent / f"virtfn{index}").symlink_to(f"../{address}")
        path.write_text(f"{count}\n")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel(tmp_path / "sys")
    monkeypatch.setattr(sysfs, "write", kernel.write)
    monkeypatch.setattr(sriov, "_PROBE_LIMIT_S", 0.0)
    monkeypatch.setattr(sriov, "_PROBE_PER_VF_S", 0.0)
    return kernel


@pytest.fixture
def system(kernel: Kernel, tmp_path: Path) -> System:
    return System(sys=tmp_path / "sys", netlink=NoTransport())


def test_vfs_come_in_the_order_of_their_index(kernel: Kernel, system: System) -> None:
    assert sriov.set_num_vfs(system, PF, 4) == tuple(f"0000:3b:00.{n}" for n in (2, 3, 4, 5))
    assert kernel.writes == [("sriov_numvfs", "4")]
    assert sriov.vf_addresses(system, PF)[0] == "0000:3b:00.2"


def test_another_count_goes_over_zero(kernel: Kernel, system: System) -> None:
    sriov.set_num_vfs(system, PF, 4)
    assert len(sriov.set_num_vfs(system, PF, 2)) == 2
    assert [value for _, value in kernel.writes] == ["4", "0", "2"]


def test_the_right_count_is_not_written_again(kernel: Kernel, system: System) -> None:
    sriov.set_num_vfs(system, PF, 3)
    kernel.writes.clear()
    assert len(sriov.set_num_vfs(system, PF, 3)) == 3
    assert sriov.set_num_vfs(system, PF, 0) == ()
    assert kernel.writes == [("sriov_numvfs", "0")]


def test_too_many(kernel: Kernel, system: System) -> None:
    with pytest.raises(InvalidInput, match="kernel offers 8") as caught:
        sriov.set_num_vfs(system, PF, 9)
    assert caught.value.code == "too-many-vfs"
    assert kernel.writes == []


def test_a_count_that_does_not_hold(kernel: Kernel, system: System) -> None:
    kernel.ignore_counts = True
    with pytest.raises(HardwareFault, match="took 2 as the number of VFs, but has 0"):
        sriov.set_num_vfs(system, PF, 2)


def test_a_vf_without_a_driver_is_a_fault_unless_none_is_probed(kernel: Kernel, system: System) -> None:
    kernel.bind_vfs = False
    with pytest.raises(HardwareFault) as caught:
        sriov.set_num_vfs(system, PF, 1)
    assert (caught.value.code, caught.value.where) == ("no-driver", "0000:3b:00.2")
    (kernel.devices / PF / "sriov_drivers_autoprobe").write_text("0\n")
    assert len(sriov.set_num_vfs(system, PF, 1)) == 1


def test_a_gone_pf(system: System) -> None:
    with pytest.raises(Vanished):
        sriov.set_num_vfs(system, "0000:99:00.0", 1)


def test_bind_unbind_probe_rebind(kernel: Kernel, system: System) -> None:
    (vf,) = sriov.set_num_vfs(system, PF, 1)
    kernel.writes.clear()
    sriov.rebind(system, vf)
    assert kernel.writes == [("unbind", vf), ("bind", vf)]
    assert sriov.driver(system, vf) == "mlx5_core"
    sriov.unbind(system, vf)
    sriov.unbind(system, vf)
    assert sriov.driver(system, vf) is None
    sriov.set_driver_override(system, vf, "vfio-pci")
    sriov.probe(system, vf, want_net=False)
    assert sriov.driver(system, vf) == "vfio-pci"
    sriov.unbind(system, vf)
    sriov.set_driver_override(system, vf, None)
    sriov.bind(system, vf, "mlx5_core")
    kernel.writes.clear()
    sriov.bind(system, vf, "mlx5_core")
    sriov.set_driver_override(system, vf, None)
    assert kernel.writes == []


def test_unbinding_what_is_gone(system: System) -> None:
    with pytest.raises(Vanished):
        sriov.unbind(system, "0000:99:00.1")


# --- the write itself


def put(path: Path, value: str, limit_s: float = 10.0) -> None:
    sysfs.write(path, value, limit_s=limit_s, where=PF, doing="setting it")


def test_a_write_arrives(tmp_path: Path) -> None:
    path = tmp_path / "file; rm -rf x"
    path.touch()
    put(path, "0000:3b:00.2")
    assert path.read_text() == "0000:3b:00.2"


def test_a_blocked_write_is_left_behind_and_not_repeated(tmp_path: Path) -> None:
    """Opening a FIFO without a reader blocks, as sriov_numvfs does while a guest holds a VF."""
    fifo = tmp_path / "sriov_numvfs"
    os.mkfifo(fifo)
    with pytest.raises(Busy, match="has not answered") as caught:
        put(fifo, "0", limit_s=0.2)
    assert caught.value.code == "sysfs-write-blocked"
    with pytest.raises(Busy, match="an earlier write"):
        put(fifo, "0", limit_s=60)
    reader = os.open(fifo, os.O_RDONLY)
    try:
        assert os.read(reader, 10) == b"0"
        sysfs._blocked[str(fifo)].wait(10)
        put(fifo, "4")
        assert os.read(reader, 10) == b"4"
    finally:
        os.close(reader)


def test_kernel_answers_become_errors(tmp_path: Path) -> None:
    with pytest.raises(Vanished):
        put(tmp_path / "nothing", "1")
    with pytest.raises(HardwareFault, match="Is a directory"):
        put(tmp_path, "1")


def test_reads_never_raise(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0x15b3\n")
    (tmp_path / "words").write_text("4: ACTIVE\n")
    assert sysfs.number(tmp_path / "number") == 0x15B3
    assert sysfs.number(tmp_path / "words") is None
    assert sysfs.text(tmp_path / "words") == "4: ACTIVE"
    assert sysfs.text(tmp_path / "no") is sysfs.names(tmp_path / "no") is sysfs.link_name(tmp_path) is None
    assert sysfs.names(tmp_path) == ["number", "words"]
