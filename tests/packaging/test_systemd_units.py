"""The units as systemd reads them, and the promises that no verifier checks: order, bounds, and that stopping the
daemon kills no firmware tool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
UNITS = sorted((PACKAGING / "systemd").glob("*.service"))


class Unit:
    """``After=`` may stand several times; all values of a key are joined by blanks."""

    def __init__(self, name: str) -> None:
        self.values: dict[str, str] = {}
        for line in (PACKAGING / "systemd" / name).read_text().splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                self.values[key] = f"{self.values[key]} {value}" if key in self.values else value

    def words(self, key: str) -> set[str]:
        return set(self.values.get(key, "").split())


def test_systemd_verifies_the_units(tmp_path: Path) -> None:
    """``ExecStart`` is the installed package's path: a copy of each unit points at one that exists here."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    program = tmp_path / "linkwright"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for unit in UNITS:
        text = unit.read_text()
        assert "ExecStart=/usr/bin/linkwright " in text
        (tmp_path / unit.name).write_text(text.replace("/usr/bin/linkwright", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / unit.name) for unit in UNITS)],
        capture_output=True,
        text=True,
    )
    # Units of the machine that verify pulls in may have remarks of their own.
    ours = [line for line in done.stderr.splitlines() if "linkwright" in line]
    assert (done.returncode, ours) == (0, [])


def test_the_boot_phase_comes_before_everything_that_wants_interfaces() -> None:
    boot = Unit("linkwright-boot.service")
    assert boot.values["Type"] == "oneshot"
    assert boot.values["RemainAfterExit"] == "yes"
    assert boot.values["ExecStart"].endswith(" agent --once --boot-phase")
    assert boot.words("Before") >= {
        "linkwright.service",
        "podman-restart.service",
        "docker.service",
        "libvirtd.service",
        "kubelet.service",
    }
    assert not any("udev-settle" in word for key in ("After", "Wants", "Requires") for word in boot.words(key))


def test_a_boot_never_waits_without_end() -> None:
    limit = int(Unit("linkwright-boot.service").values["TimeoutStartSec"])
    assert 90 < limit <= 300, "longer than the command's own limit of 90 s, so that it can end by itself"


def test_the_daemon_says_when_it_is_ready_and_comes_back() -> None:
    unit = Unit("linkwright.service")
    assert unit.values["Type"] == "notify"
    assert unit.values["Restart"] == "on-failure"
    assert "linkwright-boot.service" in unit.words("After")


@pytest.mark.parametrize("name", [unit.name for unit in UNITS])
def test_stopping_kills_no_firmware_tool_and_frees_no_lock(name: str) -> None:
    unit = Unit(name)
    assert unit.values["KillMode"] == "process"
    assert unit.values["RuntimeDirectory"] == "linkwright"
    assert unit.values["RuntimeDirectoryPreserve"] == "yes", "the locks lie there"
    assert unit.values["StateDirectory"] == "linkwright"


def test_the_group_of_the_socket_is_made() -> None:
    lines = (PACKAGING / "sysusers.d" / "linkwright.conf").read_text().splitlines()
    assert "g linkwright -" in lines
