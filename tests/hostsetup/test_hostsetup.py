"""The files that keep network managers off: written once, shown whole, taken away without a trace."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from linkwright import hostsetup
from linkwright.hostsetup import rules
from linkwright.hostsetup.setup import IFUPDOWN, LINK, NETWORK, UDEV
from linkwright.model.errors import NeedsPerson, Refused
from linkwright.model.inventory import Function, Netdev, Port
from linkwright.model.values import PciAddress, PortId


def port(pf: str, name: str) -> Port:
    netdev = Netdev(name=name, ifindex=3, link_type=1, address="", mtu=1500)
    return Port(id=PortId(f"{pf}/1"), number=1, pf=Function(address=PciAddress(pf), netdev=netdev))


PORTS = [port("0000:3b:00.1", "ibp59s0f1"), port("0000:3b:00.0", "enp59s0f0np0")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc/systemd").mkdir(parents=True)
    (tmp_path / "etc/network").mkdir()
    (tmp_path / "etc/default").mkdir()
    (tmp_path / "etc/network/interfaces").write_text("auto lo\n")
    (tmp_path / IFUPDOWN).write_text('EXCLUDE_INTERFACES="wlan*"\n')
    return tmp_path


def snapshot(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): p.read_text() for p in root.rglob("*") if p.is_file()}


def test_written_once_and_undone_without_a_trace(root: Path) -> None:
    before = snapshot(root)
    changes = hostsetup.to_write(root, PORTS)
    assert snapshot(root) == before  # shown first
    assert [c.path for c in changes] == [f"/{name}" for name in (UDEV, LINK, NETWORK, IFUPDOWN)]
    assert hostsetup.apply(root, changes) == []
    assert hostsetup.to_write(root, PORTS) == []
    hostsetup.apply(root, hostsetup.to_remove(root))
    assert snapshot(root) == before
    assert hostsetup.to_remove(root) == []


def test_the_rule_marks_pfs_and_their_vfs(root: Path) -> None:
    hostsetup.apply(root, hostsetup.to_write(root, PORTS))
    text = (root / UDEV).read_text()
    assert 'KERNELS=="0000:3b:00.0", ENV{LINKWRIGHT}="1"' in text
    assert 'ATTR{device/physfn/uevent}=="*PCI_SLOT_NAME=0000:3b:00.1*", ENV{LINKWRIGHT}="1"' in text
    assert 'ENV{NM_UNMANAGED}="1", ENV{ID_NET_MANAGED_BY}="linkwright"' in text
    assert text.index("3b:00.0") < text.index("3b:00.1")
    assert "Unmanaged=yes" in (root / NETWORK).read_text()
    assert "MACAddressPolicy=none" in (root / LINK).read_text()


def test_ifupdown_keeps_what_was_excluded_before_and_knows_both_modes_names(root: Path) -> None:
    hostsetup.apply(root, hostsetup.to_write(root, PORTS))
    script = f'. "{root / IFUPDOWN}"; set -f; echo $EXCLUDE_INTERFACES'
    words = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert words == ["wlan*", "*p59s0f0*", "*p59s0f1*"]


def test_names_that_are_not_by_path_are_matched_as_they_are() -> None:
    assert rules.patterns(["rail0", "enp1s0", "ibP1p2s0"]) == ["rail0*", "*p1s0*", "*P1p2s0*"]


def test_other_ports_after_a_change_of_host_yaml(root: Path) -> None:
    hostsetup.apply(root, hostsetup.to_write(root, PORTS))
    again = hostsetup.to_write(root, PORTS[1:])
    assert [c.path for c in again] == [f"/{UDEV}", f"/{IFUPDOWN}"]
    hostsetup.apply(root, again)
    assert "3b:00.1" not in (root / UDEV).read_text()
    hostsetup.apply(root, hostsetup.to_write(root, []))
    assert hostsetup.to_remove(root) == []


def test_a_host_without_ifupdown_and_systemd_gets_the_rule_only(tmp_path: Path) -> None:
    assert [c.path for c in hostsetup.to_write(tmp_path, PORTS)] == [f"/{UDEV}"]


def test_somebody_else_s_file_is_not_overwritten(root: Path) -> None:
    (root / UDEV).parent.mkdir(parents=True)
    (root / UDEV).write_text("# mine\n")
    with pytest.raises(Refused, match="not overwritten") as caught:
        hostsetup.to_write(root, PORTS)
    assert caught.value.code == "file-not-ours"
    assert hostsetup.to_remove(root) == []


def test_a_place_that_cannot_be_written_is_said(root: Path) -> None:
    changes = hostsetup.to_write(root, PORTS)
    (root / "etc/udev").write_text("a file where a directory should be")
    with pytest.raises(NeedsPerson) as caught:
        hostsetup.apply(root, changes)
    assert caught.value.code == "host-file-unwritable"
