"""Discovery and VFs on an emulated host's live sysfs and netlink, without its processes.

The tree is served by FUSE and answers as the kernel does; the host's namespace is a child's, so requests without
a namespace are sent there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from linkwright.discovery import observe
from linkwright.kernel import boot, sriov
from linkwright.kernel.links import Links
from linkwright.kernel.netlink.codec import Message
from linkwright.kernel.netlink.transport import Subscription, Transport
from linkwright.kernel.rdma import Rdma
from linkwright.kernel.system import System
from linkwright.model.documents import HostConfig
from linkwright.model.errors import Busy, InvalidInput
from linkwright.model.inventory import Function, Inventory, Port
from linkwright.model.records import Attachment, AttachmentState
from linkwright.model.values import LinkMode

sys.path.insert(0, str(Path(__file__).parent.parent / "hostlab"))
import wire_rig

fuse = pytest.importorskip("hostlab.fuse")
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="needs root and FUSE"),
]

GUID = "02:00:00:00:00:00:00:"


@dataclass
class FromTheHost:
    """Requests without a namespace go to the host's."""

    through: Transport
    home: int

    def request(
        self, family: int, messages: bytes, *, netns: int | None = None, passed_fd: int | None = None
    ) -> list[Message]:
        where = self.home if netns is None else netns
        return self.through.request(family, messages, netns=where, passed_fd=passed_fd)

    def subscribe(self, family: int, groups: int, *, netns: int | None = None) -> Subscription:
        return self.through.subscribe(family, groups, netns=self.home if netns is None else netns)


@dataclass
class Host:
    rig: wire_rig.Rig
    system: System

    def look(self, *attachments: Attachment) -> Inventory:
        return observe(self.system, None, HostConfig(), attachments)

    def port(self, *attachments: Attachment) -> Port:
        """Port 1 of the dual-port card: InfiniBand, on a fabric with a subnet manager."""
        return self.look(*attachments).adapters[0].ports[0]

    def vf(self, number: int, *attachments: Attachment) -> Function:
        return self.port(*attachments).vfs[number]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    from hostlab.sysfs import SysfsTree

    with wire_rig.rig(tmp_path) as rig:
        mount = fuse.start_server(SysfsTree(rig.machine), tmp_path / "sys")
        try:
            yield Host(rig, System(sys=tmp_path / "sys", netlink=FromTheHost(rig.transport, rig.host.fd)))
        finally:
            mount.close()


def test_cards_ports_and_modes(host: Host) -> None:
    dual, single = host.look().adapters
    assert dual.id == dual.identity.system_image_guid
    assert (dual.identity.psid, dual.identity.part_number) == ("MT_0000000224", "MCX653106A-ECAT")
    first, second = dual.ports
    assert (first.number, first.observed_mode, first.link) == (1, LinkMode.INFINIBAND, "up 100G")
    assert (second.number, second.observed_mode, second.link) == (2, LinkMode.INFINIBAND, "polling")
    (ethernet,) = single.ports
    assert (ethernet.observed_mode, ethernet.link) == (LinkMode.ROCE, "down")
    assert ethernet.pf.netdev is not None
    Links(host.system.netlink).change(ethernet.pf.netdev.ifindex, up=True)
    assert host.look().adapters[1].ports[0].link.startswith("up ")
    assert all(f.holders == () for a in host.look().adapters for p in a.ports for f in p.functions)


def test_vfs_come_over_zero_and_bound(host: Host) -> None:
    pf = host.port().pf.address
    assert len(sriov.set_num_vfs(host.system, pf, 2)) == 2
    addresses = sriov.set_num_vfs(host.system, pf, 3)
    port = host.port()
    assert (port.num_vfs, tuple(vf.address for vf in port.vfs)) == (3, addresses)
    assert all(vf.driver == "mlx5_core" and vf.netdev is not None for vf in port.vfs)
    assert sriov.set_num_vfs(host.system, pf, 0) == ()
    with pytest.raises(InvalidInput, match="kernel offers"):
        sriov.set_num_vfs(host.system, pf, 1000)


def test_a_vf_takes_its_guids_when_it_is_bound_again(host: Host) -> None:
    port = host.port()
    (address,) = sriov.set_num_vfs(host.system, port.pf.address, 1)
    links = Links(host.system.netlink)
    assert port.pf.netdev is not None
    links.set_vf(port.pf.netdev.ifindex, 0, node_guid=GUID + "01", port_guid=GUID + "02", link_state=0)
    (kept,) = links.vf_info(port.pf.netdev.ifindex)
    assert (kept.node_guid, kept.port_guid) == (GUID + "01", GUID + "02")
    sriov.rebind(host.system, address)
    rdma = host.vf(0).rdma
    assert rdma is not None
    assert (rdma.node_guid, rdma.port_guid) == (GUID + "01", GUID + "02")


def test_a_guest_blocks_the_count_until_it_lets_go(host: Host) -> None:
    pf = host.port().pf.address
    (vf,) = sriov.set_num_vfs(host.system, pf, 1)
    sriov.unbind(host.system, vf)
    sriov.set_driver_override(host.system, vf, "vfio-pci")
    sriov.probe(host.system, vf, want_net=False)
    assert [h.kind for h in host.vf(0).holders] == ["vfio"]
    function = host.rig.fn(vf)
    host.rig.machine.hold_vfio(function, "guest db-2")
    try:
        with pytest.raises(Busy) as caught:
            sriov.set_num_vfs(host.system, pf, 0, write_limit_s=0.3)
        assert caught.value.code == "sysfs-write-blocked"
        with pytest.raises(Busy, match="an earlier write"):
            sriov.set_num_vfs(host.system, pf, 0)
    finally:
        host.rig.machine.release_vfio(function)
    wire_rig.eventually(lambda: sriov.num_vfs(host.system, pf) == 0)


def test_a_function_in_a_container_and_back(host: Host) -> None:
    port = host.port()
    (address,) = sriov.set_num_vfs(host.system, port.pf.address, 1)
    links, rdma = Links(host.system.netlink), Rdma(host.system.netlink)
    container = host.rig.container()
    function = host.vf(0)
    assert function.rdma is not None
    device = rdma.device(function.rdma.name)
    assert device is not None
    rdma.move(device.index, container.fd)
    link = next(link for link in links.dump() if link.parent == address)  # IPoIB is made anew by the move
    moved = links.change(link.ifindex, move_to=container.fd, name="net1", up=True)
    assert (moved.name, moved.parent, moved.link_type) == ("net1", address, 32)

    record = Attachment(
        target="trainer-0",
        interface="net1",
        policy="training",
        generation=1,
        port=port.id,
        vf_index=0,
        state=AttachmentState.ATTACHED,
        netns_inode=container.inode,
        boot_id=boot.boot_id(host.system),
    )
    stranger, ours = host.vf(0), host.vf(0, record)
    assert stranger.net_elsewhere
    assert (stranger.netdev, stranger.rdma) == (None, None)
    assert [(h.kind, h.ours, h.pid) for h in stranger.holders] == [("netns", False, container.pid)]
    assert [(h.kind, h.ours, h.target) for h in ours.holders] == [("target", True, "trainer-0")]

    links.change(moved.ifindex, container.fd, move_to=host.rig.host.fd, name=link.name)
    rdma.move(device.index, host.rig.host.fd, netns=container.fd)
    home = host.vf(0)
    assert (home.net_elsewhere, home.holders) == (False, ())
    assert home.rdma is not None
    assert home.rdma.name == function.rdma.name
