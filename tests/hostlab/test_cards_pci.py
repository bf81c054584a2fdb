"""The kernel's rules of SR-IOV and driver binding, as the emulated machine keeps them."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cards_rig import Rig

PF0, PF1, ETH = "0000:3b:00.0", "0000:3b:00.1", "0000:81:00.0"
BUS = "/bus/pci/devices/"
DRIVERS = "/bus/pci/drivers/"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def fails_with(number: int, call: Callable[..., object], *args: object) -> None:
    with pytest.raises(OSError, match=r".*") as caught:
        call(*args)
    assert caught.value.errno == number


def in_background(call: Callable[..., object], *args: object) -> tuple[threading.Thread, list[OSError]]:
    errors: list[OSError] = []

    def run() -> None:
        try:
            call(*args)
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


def wait_until_blocked(rig: Rig, address: str) -> None:
    """Until somebody holds the device lock of this function; ``changed`` has told so."""
    with rig.machine.lock:
        assert rig.machine.changed.wait_for(lambda: rig.fn(address).locked, timeout=10)


class TestVfCount:
    def test_from_n_to_m_needs_zero_between(self, rig: Rig) -> None:
        rig.write(f"{BUS}{ETH}/sriov_numvfs", "4\n")
        assert rig.read(f"{BUS}{ETH}/sriov_numvfs") == "4"
        fails_with(errno.EBUSY, rig.write, f"{BUS}{ETH}/sriov_numvfs", "2\n")
        rig.write(f"{BUS}{ETH}/sriov_numvfs", "4\n")  # the same number is no change and no error
        rig.write(f"{BUS}{ETH}/sriov_numvfs", "0\n")
        rig.write(f"{BUS}{ETH}/sriov_numvfs", "2\n")
        assert {n for n in rig.names(f"{BUS}{ETH}") if n.startswith("virtfn")} == {"virtfn0", "virtfn1"}

    def test_limits_and_nonsense(self, rig: Rig) -> None:
        assert rig.read(f"{BUS}{ETH}/sriov_totalvfs") == "16"
        fails_with(errno.ERANGE, rig.write, f"{BUS}{ETH}/sriov_numvfs", "17\n")
        fails_with(errno.EINVAL, rig.write, f"{BUS}{ETH}/sriov_numvfs", "70000\n")
        fails_with(errno.EINVAL, rig.write, f"{BUS}{ETH}/sriov_numvfs", "many\n")

    def test_without_a_pf_driver(self, rig: Rig) -> None:
        rig.write(f"{DRIVERS}mlx5_core/unbind", PF0)
        fails_with(errno.ENOENT, rig.write, f"{BUS}{PF0}/sriov_numvfs", "1\n")

    def test_addresses_follow_offset_and_stride(self, rig: Rig) -> None:
        for pf in (PF0, PF1):
            rig.write(f"{BUS}{pf}/sriov_numvfs", "8\n")
        assert rig.read(f"{BUS}{PF0}/sriov_offset") == "2"
        assert [vf.address for vf in rig.fn(PF0).port.vfs[:2]] == ["0000:3b:00.2", "0000:3b:00.3"]
        assert rig.fn(PF0).port.vfs[7].address == "0000:3b:01.1"
        assert rig.read(f"{BUS}{PF1}/sriov_offset") == "17"
        assert rig.fn(PF1).port.vfs[0].address == "0000:3b:02.2"
        assert rig.read(f"{BUS}{PF0}/virtfn7/physfn/sriov_numvfs") == "8"

    def test_sriov_off_in_firmware(self, rig: Rig) -> None:
        card = rig.fn(ETH).adapter.firmware
        card.set_next("nv_global_pci_conf", {"sriov_en": 0})
        assert rig.read(f"{BUS}{ETH}/sriov_totalvfs") == "16"
        rig.machine.boot()
        assert rig.read(f"{BUS}{ETH}/sriov_totalvfs") == "0"
        fails_with(errno.ERANGE, rig.write, f"{BUS}{ETH}/sriov_numvfs", "1\n")

    def test_lowering_destroys_a_netdev_in_a_container_silently(self, rig: Rig) -> None:
        rig.write(f"{BUS}{ETH}/sriov_numvfs", "2\n")
        vf = rig.fn(ETH).port.vfs[1].address
        rig.netdevs.move(vf, "container")
        assert rig.names(f"{BUS}{vf}/net") == set()
        rig.write(f"{BUS}{ETH}/sriov_numvfs", "0\n")
        assert (vf, "container") in rig.netdevs.destroyed
        fails_with(errno.ENOENT, rig.names, f"{BUS}{vf}")

    def test_lowering_waits_for_a_guest_and_others_go_on(self, rig: Rig) -> None:
        rig.write(f"{BUS}{ETH}/sriov_drivers_autoprobe", "0\n")
        rig.write(f"{BUS}{ETH}/sriov_numvfs", "2\n")
        held = rig.fn(ETH).port.vfs[1]
        rig.write(f"{BUS}{held.address}/driver_override", "vfio-pci\n")
        rig.write("/bus/pci/drivers_probe", held.address)
        rig.machine.hold_vfio(held, "guest db-2")
        writer, errors = in_background(rig.write, f"{BUS}{ETH}/sriov_numvfs", "0\n")
        wait_until_blocked(rig, held.address)
        assert rig.read(f"{BUS}{ETH}/sriov_numvfs") == "2"  # reads go on; the count follows at the end
        assert rig.read(f"{BUS}{ETH}/vendor") == "0x15b3"
        rig.write(f"{BUS}{PF0}/sriov_numvfs", "1\n")  # other ports too
        assert writer.is_alive()
        rig.machine.release_vfio(held)
        writer.join(10)
        assert not errors
        assert rig.read(f"{BUS}{ETH}/sriov_numvfs") == "0"

    @pytest.mark.parametrize("end", ["power_off", "boot"])
    def test_a_crash_ends_a_blocked_write(self, rig: Rig, end: str) -> None:
        rig.write(f"{BUS}{ETH}/sriov_numvfs", "1\n")
        held = rig.fn(ETH).port.vfs[0]
        rig.write(f"{DRIVERS}mlx5_core/unbind", held.address)
        rig.write(f"{BUS}{held.address}/driver_override", "vfio-pci\n")
        rig.write(f"{DRIVERS}vfio-pci/bind", held.address)
        rig.machine.hold_vfio(held, "guest")
        writer, errors = in_background(rig.write, f"{DRIVERS}vfio-pci/unbind", held.address)
        wait_until_blocked(rig, held.address)
        getattr(rig.machine, end)()
        writer.join(10)
        assert not writer.is_alive()
        assert [error.errno for error in errors] == [errno.ENODEV]


class TestDrivers:
    def test_bind_needs_a_match(self, rig: Rig) -> None:
        rig.write(f"{BUS}{ETH}/sriov_numvfs", "1\n")
        vf = rig.fn(ETH).port.vfs[0].address
        fails_with(errno.ENODEV, rig.write, f"{DRIVERS}vfio-pci/bind", vf)
        fails_with(errno.EBUSY, rig.write, f"{DRIVERS}mlx5_core/bind", vf)
        fails_with(errno.ENODEV, rig.write, f"{DRIVERS}vfio-pci/unbind", vf)
        fails_with(errno.ENODEV, rig.write, f"{DRIVERS}mlx5_core/bind", "0000:99:00.0")

    def test_autoprobe_off_refuses_a_bind_without_override(self, rig: Rig) -> None:
        rig.write(f"{BUS}{ETH}/sriov_drivers_autoprobe", "0\n")
        rig.write(f"{BUS}{ETH}/sriov_numvfs", "1\n")
        vf = rig.fn(ETH).port.vfs[0].address
        assert "driver" not in rig.names(f"{BUS}{vf}")
        assert "net" not in rig.names(f"{BUS}{vf}")
        fails_with(errno.ENODEV, rig.write, f"{DRIVERS}mlx5_core/bind", vf)
        rig.write("/bus/pci/drivers_probe", vf)  # no error, no driver
        assert "driver" not in rig.names(f"{BUS}{vf}")
        rig.write(f"{BUS}{vf}/driver_override", "mlx5_core\n")
        rig.write(f"{DRIVERS}mlx5_core/bind", vf)
        assert "net" in rig.names(f"{BUS}{vf}/driver/{vf}")

    def test_override_is_cleared_by_a_newline(self, rig: Rig) -> None:
        override = f"{BUS}{PF0}/driver_override"
        assert rig.read(override) == "(null)"
        rig.write(override, "vfio-pci\n")
        assert rig.read(override) == "vfio-pci"
        rig.write(override, "\n")
        assert rig.read(override) == "(null)"

    def test_new_id_takes_devices_without_a_driver(self, rig: Rig) -> None:
        rig.write(f"{DRIVERS}mlx5_core/unbind", ETH)
        rig.write(f"{BUS}{ETH}/driver_override", "vfio-pci")
        rig.write(f"{DRIVERS}vfio-pci/new_id", "15b3 101f")
        assert rig.names(f"{DRIVERS}vfio-pci") >= {ETH}
        fails_with(errno.EEXIST, rig.write, f"{DRIVERS}vfio-pci/new_id", "15b3 101f")
        fails_with(errno.EINVAL, rig.write, f"{DRIVERS}vfio-pci/new_id", "nonsense")

    def test_a_pf_loses_its_vfs_with_its_driver(self, rig: Rig) -> None:
        rig.write(f"{BUS}{ETH}/sriov_numvfs", "2\n")
        rig.write(f"{DRIVERS}mlx5_core/unbind", ETH)
        assert rig.read(f"{BUS}{ETH}/sriov_numvfs") == "0"
        assert rig.fn(ETH).port.vfs == []


class TestIdentity:
    def test_a_vf_takes_its_mac_when_it_is_bound(self, rig: Rig) -> None:
        rig.write(f"{BUS}{ETH}/sriov_numvfs", "1\n")
        vf = rig.fn(ETH).port.vfs[0]
        before = vf.mac
        vf.admin.mac = "02:11:22:33:44:55"
        assert vf.mac == before
        rig.write(f"{DRIVERS}mlx5_core/unbind", vf.address)
        rig.write(f"{DRIVERS}mlx5_core/bind", vf.address)
        assert vf.mac == "02:11:22:33:44:55"

    def test_an_infiniband_vf_has_no_guids_until_they_are_set_and_it_is_bound_again(self, rig: Rig) -> None:
        rig.write(f"{BUS}{PF0}/sriov_numvfs", "1\n")
        vf = rig.fn(PF0).port.vfs[0]
        rdma = f"/class/infiniband/{vf.rdma_name}"
        assert rig.read(f"{rdma}/node_guid") == "0000:0000:0000:0000"
        assert rig.read(f"{rdma}/ports/1/state") == "1: DOWN"
        vf.admin.node_guid = vf.admin.port_guid = "02:11:22:33:44:55:66:77"
        assert rig.read(f"{rdma}/node_guid") == "0000:0000:0000:0000"
        rig.write(f"{DRIVERS}mlx5_core/unbind", vf.address)
        rig.write(f"{DRIVERS}mlx5_core/bind", vf.address)
        assert rig.read(f"{rdma}/node_guid") == "0211:2233:4455:6677"
        assert rig.read(f"{rdma}/ports/1/state") == "4: ACTIVE"
        rig.machine.boot()
        rig.write(f"{BUS}{PF0}/sriov_numvfs", "1\n")
        assert rig.read(f"{rdma}/node_guid") == "0000:0000:0000:0000"
