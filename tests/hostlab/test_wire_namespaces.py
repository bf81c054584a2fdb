"""When a container's namespace dies the same device returns, late, by the kernel's rules; RDMA devices too."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_rig import ETH_PF, IB_PF, Rig, Space, eventually, rig, settle

from hostlab.namespaces import mounted_namespaces

pytestmark = pytest.mark.lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        yield found


def give(lab: Rig, address: str, space: Space, name: str) -> None:
    """As an agent does it: through the server, with a descriptor of the namespace."""
    from linkwright.kernel.netlink.codec import attr, string

    lab.change(lab.ifindex(address), attr(3, string(name)), to=space)


def back(lab: Rig, address: str) -> str:
    return eventually(lambda: lab.wire.host_name(lab.fn(address)))


def test_the_same_device_returns_down_and_without_addresses(lab: Rig) -> None:
    space = lab.container()
    give(lab, ETH_PF, space, "net1")
    space.ip("link", "set", "net1", "mtu", "9000", "up", "alias", "of trainer-0")
    space.ip("addr", "add", "10.9.0.1/24", "dev", "net1")
    device = lab.wire.device_of(lab.fn(ETH_PF))
    space.end()
    assert back(lab, ETH_PF) == "net1"
    assert lab.wire.device_of(lab.fn(ETH_PF)) is device
    shown = lab.host.ip("link", "show", "dev", "net1") + lab.host.ip("addr", "show", "dev", "net1")
    assert lab.fn(ETH_PF).mac in shown
    assert "mtu 9000" in shown
    assert "of trainer-0" in shown
    assert "10.9.0.1" not in shown
    assert "UP" not in shown.split("\n")[0].replace("UPDOWN", "")


def test_a_taken_name_becomes_dev_and_index_and_taken_altnames_are_dropped(lab: Rig) -> None:
    space = lab.container()
    give(lab, ETH_PF, space, "net1")
    space.ip("link", "property", "add", "dev", "net1", "altname", "rail0")
    space.ip("link", "property", "add", "dev", "net1", "altname", "mine")
    lab.host.ip("link", "add", "net1", "type", "bridge")
    lab.host.ip("link", "property", "add", "dev", "net1", "altname", "rail0")
    index = lab.ifindex(ETH_PF)
    space.end()
    name = back(lab, ETH_PF)
    assert name == f"dev{index}"
    shown = lab.host.ip("link", "show", "dev", name)
    assert "altname mine" in shown
    assert "altname rail0" not in shown


def test_when_dev_and_index_is_taken_too_the_first_free_number_is_used(lab: Rig) -> None:
    space = lab.container()
    give(lab, ETH_PF, space, "net1")
    for name in ("net1", f"dev{lab.ifindex(ETH_PF)}", "dev0"):
        lab.host.ip("link", "add", name, "type", "bridge")
    space.end()
    assert back(lab, ETH_PF) == "dev1"


def test_a_second_process_keeps_the_namespace_when_the_first_ends(lab: Rig) -> None:
    space = lab.container()
    second = subprocess.Popen(["nsenter", f"--net=/proc/{space.pid}/ns/net", "sh", "-c", "echo; exec sleep 1000"],
                              stdout=subprocess.PIPE)  # fmt: skip
    assert second.stdout is not None
    second.stdout.read(1)
    give(lab, ETH_PF, space, "net1")
    space.end()
    settle(lab.wire)
    assert lab.wire.host_name(lab.fn(ETH_PF)) is None
    second.kill()
    second.wait()
    second.stdout.close()
    assert back(lab, ETH_PF) == "net1"


def test_a_mounted_namespace_lives_without_processes_until_it_is_unmounted(lab: Rig, tmp_path: Path) -> None:
    space, place = lab.container(), tmp_path / "netns"
    place.touch()
    subprocess.run(["mount", "--bind", f"/proc/{space.pid}/ns/net", str(place)], check=True)
    try:
        give(lab, ETH_PF, space, "net1")
        space.end()
        settle(lab.wire)
        assert lab.wire.host_name(lab.fn(ETH_PF)) is None
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert back(lab, ETH_PF) == "net1"


def test_a_namespace_entered_by_somebody_elses_move_is_held_too(lab: Rig) -> None:
    space = lab.container()
    lab.host.ip("link", "set", "enp129s0np0", "netns", str(space.pid), "name", "net1")
    settle(lab.wire)
    device = lab.wire.device_of(lab.fn(ETH_PF))
    space.end()
    assert back(lab, ETH_PF) == "net1"
    assert lab.wire.device_of(lab.fn(ETH_PF)) is device


def test_return_is_late_when_the_lab_says_so(tmp_path: Path) -> None:
    with rig(tmp_path, linger_s=3600) as lab:
        space = lab.container()
        give(lab, ETH_PF, space, "net1")
        space.end()
        settle(lab.wire)
        assert lab.wire.host_name(lab.fn(ETH_PF)) is None


def test_an_ipoib_netdev_alone_returns_as_it_is(lab: Rig) -> None:
    space = lab.container()
    give(lab, IB_PF, space, "net1")
    device = lab.wire.device_of(lab.fn(IB_PF))
    space.end()
    assert back(lab, IB_PF) == "net1"
    assert lab.wire.device_of(lab.fn(IB_PF)) is device


def test_an_rdma_device_returns_and_its_ipoib_netdev_is_made_anew(lab: Rig) -> None:
    fn, space = lab.fn(IB_PF), lab.container()
    with lab.wire.holding(space.fd):
        lab.machine.move_rdma(fn, space.inode)
    give(lab, IB_PF, space, "net1")
    device = lab.wire.device_of(fn)
    space.end()
    assert back(lab, IB_PF) == "ibp59s0f0"
    assert fn.rdma_netns is None
    assert lab.wire.device_of(fn) is not device


def test_namespaces_are_let_go_when_nothing_of_the_lab_is_in_them(lab: Rig) -> None:
    space = lab.container()
    give(lab, ETH_PF, space, "net1")
    assert space.inode in lab.wire._places.spaces
    space.ip("link", "set", "net1", "netns", str(lab.host.pid))
    with lab.wire.holding(space.fd):
        pass
    assert space.inode not in lab.wire._places.spaces


def test_reading_a_mount_table() -> None:
    table = (
        "36 35 98:0 / /mnt rw,noatime shared:1 - ext3 /dev/root rw\n"
        "90 35 0:4 net:[4026532281] /run/netns/a\\040b rw shared:2 - nsfs nsfs rw\n"
        "91 35 0:4 mnt:[4026532282] /run/mnt rw - nsfs nsfs rw\n"
    )
    assert mounted_namespaces(table) == {4026532281: "/run/netns/a b"}
