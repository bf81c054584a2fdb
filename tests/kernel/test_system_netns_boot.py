"""The value that says where the host is; namespaces by path; this boot."""

from __future__ import annotations

import os
from pathlib import Path

import netkit
import pytest

from linkwright.kernel import boot, netns
from linkwright.kernel.netlink.transport import KernelTransport, NoTransport, SocketTransport
from linkwright.kernel.system import System
from linkwright.model.errors import InvalidInput, Refused, Vanished


def test_a_real_host_by_default() -> None:
    system = System.from_environment({})
    assert (system.sys, system.run, system.etc) == (Path("/sys"), Path("/run/linkwright"), Path("/etc/linkwright"))
    assert isinstance(system.netlink, KernelTransport)
    assert (system.restart_command, system.captured) == (None, False)


def test_an_emulated_host_by_environment() -> None:
    system = System.from_environment(
        {
            "LINKWRIGHT_NETLINK": "/run/x.sock",
            "LINKWRIGHT_RESTART": "/run/restart 'now please'",
            "LINKWRIGHT_ETC": "/e",
            "LINKWRIGHT_STATE": "/s",
            "LINKWRIGHT_RUN": "/r",
        }
    )
    assert isinstance(system.netlink, SocketTransport)
    assert system.netlink.path == "/run/x.sock"
    assert system.restart_command == ("/run/restart", "now please")
    assert (system.etc, system.state, system.run) == (Path("/e"), Path("/s"), Path("/r"))


def test_a_captured_tree(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    for system in (
        System.from_environment({"LINKWRIGHT_SYSROOT": str(tmp_path)}),
        System.from_environment({"LINKWRIGHT_SYSROOT": "/nowhere"}, sysroot=str(tmp_path)),
    ):
        assert system.captured
        assert isinstance(system.netlink, NoTransport)
        assert (system.sys, system.proc, system.dev) == (tmp_path / "sys", tmp_path / "proc", tmp_path / "dev")
        assert boot.boot_id(system) == ""
        assert boot.uptime_s(system) is None
        netns.require_host_namespaces(system)


def test_wrong_environments_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no directory sys/"):
        System.from_environment({"LINKWRIGHT_SYSROOT": str(tmp_path)})
    with pytest.raises(InvalidInput, match="LINKWRIGHT_RESTART"):
        System.from_environment({"LINKWRIGHT_RESTART": "'"})


def test_boot() -> None:
    system = System()
    assert len(boot.boot_id(system)) == 36
    assert (boot.uptime_s(system) or 0) > 0
    assert boot.kernel_release(system) == os.uname().release
    assert boot.host_name(system) == os.uname().nodename


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")
def test_namespaces_by_path_and_pid() -> None:
    with netns.open_path("/proc/self/ns/net") as own:
        assert netns.is_own(own)
        assert netns.inode(own) == netns.own_inode() == netns.inode_of_path("/proc/self/ns/net")
    with netkit.new_netns() as fd, netns.open_path(f"/proc/self/fd/{fd}") as again:
        assert netns.inode(again) == netns.inode(fd)
        assert not netns.is_own(again)
    with netns.open_path(f"/proc/{os.getpid()}/ns/net"):
        pass
    fd = netns.open_pid(os.getpid())
    os.close(fd)


def test_what_is_no_namespace_is_refused(tmp_path: Path) -> None:
    leftover = tmp_path / "gone"
    leftover.touch()
    with pytest.raises(InvalidInput, match="not a network namespace"), netns.open_path(leftover):
        pass
    with pytest.raises(InvalidInput, match="not a network namespace"), netns.open_path("/proc/self/ns/uts"):
        pass
    with pytest.raises(Vanished), netns.open_path(tmp_path / "nothing"):
        pass
    with pytest.raises(Vanished):
        netns.open_pid(2**22 + 1)
    assert netns.inode_of_path(tmp_path / "nothing") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")
def test_a_process_in_a_container_is_refused(tmp_path: Path) -> None:
    with netkit.new_netns() as fd:
        other = tmp_path / "proc/1/ns/net"
        other.parent.mkdir(parents=True)
        other.symlink_to(f"/proc/self/fd/{fd}")
        with pytest.raises(Refused, match="pid 1") as caught:
            netns.require_host_namespaces(System(proc=tmp_path / "proc"))
        assert (caught.value.rule, caught.value.code) == (2, "not-in-host-namespaces")


def test_a_foreign_sysfs_is_refused(tmp_path: Path) -> None:
    """The links that the kernel tells and those that sysfs shows have nothing in common."""
    net = tmp_path / "sys/class/net"
    net.mkdir(parents=True)
    (net / "eth9").mkdir()
    system = System(sys=tmp_path / "sys", proc=tmp_path / "proc")
    if not [link for link in os.listdir("/sys/class/net") if link != "lo"]:  # noqa: PTH208
        pytest.skip("this namespace has no link but lo")
    with pytest.raises(Refused, match="another network namespace"):
        netns.require_host_namespaces(system)
