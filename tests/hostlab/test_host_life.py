"""An emulated host lives in its own namespaces, restarts and crashes, and leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from hostlab import cpu
from hostlab.lab import Host, Lab
from lab_fixtures import StartHost
from linkwright.model.errors import LinkwrightError, Vanished

pytestmark = pytest.mark.lab


EMULATED = ("fabric", "ibp59s0", "ibp94s0", "enp59s0", "enp94s0", "enp129s0")


def assert_machine_is_clean(lab: Lab) -> None:
    """Nothing of a lab on the machine; other tests may run beside this one."""
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(lab.dirs.run) not in mounts
    links = subprocess.run(["ip", "-o", "link"], check=True, capture_output=True, text=True).stdout
    assert not [line for line in links.splitlines() if line.split(": ")[1].startswith(EMULATED)]
    assert not Path("/sys/bus/pci/devices/0000:3b:00.0").exists()


def alive(pid: int) -> bool:
    """Not gone, and not a zombie that the machine's process 1 has still to reap."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def boot_id(host: Host) -> str:
    return host.exec(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip()


def test_the_machine_does_not_notice(start_host: StartHost, lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert_machine_is_clean(lab)
    begun = time.monotonic()
    host = start_host("gpu-02")
    with capsys.disabled():
        print(f"\nhost up in {time.monotonic() - begun:.2f} s, boot {host.status()['boot_s']} s", end=" ")
    assert_machine_is_clean(lab)
    supervisor, init = host.status()["supervisor_pid"], host.status()["init_pid"]
    assert lab.down("gpu-02") is True
    assert_machine_is_clean(lab)
    assert not alive(supervisor)
    assert not alive(init)
    assert not host.dirs.run.exists()
    assert host.dirs.disk.exists(), "the disk stays, as of a machine that is off"
    assert lab.down("gpu-02", erase=True) is False
    assert not host.dirs.lib.exists()


def test_a_host_has_everything_of_its_own(lab_host: Host) -> None:
    assert lab_host.exec(["hostname"]).stdout == "gpu-01\n"
    assert lab_host.exec(["nproc"]).stdout == "1\n"
    assert lab_host.exec(["cat", "/proc/1/comm"]).stdout == "init\n"
    assert "0000:3b:00.0" in lab_host.exec(["ls", "/sys/bus/pci/devices"]).stdout
    assert "Hypervisor" not in lab_host.exec(["lscpu"]).stdout
    assert lab_host.exec(["ls", str(lab_host.dirs.run)], check=False).returncode != 0, "the machine's /tmp"
    assert lab_host.exec(["ls", "/dev/shm"]).stdout == ""
    assert float(lab_host.exec(["cat", "/proc/uptime"]).stdout.split()[0]) < float(
        Path("/proc/uptime").read_text().split()[0]
    )
    addresses = lab_host.exec(["ip", "-br", "address"]).stdout
    assert "127.0.0.1/8" in addresses
    assert "10.0.0.7/24" in addresses, "the port that the host file gives to the host itself"
    assert "default via 10.0.0.1" in lab_host.exec(["ip", "route"]).stdout


def test_links_of_the_emulated_tree_resolve(lab_host: Host) -> None:
    text = lab_host.exec(["readlink", "-f", "/sys/class/net/enp129s0np0/device"]).stdout
    assert text.strip().endswith("/0000:81:00.0")
    assert "0x15b3" in lab_host.exec(["cat", "/sys/class/net/enp129s0np0/device/vendor"]).stdout


def test_exec_passes_exit_code_input_and_environment(lab_host: Host) -> None:
    script = 'read line; echo "$line $WORD"; exit 7'
    done = lab_host.exec(["sh", "-c", script], stdin="in\n", environ={"WORD": "w"}, check=False)
    assert (done.returncode, done.stdout) == (7, "in w\n")
    with pytest.raises(LinkwrightError, match="exit 1"):
        lab_host.exec(["false"])


def test_what_a_host_keeps_over_restart_and_crash(lab_host: Host) -> None:
    lab_host.exec(["sh", "-c", "echo a >/etc/linkwright/kept; echo b >/var/kept; touch /tmp/lost /run/lost"])
    seen = {boot_id(lab_host)}
    for event in (lab_host.restart, lab_host.crash):
        status = event()
        assert status["boot_id"] == boot_id(lab_host)
        assert status["boot_id"] not in seen
        seen.add(status["boot_id"])
        kept = lab_host.exec(["cat", "/etc/linkwright/kept", "/var/kept"]).stdout
        assert kept == "a\nb\n"
        assert lab_host.exec(["ls", "/tmp/lost"], check=False).returncode != 0
        assert lab_host.exec(["ls", "/run/lost"], check=False).returncode != 0


def test_a_crash_loses_what_was_not_synced_and_a_restart_does_not(lab_host: Host) -> None:
    script = (
        "cd /var/lib/linkwright; mkdir -p deep; echo one >deep/synced; sync deep/synced;"
        "echo two >>deep/synced; echo three >never"
    )
    lab_host.exec(["sh", "-c", script])
    lab_host.crash()
    assert lab_host.exec(["cat", "/var/lib/linkwright/deep/synced"]).stdout == "one\n"
    assert lab_host.exec(["cat", "/var/lib/linkwright/never"], check=False).returncode != 0
    lab_host.exec(["sh", "-c", script])
    lab_host.restart()
    assert lab_host.exec(["cat", "/var/lib/linkwright/deep/synced"]).stdout == "one\ntwo\n"
    assert lab_host.exec(["cat", "/var/lib/linkwright/never"]).stdout == "three\n"


def test_the_host_itself_asks_for_a_restart(lab_host: Host) -> None:
    boots, old = lab_host.status()["boots"], boot_id(lab_host)
    # Its exit code tells nothing: the shell may be stopped with everything else before it ends by itself.
    lab_host.exec(["sh", "-c", "echo unsynced >/var/lib/linkwright/word; $LINKWRIGHT_RESTART"], check=False)
    lab_host.wait_ready(boots + 1)
    assert boot_id(lab_host) != old
    assert lab_host.exec(["cat", "/var/lib/linkwright/word"]).stdout == "unsynced\n"


def test_that_restart_can_be_told_to_be_a_crash(lab_host: Host) -> None:
    boots = lab_host.status()["boots"]
    lab_host.crash_on_next_restart()
    lab_host.exec(["sh", "-c", "echo x >/var/lib/linkwright/gone; $LINKWRIGHT_RESTART; sleep 5"], check=False)
    lab_host.wait_ready(boots + 1)
    assert lab_host.exec(["ls", "/var/lib/linkwright/gone"], check=False).returncode != 0


def test_a_crashed_host_can_stay_off(lab_host: Host) -> None:
    assert lab_host.crash(back=False)["state"] == "off"
    with pytest.raises(Vanished, match="it is off"):
        lab_host.exec(["true"])
    assert lab_host.boot()["state"] == "running"
    assert lab_host.exec(["true"]).returncode == 0


def test_a_host_can_be_stopped_while_it_starts(start_host: StartHost, lab: Lab) -> None:
    host = start_host("gpu-09", adapters=[])
    host.exec(["/run/hostlab/restart"], check=False)
    begun = time.monotonic()
    assert lab.down("gpu-09", erase=True)
    assert time.monotonic() - begun < 60, "it was not stopped but killed when the time for that was over"


def test_a_killed_supervisor_takes_its_host_with_it(start_host: StartHost, lab: Lab) -> None:
    host = start_host("gpu-03")
    status = host.status()
    ends = [os.pidfd_open(status["supervisor_pid"]), os.pidfd_open(status["init_pid"])]
    signal.pidfd_send_signal(ends[0], signal.SIGKILL)
    for end in ends:
        assert select.select([end], [], [], 60)[0], "supervisor or process 1 of the host is still there"
        os.close(end)
    assert not host.is_up
    with pytest.raises(Vanished):
        host.status()
    assert_machine_is_clean(lab)
    again = start_host("gpu-03")
    assert again.status()["boots"] == 1


def test_up_twice_says_so(lab_host: Host, lab: Lab, lab_spec: dict[str, Any]) -> None:
    with pytest.raises(LinkwrightError) as caught:
        lab.up(lab_spec)
    assert caught.value.code == "host-already-up"


def test_two_hosts_side_by_side(lab_host: Host, start_host: StartHost) -> None:
    other = start_host("gpu-04", adapters=[])
    assert other.exec(["hostname"]).stdout == "gpu-04\n"
    assert lab_host.exec(["hostname"]).stdout == "gpu-01\n"
    assert boot_id(other) != boot_id(lab_host)
    if len(os.sched_getaffinity(0)) > 1 and len(cpu.supervisors()) == 2:
        assert other.status()["cpu"] != lab_host.status()["cpu"]


def test_a_host_that_cannot_start_says_why(lab: Lab, lab_spec: dict[str, Any]) -> None:
    broken = lab_spec | {"name": "gpu-05"}
    port = {"fabric": "office", "host": {"addresses": ["not-an-address"]}}
    broken["adapters"] = [{"persona": "cx6lx-eth", "address": "0000:81:00", "ports": [port]}]
    with pytest.raises(LinkwrightError, match="not-an-address"):
        lab.up(broken)
    assert not lab.host("gpu-05").is_up
    lab.down("gpu-05", erase=True)
