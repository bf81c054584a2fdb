"""``linkwright lab`` as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hostlab.lab import Host, Lab

pytestmark = pytest.mark.lab


def run(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("linkwright")), "lab", *arguments]
    return subprocess.run(
        command,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LINKWRIGHT_LAB": str(lab.dirs.run.parent)},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_list_shows_hosts_and_adapters(lab: Lab, lab_host: Host) -> None:
    lines = run(lab, "list").stdout.splitlines()
    assert lines[0].split() == ["HOST", "STATE", "BOOT", "AGENT", "CPU", "UP", "SINCE"]
    assert any(line.startswith("gpu-01  running") for line in lines)
    assert any("0000:3b:00  cx6-vpi-dual" in line for line in lines)
    hosts = json.loads(run(lab, "list", "-o", "json").stdout)
    assert [host["boot_id"] for host in hosts if host["name"] == "gpu-01"] == [lab_host.status()["boot_id"]]


def test_up_of_a_host_that_is_up_says_so_and_succeeds(lab: Lab, lab_host: Host) -> None:
    done = run(lab, "up")
    assert done.returncode == 0
    assert "gpu-01 is up already" in done.stdout


def test_exec_gives_output_and_exit_code(lab: Lab, lab_host: Host) -> None:
    done = run(lab, "exec", "gpu-01", "--", "sh", "-c", "hostname; exit 5")
    assert (done.stdout, done.returncode) == ("gpu-01\n", 5)


def test_a_host_that_is_not_there(lab: Lab, lab_host: Host) -> None:
    done = run(lab, "exec", "gpu-99", "--", "true")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: gpu-99: is not up")
    assert "gpu-01" in done.stderr


def test_crash_and_log(lab: Lab, lab_host: Host) -> None:
    before = lab_host.status()["boot_id"]
    done = run(lab, "crash", "gpu-01", "-o", "json")
    assert json.loads(done.stdout)["boot_id"] != before
    assert "ready" in run(lab, "log", "gpu-01", "--supervisor").stdout


def test_personas_and_faults_are_listed(lab: Lab) -> None:
    text = run(lab, "personas").stdout
    assert "cx6-vpi-dual" in text
    assert "subnet_manager" in text
