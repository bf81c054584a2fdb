"""Who holds a function: real namespaces and processes, real veth pairs that play the functions' netdevs.

A veth has no PCI device behind it; ``Planted`` adds the address to what the kernel says of it, and puts a
namespace made for the test in the place of the host's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sysfs_tree
from sysfs_tree import Tree

from linkwright.discovery import observe
from linkwright.kernel.links import Links
from linkwright.kernel.netlink import codec, constants
from linkwright.kernel.netlink.codec import Message, attr, nest, string, u8, u32, u64
from linkwright.kernel.netlink.transport import KernelTransport, Subscription, in_netns
from linkwright.model.documents import HostConfig
from linkwright.model.inventory import Function, Holder, Inventory
from linkwright.model.records import Attachment, AttachmentState
from linkwright.model.values import LinkMode, PortId

sys.path.insert(0, str(Path(__file__).parent.parent / "kernel"))
import netkit

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

PF, VF = "0000:3b:00.0", "0000:3b:00.2"
LINK_HEADER = 16


class Planted:
    """The kernel, with ``home`` as the host's namespace and PCI devices behind links.

    ``parents``: link name → PCI address; only in the namespaces ``own`` (inodes), since those of other tests are
    in /proc too. ``rdma``: answers of NETLINK_RDMA by message type; without them the kernel has no RDMA.
    """

    def __init__(self, home: int) -> None:
        self.home = home
        self.own = {os.fstat(home).st_ino}
        self.parents: dict[str, str] = {}
        self.rdma: dict[int, list[bytes]] = {}
        self._kernel = KernelTransport()

    def request(
        self, family: int, messages: bytes, *, netns: int | None = None, passed_fd: int | None = None
    ) -> list[Message]:
        if family == constants.NETLINK_RDMA:
            (request,) = codec.unpack(messages)
            if not self.rdma:
                raise OSError(93, "Protocol not supported")
            return [Message(request.type, 0, body) for body in self.rdma.get(request.type, [])]
        where = self.home if netns is None else netns
        answers = self._kernel.request(family, messages, netns=where, passed_fd=passed_fd)
        return [self._plant(m) for m in answers] if os.fstat(where).st_ino in self.own else answers

    def _plant(self, message: Message) -> Message:
        if message.type != constants.RTM_NEWLINK:
            return message
        name = codec.read_string(codec.attr_map(message.body, LINK_HEADER)[constants.IFLA_IFNAME])
        if name not in self.parents:
            return message
        body = message.body + bytes(-len(message.body) % 4)
        return message._replace(body=body + attr(constants.IFLA_PARENT_DEV_NAME, string(self.parents[name])))

    def subscribe(self, family: int, groups: int, *, netns: int | None = None) -> Subscription:
        raise NotImplementedError


@pytest.fixture
def home() -> Iterator[int]:
    with netkit.new_netns() as fd:
        yield fd


@pytest.fixture
def inside() -> Iterator[int]:
    with netkit.new_netns() as fd:
        yield fd


@pytest.fixture
def kernel(home: int, inside: int) -> Planted:
    planted = Planted(home)
    planted.own.add(os.fstat(inside).st_ino)
    netkit.add_veth(planted, home, "enp59s0np0", "peer0")
    planted.parents["enp59s0np0"] = PF
    Links(planted).change(index(planted, "enp59s0np0"), up=True)
    Links(planted).change(index(planted, "peer0"), up=True)
    return planted


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A PF with its netdev in the host's namespace, and a VF."""
    tree = Tree(tmp_path)
    tree.pf(PF)
    tree.net(PF, "enp59s0np0", 3)
    tree.vf(PF, 0, VF)
    return tree


@pytest.fixture
def sleeper(inside: int) -> Iterator[int]:
    """The pid of a process in the namespace ``inside``."""
    process = in_netns(inside, lambda: subprocess.Popen(["sleep", "60"]))
    yield process.pid
    process.kill()
    process.wait()


def index(kernel: Planted, name: str) -> int:
    link = Links(kernel).get(name)
    assert link is not None
    return link.ifindex


def look(tree: Tree, kernel: Planted, **more: Any) -> Inventory:
    proc = more.pop("proc", None)
    return observe(tree.system(kernel, proc=proc), None, HostConfig(), **more)


def functions(inventory: Inventory) -> tuple[Function, Function]:
    """(PF, VF)."""
    pf, vf = inventory.adapters[0].ports[0].functions
    return pf, vf


def attachment(**more: Any) -> Attachment:
    values: dict[str, Any] = {
        "target": "trainer-0",
        "interface": "net1",
        "policy": "training",
        "generation": 1,
        "port": PortId(f"{PF}/1"),
        "vf_index": 0,
        "state": AttachmentState.ATTACHED,
        "boot_id": sysfs_tree.BOOT,
    }
    return Attachment(**(values | more))


def test_only_link_local_addresses_is_free(tree: Tree, kernel: Planted) -> None:
    Links(kernel).add_address(index(kernel, "enp59s0np0"), "169.254.7.7/16")
    pf, _ = functions(look(tree, kernel))
    assert pf.netdev is not None
    assert (pf.netdev.ifindex, pf.netdev.up, pf.netdev.carrier) == (index(kernel, "enp59s0np0"), True, True)
    assert pf.netdev.addresses
    assert pf.holders == ()


def test_the_hosts_own_address_and_route(tree: Tree, kernel: Planted) -> None:
    links, ifindex = Links(kernel), index(kernel, "enp59s0np0")
    links.add_address(ifindex, "10.0.0.7/24")
    assert functions(look(tree, kernel))[0].holders == (Holder(kind="address", detail="10.0.0.7"),)
    links.add_route("default", via="10.0.0.1", ifindex=ifindex)
    links.add_route("10.9.0.0/16", via="10.0.0.2", ifindex=ifindex)
    pf = functions(look(tree, kernel))[0]
    assert pf.holders == (Holder(kind="route", detail="default route, route to 10.9.0.0/16, 10.0.0.7"),)
    assert pf.netdev is not None
    assert pf.netdev.routes == ("default", "10.9.0.0/16")
    assert "10.0.0.7/24" in pf.netdev.addresses


def test_a_bridge_above(tree: Tree, kernel: Planted, home: int) -> None:
    netkit.add_link(kernel, home, "br0", "bridge")
    master = attr(constants.IFLA_MASTER, u32(index(kernel, "br0")))
    body = sysfs_link_header(index(kernel, "enp59s0np0")) + master
    kernel.request(constants.NETLINK_ROUTE, codec.pack(Message(constants.RTM_SETLINK, 0, body)))
    pf, _ = functions(look(tree, kernel))
    assert pf.holders == (Holder(kind="upper", detail="br0 (bridge)"),)
    assert pf.netdev is not None
    assert pf.netdev.upper == "br0"


def test_a_macvlan_above(tree: Tree, kernel: Planted, home: int) -> None:
    below = attr(constants.IFLA_LINK, u32(index(kernel, "enp59s0np0")))
    info = nest(constants.IFLA_LINKINFO, attr(constants.IFLA_INFO_KIND, string("macvlan")))
    body = sysfs_link_header(0) + attr(constants.IFLA_IFNAME, string("mv0")) + below + info
    flags = codec.NLM_F_CREATE | codec.NLM_F_EXCL
    try:
        kernel.request(constants.NETLINK_ROUTE, codec.pack(Message(constants.RTM_NEWLINK, flags, body)))
    except OSError:
        pytest.skip("this kernel has no macvlan")
    assert functions(look(tree, kernel))[0].holders == (Holder(kind="upper", detail="mv0 (macvlan)"),)


def sysfs_link_header(ifindex: int) -> bytes:
    return bytes(4) + u32(ifindex) + bytes(8)


def move_vf_away(tree: Tree, kernel: Planted, inside: int) -> None:
    netkit.add_veth(kernel, kernel.home, "enp59s0v0", "peer1")
    kernel.parents |= {"enp59s0v0": VF, "net1": VF}
    Links(kernel).change(index(kernel, "enp59s0v0"), move_to=inside, name="net1", up=True)
    tree.net(VF, None)


def test_a_stranger_in_another_namespace(
    tree: Tree, kernel: Planted, inside: int, sleeper: int
) -> None:
    move_vf_away(tree, kernel, inside)
    pf, vf = functions(look(tree, kernel, proc=Path("/proc")))
    assert (pf.net_elsewhere, vf.net_elsewhere, vf.netdev) == (False, True, None)
    (holder,) = vf.holders
    assert (holder.kind, holder.ours, holder.pid) == ("netns", False, sleeper)
    assert holder.detail == f"pid {sleeper} (sleep), network namespace {os.fstat(inside).st_ino}"


def test_a_namespace_by_name(tree: Tree, kernel: Planted, inside: int) -> None:
    move_vf_away(tree, kernel, inside)
    named = tree.root / "run/netns/blue"
    named.parent.mkdir(parents=True)
    named.symlink_to(f"/proc/self/fd/{inside}")
    (named.parent / "a-stale-name").touch()
    inventory = look(tree, kernel)
    assert functions(inventory)[1].holders == (Holder(kind="netns", detail=f"network namespace {named}"),)
    assert inventory.notes == ()


def test_our_target(tree: Tree, kernel: Planted, inside: int, sleeper: int) -> None:
    move_vf_away(tree, kernel, inside)
    ours = Holder(kind="target", detail="trainer-0 net1", ours=True, target="trainer-0", pid=sleeper)
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    record = attachment(netns_inode=os.fstat(inside).st_ino, boot_id=boot_id)
    for records in ([record], [attachment(netns_inode=1, vf_index=None, boot_id=boot_id), record]):
        inventory = look(tree, kernel, proc=Path("/proc"), attachments=records)
        assert functions(inventory)[1].holders == (ours,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"netns_inode": 4711},
        {"state": AttachmentState.ASSIGNED},
        {"boot_id": "another boot"},
        {"vf_index": 1},
    ],
    ids=["another namespace", "only assigned", "of another boot", "of another function"],
)
def test_a_record_that_does_not_explain_it(
    tree: Tree, kernel: Planted, inside: int, sleeper: int, wrong: dict[str, Any]
) -> None:
    move_vf_away(tree, kernel, inside)
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    record = attachment(**({"netns_inode": os.fstat(inside).st_ino, "boot_id": boot_id} | wrong))
    (holder,) = functions(look(tree, kernel, proc=Path("/proc"), attachments=[record]))[1].holders
    assert (holder.kind, holder.ours) == ("netns", False)


def test_the_pfs_mode_and_link_are_looked_up_where_it_is(
    tree: Tree, kernel: Planted, inside: int, sleeper: int
) -> None:
    (tree.devices / PF / "net/enp59s0np0/ifindex").unlink()
    for entry in (tree.devices / PF / "net/enp59s0np0").iterdir():
        entry.unlink()
    (tree.devices / PF / "net/enp59s0np0").rmdir()
    Links(kernel).change(index(kernel, "enp59s0np0"), move_to=inside, name="enp59s0np0", up=True)
    port = look(tree, kernel, proc=Path("/proc")).adapters[0].ports[0]
    assert (port.observed_mode, port.link, port.pf.net_elsewhere) == (LinkMode.ROCE, "up", True)


def test_a_namespace_that_nobody_leads_to(tree: Tree, kernel: Planted) -> None:
    tree.net(VF, None)
    (holder,) = functions(look(tree, kernel))[1].holders
    assert (holder.kind, holder.ours, holder.pid) == ("netns", False, None)
    (holder,) = functions(look(tree, kernel, attachments=[attachment(netns_inode=9)]))[1].holders
    assert (holder.kind, holder.ours, holder.target) == ("target", True, "trainer-0")


def test_a_captured_tree_shows_that_it_is_held(tree: Tree) -> None:
    tree.net(VF, None)
    _, vf = functions(observe(tree.system(), None, HostConfig()))
    assert [h.kind for h in vf.holders] == ["netns"]


def test_guests(tree: Tree, kernel: Planted) -> None:
    tree.drive(VF, "vfio-pci")
    (holder,) = functions(look(tree, kernel))[1].holders
    assert holder.kind == "vfio"
    assert holder.detail.startswith("vfio-pci (kept for a guest")
    fds = tree.proc / "4711/fd"
    fds.mkdir(parents=True)
    (fds / "12").symlink_to(tree.dev / "vfio/42")
    (fds / "13").symlink_to("/dev/null")
    tree.file(tree.proc / "4711/comm", "qemu-system-x86")
    _, vf = functions(look(tree, kernel))
    assert vf.holders == (Holder(kind="vfio", detail="pid 4711 (qemu-system-x86)", pid=4711),)
    assert not vf.net_elsewhere


def test_guests_by_iommufd(tree: Tree, kernel: Planted) -> None:
    tree.drive(VF, "mlx5_vfio_pci")
    (tree.devices / VF / "vfio-dev/vfio3").mkdir(parents=True)
    fds = tree.proc / "4711/fd"
    fds.mkdir(parents=True)
    (fds / "12").symlink_to(tree.dev / "vfio/devices/vfio3")
    assert functions(look(tree, kernel))[1].holders == (Holder(kind="vfio", detail="pid 4711", pid=4711),)


def test_rdma_users(tree: Tree, kernel: Planted) -> None:
    tree.rdma(PF, "ibp59s0")
    pid = os.getpid()
    device = attr(1, u32(4)) + attr(2, string("ibp59s0")) + attr(6, u64(1))
    other = attr(1, u32(5)) + attr(2, string("rxe0")) + attr(6, u64(2))
    users = [attr(29, string("ib_core")), attr(29, string("nvme_rdma")), attr(28, u32(pid))]
    table = nest(19, *(nest(20, attr(21, u32(n)), user) for n, user in enumerate(users)))
    kernel.rdma = {0x1401: [device, other], 0x140A: [attr(1, u32(4)) + table], 0x1406: [attr(66, u8(0))]}
    inventory = look(tree, kernel, proc=Path("/proc"))
    assert inventory.rdma_netns == "exclusive"
    pf, _ = functions(inventory)
    module, process = pf.holders
    assert module == Holder(kind="rdma", detail="kernel module nvme_rdma")
    assert (process.pid, process.detail.startswith(f"pid {pid} (")) == (pid, True)


def test_rdma_users_in_containers_of_a_shared_device(
    tree: Tree, kernel: Planted, inside: int, sleeper: int
) -> None:
    move_vf_away(tree, kernel, inside)
    tree.rdma(VF, "rocep59s0v0", layer="Ethernet")
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    device = attr(1, u32(4)) + attr(2, string("rocep59s0v0")) + attr(6, u64(1))
    table = nest(19, nest(20, attr(21, u32(1)), attr(28, u32(sleeper))))
    kernel.rdma = {0x1401: [device], 0x140A: [attr(1, u32(4)) + table], 0x1406: [attr(66, u8(1))]}
    record = attachment(netns_inode=os.fstat(inside).st_ino, boot_id=boot_id)
    ours = look(tree, kernel, proc=Path("/proc"), attachments=[record])
    assert [h.target for h in functions(ours)[1].holders] == ["trainer-0"]
    assert [h.kind for h in functions(look(tree, kernel, proc=Path("/proc")))[1].holders] == ["netns", "netns"]


def test_a_kernel_that_does_not_answer_is_noted(tree: Tree, home: int) -> None:
    class Broken(Planted):
        def request(self, *args: Any, **more: Any) -> list[Message]:
            raise OSError(1, "Operation not permitted")

    inventory = look(tree, Broken(home))
    assert "the kernel did not tell links, addresses and routes: Operation not permitted" in inventory.notes
    pf, _ = functions(inventory)
    assert pf.netdev is not None
    assert pf.netdev.name == "enp59s0np0"
