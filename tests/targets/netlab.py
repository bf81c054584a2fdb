"""Real namespaces and veth pairs that look like PCI functions: what attach and detach are tried on without an
emulated host.

The "host" is a fresh network namespace of the test's own main thread. A function is one end of a veth pair; its
other end lies in a third namespace (the wire). A transport between gives the veth a parent PCI address, as the
kernel gives one to a NIC's netdev. sysfs is a directory with one entry for each function.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from linkwright.kernel.links import Link, Links
from linkwright.kernel.netlink import codec, constants
from linkwright.kernel.netlink.codec import Message
from linkwright.kernel.netlink.transport import KernelTransport, Subscription
from linkwright.kernel.rdma import RdmaLink
from linkwright.kernel.system import System
from linkwright.model.inventory import Function, Netdev, RdmaDevice
from linkwright.model.plan import TargetState
from linkwright.model.records import Attachment
from linkwright.model.values import PciAddress, PortId
from linkwright.store import Store
from linkwright.targets.context import Context

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
BOOT = "6f1c0b1e-0000-4000-8000-000000000001"
HEADER = 16  # struct ifinfomsg


class WithParents(KernelTransport):
    """The kernel, plus IFLA_PARENT_DEV_NAME for the veths whose peer is in ``peers`` (its index → PCI address).

    ``infiniband``: functions shown with type 32 and a 20-byte address. ``refuse``: (message type, attribute) →
    errno for requests that hold it, to make one step fail.
    """

    def __init__(self) -> None:
        self.peers: dict[int, str] = {}
        self.infiniband: set[str] = set()
        self.guids: dict[str, str] = {}  # of the functions whose IPoIB address was set to a certain GUID
        self.refuse: dict[tuple[int, int], int] = {}

    def request(
        self, family: int, messages: bytes, *, netns: int | None = None, passed_fd: int | None = None
    ) -> list[Message]:
        for message in codec.unpack(messages):
            header = {constants.RTM_NEWADDR: 8, constants.RTM_NEWROUTE: 12}.get(message.type, HEADER)
            for kind, _ in codec.iter_attrs(message.body, header):
                if (number := self.refuse.get((message.type, kind))) is not None:
                    raise OSError(number, os.strerror(number))
        answers = super().request(family, messages, netns=netns, passed_fd=passed_fd)
        return [self._dressed(m) if m.type == constants.RTM_NEWLINK else m for m in answers]

    def _dressed(self, message: Message) -> Message:
        found = codec.attr_map(message.body, HEADER)
        peer = codec.read_u32(found[constants.IFLA_LINK]) if constants.IFLA_LINK in found else 0
        parent = self.peers.get(peer)
        if parent is None or constants.IFLA_LINK_NETNSID not in found:
            return message
        body = message.body
        if parent in self.infiniband:
            kept = [codec.attr(k, v) for k, v in codec.attrs(body, HEADER) if k != constants.IFLA_ADDRESS]
            address = bytes.fromhex("80000048fe8000000000000000") + found[constants.IFLA_ADDRESS][:6].rjust(
                7, b"\2"
            )
            if parent in self.guids:
                address = address[:12] + bytes.fromhex(self.guids[parent].replace(":", ""))
            head = body[:2] + constants.ARPHRD_INFINIBAND.to_bytes(2, "little") + body[4:HEADER]
            body = head + b"".join(kept) + codec.attr(constants.IFLA_ADDRESS, address)
        return message._replace(body=body + codec.attr(constants.IFLA_PARENT_DEV_NAME, codec.string(parent)))

    def subscribe(self, family: int, groups: int, *, netns: int | None = None) -> Subscription:
        return super().subscribe(family, groups, netns=netns)


@dataclass
class FakeRdma:
    """RDMA devices by namespace inode (None: the host's). In InfiniBand mode a move makes the netdev anew."""

    lab: Lab
    where: dict[int, int | None] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    guids: dict[int, str] = field(default_factory=dict)
    functions: dict[int, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    users: tuple[str, ...] = ()

    def add(self, function: str, index: int, name: str) -> None:
        self.where[index], self.names[index], self.functions[index] = None, name, function
        self.guids[index] = f"02:00:00:00:00:00:00:{index:02x}"
        self._show(index)

    def devices(self, netns: int | None = None) -> list[RdmaLink]:
        inode = None if netns is None else os.fstat(netns).st_ino
        return [RdmaLink(i, self.names[i], node_guid=self.guids[i]) for i, at in self.where.items() if at == inode]

    def kernel_users(self, index: int, netns: int | None = None) -> tuple[str, ...]:
        return self.users

    def move(self, index: int, netns_fd: int, *, netns: int | None = None) -> None:
        inode = os.fstat(netns_fd).st_ino
        home = inode == Path("/proc/self/ns/net").stat().st_ino
        self.where[index] = None if home else inode
        self.calls.append(f"move {self.names[index]} {'host' if home else 'target'}")
        self._show(index)
        if self.functions[index] in self.lab.transport.infiniband:
            self.lab.made_anew(self.functions[index])

    def rename(self, index: int, name: str, *, netns: int | None = None) -> None:
        if name in self.names.values():
            raise FileExistsError(17, "File exists")
        self.names[index] = name
        self.calls.append(f"rename {name}")
        self._show(index)

    def died(self, inode: int) -> None:
        """A namespace ended: its devices are the host's again."""
        for index, at in list(self.where.items()):
            if at == inode:
                self.where[index] = None
                self._show(index)

    def _show(self, index: int) -> None:
        root = self.lab.system.sys / "bus/pci/devices" / self.functions[index] / "infiniband"
        root.mkdir(exist_ok=True)
        for old in root.iterdir():
            (old / "node_guid").unlink()
            old.rmdir()
        if self.where[index] is None:
            (root / self.names[index]).mkdir()
            (root / self.names[index] / "node_guid").write_text(self.guids[index])


@dataclass
class Target:
    """A process with a network namespace of its own."""

    process: subprocess.Popen[bytes]
    fd: int

    @property
    def state(self) -> TargetState:
        path = f"/proc/{self.process.pid}/ns/net"
        return TargetState(state="running", netns_path=path, netns_inode=os.fstat(self.fd).st_ino)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Lab:
    """One test's host: ``ctx`` for the code under test, ``links`` to look."""

    def __init__(self, root: Path, transport: WithParents | None = None) -> None:
        self.transport = transport or WithParents()
        self.system = System(sys=root / "sys", netlink=self.transport)
        self.store = Store(root / "state.db")
        self.links = Links(self.transport)
        self.rdma = FakeRdma(self)
        self.ctx = Context(
            system=self.system, store=self.store, links=self.links, rdma=self.rdma,  # type: ignore[arg-type]
            boot_id=BOOT, wait_s=2.0,
        )  # fmt: skip
        self.targets: list[Target] = []
        self._wire = new_namespace()
        self._late: list[threading.Thread] = []

    def function(self, number: int = 0, vf: int | None = None, name: str | None = None) -> Function:
        """Make one: veth end in the host, the other end on the wire."""
        address = PciAddress(f"0000:3b:00.{number}")
        name = name or f"enp59s0f{number}np0"
        run(
            "ip",
            "link",
            "add",
            name,
            "address",
            f"02:00:00:00:01:{number:02x}",
            "type",
            "veth",
            "peer",
            "name",
            "wire",
        )
        peer = self.links.get(name="wire")
        assert peer is not None
        self.links.change(peer.ifindex, name=f"w{number}", move_to=self._wire.fd, up=True)
        inside = self.links.get(name=f"w{number}", netns=self._wire.fd)
        assert inside is not None
        self.transport.peers[inside.ifindex] = address
        (self.system.sys / "bus/pci/devices" / address).mkdir(parents=True)
        return self.observed(address, vf)

    def observed(self, address: str, vf: int | None = None) -> Function:
        link = self.at_home(address)
        netdev = link and Netdev(
            name=link.name, ifindex=link.ifindex, link_type=link.link_type, address=link.address, mtu=link.mtu
        )
        rdma = next((RdmaDevice(name=d.name) for d in self.rdma.devices()), None)
        return Function(
            address=PciAddress(address), vf_index=vf, driver="mlx5_core", netdev=netdev, rdma=rdma,
            net_elsewhere=netdev is None,
        )  # fmt: skip

    def at_home(self, address: str) -> Link | None:
        return self.find(address, None)

    def find(self, address: str, netns: int | None) -> Link | None:
        return next((link for link in self.links.dump(netns) if link.parent == address), None)

    def target(self) -> Target:
        made = new_namespace()
        self.targets.append(made)
        return made

    def made_anew(self, address: str) -> None:
        """What re-registering an RDMA device does to its IPoIB netdev: another one, in the host, with defaults."""
        for place in [None, *[t.fd for t in self.targets]]:
            link = self.find(address, place)
            if link is None:
                continue
            peer = next(i for i, parent in self.transport.peers.items() if parent == address)
            del self.transport.peers[peer]
            mac = link.address[-17:]  # stands for the GUID in it, which stays
            wire = self.links.get(ifindex=peer, netns=self._wire.fd)
            assert wire is not None
            self.links.change(link.ifindex, place, alias="")
            with in_namespace(place):
                run("ip", "link", "del", link.name)
            run("ip", "link", "add", "ib0", "address", mac, "type", "veth", "peer", "name", wire.name)
            end = self.links.get(name=wire.name)
            assert end is not None
            self.links.change(end.ifindex, name=wire.name, move_to=self._wire.fd)
            inside = self.links.get(name=wire.name, netns=self._wire.fd)
            assert inside is not None
            self.transport.peers[inside.ifindex] = address

    def namespace_dies(self, target: Target, address: str, *, after_s: float, name: str | None = None) -> None:
        """Its last process ends; the kernel gives the netdev back late, as ``name`` (default dev<ifindex>)."""
        target.end()
        inode = os.fstat(target.fd).st_ino
        home = os.open("/proc/self/ns/net", os.O_RDONLY)

        def give_back() -> None:
            threading.Event().wait(after_s)
            self.rdma.died(inode)
            link = self.find(address, target.fd)
            if link is not None:
                self.links.change(
                    link.ifindex, target.fd, name=name or f"dev{link.ifindex}", move_to=home
                )  # fmt: skip
            os.close(home)

        thread = threading.Thread(target=give_back)
        thread.start()
        self._late.append(thread)

    def close(self) -> None:
        for thread in self._late:
            thread.join()
        for made in [*self.targets, self._wire]:
            made.end()
            os.close(made.fd)
        self.store.close()


def sample(points: int, offset: int = 0) -> list[int]:
    """Which points to cut a run off at: every third, or with LINKWRIGHT_CRASH_POINTS=all every one."""
    if os.environ.get("LINKWRIGHT_CRASH_POINTS") == "all":
        return list(range(points))
    return list(range(offset % 3, points, 3))


def attachment(function: Function, target: str = "trainer-0", **fields: object) -> Attachment:
    made = Attachment(
        target=target, interface="net1", policy="training", generation=1, port=PortId("0000:3b:00.0/1"),
        vf_index=function.vf_index, function=function.address,
    )  # fmt: skip
    from msgspec.structs import replace

    return replace(made, **fields)


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True)


def new_namespace() -> Target:
    process = subprocess.Popen(["sleep", "600"], preexec_fn=lambda: _libc.unshare(CLONE_NEWNET))
    return Target(process, os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))


@contextmanager
def in_namespace(fd: int | None) -> Iterator[None]:
    """The calling thread in another namespace, and back."""
    if fd is None:
        yield
        return
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        assert _libc.setns(fd, CLONE_NEWNET) == 0
        yield
    finally:
        assert _libc.setns(here, CLONE_NEWNET) == 0
        os.close(here)


@contextmanager
def host_namespace() -> Iterator[None]:
    """The calling (main) thread in a fresh network namespace; nothing of it touches the machine's own."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        assert _libc.unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        yield
    finally:
        assert _libc.setns(here, CLONE_NEWNET) == 0
        os.close(here)
