"""The unmodified mstconfig, mstfwreset and mstreg of the distribution on emulated cards."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cards_rig import Rig, pin_to_one_cpu

from hostlab.firmware import Card
from hostlab.personas import load
from linkwright.model.values import LinkMode

pytestmark = pytest.mark.lab

PF0, PF1, SINGLE, ETH = "0000:3b:00.0", "0000:3b:00.1", "0000:5e:00.0", "0000:81:00.0"
DEFAULT, CURRENT, NEXT = 0, 1, 2


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    before = os.sched_getaffinity(0)
    pin_to_one_cpu()
    made = Rig(tmp_path)
    yield made
    made.close()
    os.sched_setaffinity(0, before)


def query(rig: Rig, pf: str, *names: str) -> dict[str, list[str]]:
    done = rig.run("mstconfig", "-d", pf, "-e", "query", *names)
    assert done.returncode == 0, done.stdout
    rows = re.findall(r"^\*? +(?:RO +)?([A-Z]\w+) +(\S+) +(\S+) +(\S+)", done.stdout, re.MULTILINE)
    return {name: columns for name, *columns in rows}


def set_(rig: Rig, pf: str, *settings: str) -> subprocess.CompletedProcess[str]:
    return rig.run("mstconfig", "-d", pf, "-y", "set", *settings)


class TestMstconfig:
    def test_a_new_card(self, rig: Rig) -> None:
        names = ("LINK_TYPE_P1", "LINK_TYPE_P2", "SRIOV_EN", "NUM_OF_VFS")
        assert query(rig, PF0, *names) == {
            "LINK_TYPE_P1": ["IB(1)"] * 3,
            "LINK_TYPE_P2": ["IB(1)"] * 3,
            "SRIOV_EN": ["True(1)"] * 3,
            "NUM_OF_VFS": ["16"] * 3,
        }

    def test_set_is_next_and_a_boot_makes_it_current(self, rig: Rig) -> None:
        done = set_(rig, PF0, "LINK_TYPE_P1=2", "NUM_OF_VFS=8")
        assert done.returncode == 0
        assert "Please reboot machine to load new configurations" in done.stdout
        names = ("LINK_TYPE_P1", "LINK_TYPE_P2", "NUM_OF_VFS")
        assert query(rig, PF1, *names) == {  # the card's, whichever PF is asked
            "LINK_TYPE_P1": ["IB(1)", "IB(1)", "ETH(2)"],
            "LINK_TYPE_P2": ["IB(1)"] * 3,
            "NUM_OF_VFS": ["16", "16", "8"],
        }
        assert rig.fn(PF0).port.mode is LinkMode.INFINIBAND
        rig.machine.boot()
        assert query(rig, PF0, *names)["LINK_TYPE_P1"] == ["IB(1)", "ETH(2)", "ETH(2)"]
        assert rig.fn(PF0).port.mode is LinkMode.ROCE
        assert rig.fn(PF1).port.mode is LinkMode.INFINIBAND
        assert rig.read(f"/bus/pci/devices/{PF0}/sriov_totalvfs") == "8"

    def test_reset_goes_back_to_the_defaults_at_the_next_boot(self, rig: Rig) -> None:
        set_(rig, SINGLE, "LINK_TYPE_P1=2")
        rig.machine.boot()
        assert rig.run("mstconfig", "-d", SINGLE, "-y", "reset").returncode == 0
        assert query(rig, SINGLE, "LINK_TYPE_P1")["LINK_TYPE_P1"] == ["IB(1)", "ETH(2)", "IB(1)"]

    def test_backup_writes_raw_tlvs(self, rig: Rig) -> None:
        set_(rig, SINGLE, "LINK_TYPE_P1=2")
        done = rig.run("mstconfig", "-d", SINGLE, "-f", str(rig.folder / "backup"), "backup")
        assert done.returncode == 0, done.stdout
        assert "0x00000004 0x01010012 0x00000000 0x00000008" in (rig.folder / "backup").read_text()

    def test_what_a_card_does_not_have(self, rig: Rig) -> None:
        eth = rig.run("mstconfig", "-d", ETH, "query", "LINK_TYPE_P1")
        assert eth.returncode == 3
        assert "-E- The Device doesn't support LINK_TYPE_P1 parameter" in eth.stdout
        single = rig.run("mstconfig", "-d", SINGLE, "query", "LINK_TYPE_P2")
        assert (single.returncode, "-E- Unknown Parameter: LINK_TYPE_P2" in single.stdout) == (3, True)
        many = set_(rig, PF0, "NUM_OF_VFS=200")
        assert many.returncode == 3
        assert "larger than maximum allowed 127" in many.stdout

    def test_mstreg_reads_the_general_register(self, rig: Rig) -> None:
        card = rig.fn(PF0).adapter.firmware
        card._running_since -= 500
        done = rig.run("mstreg", "-d", PF0, "--reg_name", "MGIR", "--get")
        assert done.returncode == 0
        (uptime,) = re.findall(r"^uptime +\| 0x([0-9a-f]+)", done.stdout, re.MULTILINE)
        assert 500 <= int(uptime, 16) < 600


class TestMstfwreset:
    def test_query(self, rig: Rig) -> None:
        said = rig.run("mstfwreset", "-d", PF0, "query").stdout
        assert re.search(r"3: Driver restart and PCI reset +-Supported +\(default\)", said)
        assert re.search(r"1: Driver is the owner +-Supported", said)

    def test_a_reset_with_the_driver_makes_next_current_and_takes_vfs(self, rig: Rig) -> None:
        set_(rig, PF0, "LINK_TYPE_P1=2")
        rig.write(f"/bus/pci/devices/{PF0}/sriov_numvfs", "1\n")
        vf = rig.fn(PF0).port.vfs[0].address
        rig.netdevs.move(vf, "container")
        rig.fn(PF0).adapter.firmware._running_since -= 500
        done = rig.run("mstfwreset", "-d", PF0, "--sync", "1", "-y", "reset")
        assert done.returncode == 0, done.stdout
        assert "-I- FW was loaded successfully." in done.stdout
        assert (vf, "container") in rig.netdevs.destroyed
        assert rig.fn(PF0).port.mode is LinkMode.ROCE
        assert rig.read(f"/bus/pci/devices/{PF0}/sriov_numvfs") == "0"
        assert rig.names(f"/bus/pci/devices/{PF0}/net") == {"enp59s0f0np0"}
        assert rig.fn(SINGLE).port.mode is LinkMode.INFINIBAND  # other cards are not touched
        assert query(rig, PF0, "LINK_TYPE_P1")["LINK_TYPE_P1"] == ["IB(1)", "ETH(2)", "ETH(2)"]


class TestFaults:
    def fault(self, rig: Rig, name: str, value: object = True) -> None:
        rig.fn(PF0).adapter.firmware.set_fault(name, value)

    def test_write_refused_on_port_2_leaves_port_1_written(self, rig: Rig) -> None:
        self.fault(rig, "write_refused", ["LINK_TYPE_P2"])
        done = set_(rig, PF0, "LINK_TYPE_P1=2", "LINK_TYPE_P2=2")
        assert done.returncode == 3
        assert "-E- Failed to set nv_vpi_link_type settings" in done.stdout
        answer = query(rig, PF0, "LINK_TYPE_P1", "LINK_TYPE_P2")
        assert (answer["LINK_TYPE_P1"][NEXT], answer["LINK_TYPE_P2"][NEXT]) == ("ETH(2)", "IB(1)")

    def test_busy_goes_away(self, rig: Rig) -> None:
        self.fault(rig, "busy", 1000)
        done = rig.run("mstconfig", "-d", PF0, "-e", "query", "LINK_TYPE_P1")
        assert done.returncode == 3
        self.fault(rig, "busy", 0)
        assert query(rig, PF0, "LINK_TYPE_P1")["LINK_TYPE_P1"][NEXT] == "IB(1)"

    def test_power_cycle_text(self, rig: Rig) -> None:
        self.fault(rig, "power_cycle_text")
        done = set_(rig, PF0, "LINK_TYPE_P1=2")
        assert done.returncode == 0
        assert "Please power cycle machine to load new configurations" in done.stdout

    @pytest.mark.parametrize("name", ["current_never_follows", "restart_without_reset"])
    def test_a_boot_that_does_not_make_it_current(self, rig: Rig, name: str) -> None:
        self.fault(rig, name)
        card = rig.fn(PF0).adapter.firmware
        card._running_since -= 500
        set_(rig, PF0, "LINK_TYPE_P1=2")
        rig.machine.boot()
        assert query(rig, PF0, "LINK_TYPE_P1")["LINK_TYPE_P1"] == ["IB(1)", "IB(1)", "ETH(2)"]
        assert (card.uptime_s() >= 500) == (name == "restart_without_reset")

    def test_reset_unsupported(self, rig: Rig) -> None:
        self.fault(rig, "reset_unsupported")
        assert re.search(r"3: .* -Not Supported", rig.run("mstfwreset", "-d", PF0, "query").stdout)
        done = rig.run("mstfwreset", "-d", PF0, "--sync", "1", "-y", "reset")
        assert done.returncode == 1
        assert "-E- " in done.stdout

    def test_reset_is_refused_while_a_guest_holds_a_function(self, rig: Rig) -> None:
        rig.machine.set_override(rig.fn(PF1), "vfio-pci")
        rig.machine.unbind(rig.fn(PF1), "mlx5_core")
        rig.machine.bind(rig.fn(PF1), "vfio-pci")
        rig.machine.hold_vfio(rig.fn(PF1), "guest")
        assert rig.run("mstfwreset", "-d", PF0, "--sync", "1", "-y", "reset").returncode == 1
        assert rig.fn(PF1).vfio_holder == "guest"

    @pytest.mark.parametrize("name", ["stuck_semaphore", "unreadable", "lockdown"])
    def test_a_card_that_cannot_be_opened(self, rig: Rig, name: str) -> None:
        self.fault(rig, name)
        done = rig.run("mstconfig", "-d", PF0, "-e", "query", "LINK_TYPE_P1")
        assert done.returncode != 0
        assert query(rig, SINGLE, "LINK_TYPE_P1")["LINK_TYPE_P1"][NEXT] == "IB(1)"

    def test_current_unreadable(self, rig: Rig) -> None:
        self.fault(rig, "current_unreadable")
        done = rig.run("mstconfig", "-d", PF0, "-e", "query", "LINK_TYPE_P1")
        assert "does not support" in done.stdout


class TestServedTree:
    def test_a_blocked_write_does_not_block_others(self, rig: Rig) -> None:
        device = rig.sys / "bus/pci/devices" / ETH
        (device / "sriov_numvfs").write_text("1\n")
        vf = rig.fn(ETH).port.vfs[0]
        rig.machine.unbind(vf, "mlx5_core")
        rig.machine.set_override(vf, "vfio-pci")
        rig.machine.bind(vf, "vfio-pci")
        rig.machine.hold_vfio(vf, "guest")
        writer = subprocess.Popen(["sh", "-c", 'echo 0 > "$1"', "sh", str(device / "sriov_numvfs")])
        with rig.machine.lock:
            assert rig.machine.changed.wait_for(lambda: vf.locked, timeout=10)
        assert (device / "sriov_numvfs").read_text() == "1\n"
        assert (rig.sys / "class/net/enp129s0np0/type").read_text() == "1\n"
        assert query(rig, ETH, "SRIOV_EN")["SRIOV_EN"][NEXT] == "True(1)"
        (rig.sys / "bus/pci/devices" / PF0 / "sriov_numvfs").write_text("2\n")
        assert writer.poll() is None
        rig.machine.release_vfio(vf)
        assert writer.wait(10) == 0
        assert not (device / "virtfn0").exists()  # nothing is cached
        assert (device / "sriov_numvfs").read_text() == "0\n"

    def test_errors_and_permissions_arrive(self, rig: Rig) -> None:
        device = rig.sys / "bus/pci/devices" / ETH
        (device / "sriov_numvfs").write_text("2\n")
        with pytest.raises(OSError, match="busy"):
            (device / "sriov_numvfs").write_text("1\n")
        with pytest.raises(PermissionError):
            (device / "vendor").write_text("x")
        with pytest.raises(PermissionError):
            (rig.sys / "bus/pci/drivers_probe").read_text()
        assert (device / "virtfn0/net").resolve().is_dir()
        assert (device / "driver").resolve().name == "mlx5_core"


class TestMemory:
    def test_settings_survive_in_the_file(self, tmp_path: Path) -> None:
        persona, file = load("cx7-vpi-single"), tmp_path / "card.json"
        Card(persona, file).set_next("nv_vpi_link_type", {"default_link_type": 2}, 1)
        again = Card(persona, file)
        assert again.mode(1) is LinkMode.INFINIBAND
        again.reset_done()
        assert Card(persona, file).mode(1) is LinkMode.ROCE

    def test_another_card_in_the_slot_starts_as_delivered(self, tmp_path: Path) -> None:
        file = tmp_path / "card.json"
        card = Card(load("cx7-vpi-single"), file)
        card.set_next("nv_vpi_link_type", {"default_link_type": 2}, 1)
        card.reset_done()
        assert Card(load("cx6-vpi-dual"), file).mode(1) is LinkMode.INFINIBAND
