"""Real netdevs behind functions: made, found, moved by anybody, destroyed; carrier and traffic by the kernel."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_rig import ETH_PF, IB_PF, IB_UNCABLED, Rig, Space, eventually, rig, settle

from hostlab.nl_kernel import in_netns
from linkwright.kernel.netlink.codec import attr

pytestmark = pytest.mark.lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        yield found


def test_each_port_of_the_booted_machine_has_a_netdev_named_for_its_mode(lab: Rig) -> None:
    links = {link.name: link for link in lab.wire.host_links()}
    assert set(links) == {"lo", "ibp59s0f0", "ibp59s0f1", "enp129s0np0"}
    ethernet, infiniband = links["enp129s0np0"], links["ibp59s0f0"]
    assert (ethernet.function, ethernet.link_type, ethernet.mtu) == (ETH_PF, 1, 1500)
    assert ethernet.address == lab.fn(ETH_PF).mac
    assert (infiniband.function, infiniband.link_type, infiniband.mtu) == (IB_PF, 32, 2044)
    assert infiniband.address.endswith(":fe:80:00:00:00:00:00:00:" + lab.fn(IB_PF).port_guid)
    assert infiniband.broadcast.startswith("00:ff:ff:ff:ff:12:40:1b")
    assert links["lo"].function is None
    assert infiniband.flags & 1 == 0


def test_carrier_needs_a_fabric_of_the_right_mode_and_an_interface_that_is_up(lab: Rig) -> None:
    cabled, uncabled = lab.fn(IB_PF), lab.fn(IB_UNCABLED)
    assert not lab.wire.carrier(cabled)
    lab.host.ip("link", "set", "ibp59s0f0", "up")
    lab.host.ip("link", "set", "ibp59s0f1", "up")
    assert lab.wire.carrier(cabled)
    assert not lab.wire.carrier(uncabled)
    links = lab.wire.host_links
    link = eventually(lambda: next((link for link in links() if link.name == "ibp59s0f0" and link.carrier), None))
    assert link.operstate == "up"
    cabled.port.link_broken = True
    lab.wire.refresh(cabled)
    assert not lab.wire.carrier(cabled)


def test_functions_of_one_fabric_reach_each_other_and_those_of_another_do_not(lab: Rig) -> None:
    lab.machine.set_numvfs(lab.fn(IB_PF), 2)
    spaces = [lab.container() for _ in range(3)]
    names = [lab.wire.host_name(vf) for vf in lab.fn(IB_PF).port.vfs] + ["enp129s0np0"]
    for number, (space, name) in enumerate(zip(spaces, names, strict=True), 1):
        lab.host.ip("link", "set", str(name), "netns", str(space.pid), "name", "net1")
        space.ip("link", "set", "net1", "up")
        space.ip("addr", "add", f"10.9.0.{number}/24", "dev", "net1")
    inbox = in_netns(spaces[1].fd, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with inbox:
        inbox.bind(("10.9.0.2", 7000))
        inbox.settimeout(20)
        _send(spaces[0], "10.9.0.2")
        assert inbox.recv(100) == b"hello"
        stranger = spaces[2].ip("neigh", "show")
        assert "lladdr" not in stranger


def _send(space: Space, address: str) -> None:
    def work() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.sendto(b"hello", (address, 7000))

    in_netns(space.fd, work)


def test_a_move_by_any_program_is_seen_at_once_and_back_again(lab: Rig) -> None:
    fn, space = lab.fn(ETH_PF), lab.container()
    lab.host.ip("link", "set", "enp129s0np0", "netns", str(space.pid))
    assert lab.wire.host_name(fn) is None
    assert "enp129s0np0" not in [link.name for link in lab.wire.host_links()]
    assert "enp129s0np0" in space.ip("link")
    settle(lab.wire)
    device = lab.wire.device_of(fn)
    assert device is not None
    assert device.space is not None
    assert device.space.inode == space.inode
    space.ip("link", "set", "enp129s0np0", "netns", str(lab.host.pid), "name", "back0")
    assert lab.wire.host_name(fn) == "back0"
    assert [link.function for link in lab.wire.host_links() if link.name == "back0"] == [ETH_PF]


def test_a_rename_shows_in_the_next_listing(lab: Rig) -> None:
    lab.host.ip("link", "set", "enp129s0np0", "name", "uplink", "mtu", "9000")
    link = next(link for link in lab.wire.host_links() if link.function == ETH_PF)
    assert (link.name, link.mtu) == ("uplink", 9000)


def test_an_alias_shows_though_the_kernel_is_silent_about_it_while_a_link_is_down(lab: Rig) -> None:
    lab.change(lab.ifindex(ETH_PF), attr(20, b"of trainer-0"))
    assert next(link for link in lab.wire.host_links() if link.function == ETH_PF).alias == "of trainer-0"


def test_counters_are_read_when_somebody_looks(lab: Rig) -> None:
    link = next(link for link in lab.wire.host_links() if link.name == "lo")
    lab.host.ip("link", "set", "lo", "up")
    before = link.statistics["rx_packets"]
    _send(lab.host, "127.0.0.1")
    assert link.statistics["rx_packets"] > before
    assert "tx_bytes" in set(link.statistics)


def test_unbind_destroys_the_netdev_inside_a_container(lab: Rig) -> None:
    fn, space = lab.fn(IB_PF), lab.container()
    lab.host.ip("link", "set", "ibp59s0f0", "netns", str(space.pid), "name", "net1")
    lab.machine.unbind(fn, "mlx5_core")
    assert "net1" not in space.ip("link")
    assert not lab.wire.carrier(fn)
    lab.machine.bind(fn, "mlx5_core")
    assert lab.wire.host_name(fn) == "ibp59s0f0"


def test_a_taken_name_leaves_the_kernels_own(lab: Rig) -> None:
    fn = lab.fn(IB_PF)
    lab.machine.unbind(fn, "mlx5_core")
    lab.host.ip("link", "add", "ibp59s0f0", "type", "bridge")
    lab.machine.bind(fn, "mlx5_core")
    assert lab.wire.host_name(fn) == "ib0"


def test_a_netdev_that_somebody_deletes_comes_back_since_cards_do_not_vanish(lab: Rig) -> None:
    fn = lab.fn(ETH_PF)
    lab.host.ip("link", "del", "enp129s0np0")
    assert lab.wire.host_name(fn) == "enp129s0np0"
    assert next(link for link in lab.wire.host_links() if link.function == ETH_PF).address == fn.mac


def test_vf_link_state_plugs_and_unplugs_a_vf(lab: Rig) -> None:
    lab.machine.set_numvfs(lab.fn(IB_UNCABLED), 1)
    vf = lab.fn(IB_UNCABLED).port.vfs[0]
    lab.host.ip("link", "set", str(lab.wire.host_name(vf)), "up")
    assert not lab.wire.carrier(vf)
    vf.admin.link_state = 1
    lab.wire.refresh(vf)
    assert lab.wire.carrier(vf)


def test_the_wire_starts_again_for_the_hosts_next_life(lab: Rig) -> None:
    lab.machine.power_off()
    assert [link.name for link in lab.wire.host_links()] == ["lo"]
    own = Space()
    lab.resources.callback(own.end)
    lab.wire.stop()
    lab.wire.stop()
    again = lab.container()
    in_netns(own.fd, lambda: lab.wire.start(again.fd, again.pid))
    lab.machine.boot()
    assert lab.wire.host_name(lab.fn(ETH_PF)) == "enp129s0np0"
    assert "enp129s0np0" in again.ip("link")
