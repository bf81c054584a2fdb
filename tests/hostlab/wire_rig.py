"""An emulated host without its processes: namespaces of children, a machine, the wire and the netlink server."""

from __future__ import annotations

import os
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from hostlab.build import build_machine
from hostlab.machine import FunctionState, Machine
from hostlab.netlinkd import NetlinkServer
from hostlab.nl_kernel import in_netns
from hostlab.wire import Wire
from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import Message, attr, string, u32
from linkwright.kernel.netlink.transport import SocketTransport

T = TypeVar("T")

SPEC = {
    "name": "gpu-01",
    "fabrics": {
        "rail-0": {"linkModes": ["InfiniBand", "RoCE"], "subnetManager": True},
        "office": {"linkModes": ["RoCE"]},
    },
    "adapters": [
        {
            "persona": "cx6-vpi-dual",
            "address": "0000:3b:00",
            "ports": [{"fabric": "rail-0"}, {"fabric": "office"}],
        },
        {"persona": "cx6lx-eth", "address": "0000:81:00", "ports": [{"fabric": "office"}]},
    ],
}
IB_PF, IB_UNCABLED, ETH_PF = "0000:3b:00.0", "0000:3b:00.1", "0000:81:00.0"

GETLINK, SETLINK, NEWLINK, DELLINK = 18, 19, 16, 17
IFLA_IFNAME, IFLA_EXT_MASK, IFLA_NET_NS_FD = 3, 29, 28


class Space:
    """A network namespace with one process in it, as a container has."""

    def __init__(self) -> None:
        command = ["unshare", "--net", "sh", "-c", "echo; exec sleep 1000"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.process.stdout.read(1)
        self.fd = os.open(f"/proc/{self.process.pid}/ns/net", os.O_RDONLY)
        self.inode = os.fstat(self.fd).st_ino

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> None:
        """The process ends, and our descriptor goes: nobody but the lab holds the namespace."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def ip(self, *arguments: str, check: bool = True) -> str:
        command = ["nsenter", f"--net=/proc/{self.pid}/ns/net", "ip", *arguments]
        return subprocess.run(command, check=check, capture_output=True, text=True).stdout


@dataclass
class Rig:
    machine: Machine
    wire: Wire
    server: NetlinkServer
    host: Space
    transport: SocketTransport
    resources: ExitStack

    def fn(self, address: str) -> FunctionState:
        found = self.machine.function(address)
        assert found is not None
        return found

    def container(self) -> Space:
        space = Space()
        self.resources.callback(space.end)
        return space

    # --- requests through the server

    def link(
        self, name: str, space: Space | None = None, mask: int = 0
    ) -> tuple[tuple[int, ...], dict[int, bytes]]:
        """(ifi_type, ifi_index, ifi_flags), {attribute: payload}"""
        body = bytes(16) + attr(IFLA_IFNAME, string(name)) + (attr(IFLA_EXT_MASK, u32(mask)) if mask else b"")
        found = self.request(Message(GETLINK, 0, body), space)[0]
        return unpack_link(found)

    def request(
        self, message: Message, space: Space | None = None, passed: int | None = None, family: int = 0
    ) -> list[Message]:
        netns = (space or self.host).fd
        return self.transport.request(family, codec.pack(message), netns=netns, passed_fd=passed)

    def change(self, ifindex: int, *attrs: bytes, space: Space | None = None, to: Space | None = None) -> None:
        moves = attr(IFLA_NET_NS_FD, u32(to.fd)) if to else b""
        body = codec.u32(0) + codec.u32(ifindex) + bytes(8) + b"".join(attrs) + moves
        self.request(Message(SETLINK, 0, body), space, to.fd if to else None)

    def ifindex(self, address: str) -> int:
        device = self.wire.device_of(self.fn(address))
        assert device is not None
        return device.ifindex


def unpack_link(message: Message) -> tuple[tuple[int, ...], dict[int, bytes]]:
    _, kind, ifindex, flags, _ = struct.unpack_from("=BxHiII", message.body)
    return (kind, ifindex, flags), codec.attr_map(message.body, 16)


@contextmanager
def rig(folder: Path, *, linger_s: float = 0.0) -> Iterator[Rig]:
    with ExitStack() as resources:
        own, host = Space(), Space()
        resources.callback(own.end)
        resources.callback(host.end)
        machine = build_machine(SPEC, folder / "cards")
        wire = Wire(machine, machine.fabrics, linger_s=linger_s)
        machine.netdevs = wire
        in_netns(own.fd, lambda: wire.start(host.fd, host.pid))
        resources.callback(wire.stop)
        machine.boot()
        resources.callback(machine.power_off)
        server = NetlinkServer(machine, wire, folder / "netlink.sock")
        server.start()
        resources.callback(server.stop)
        yield Rig(machine, wire, server, host, SocketTransport(folder / "netlink.sock"), resources)


@contextmanager
def os_error(number: int) -> Iterator[None]:
    with pytest.raises(OSError) as caught:  # noqa: PT011  (its text may be the kernel's extended one)
        yield
    assert caught.value.errno == number


def eventually(happened: Callable[[], T | None]) -> T:
    """Wait for what other threads and the kernel do in their own time; the limit only ends a broken run."""
    limit = time.monotonic() + 20
    while not (result := happened()):
        assert time.monotonic() < limit, "it never happened"
        time.sleep(0.002)
    return result


def settle(wire: Wire) -> None:
    """Until the watcher has done everything that was on its way: two rounds, since a round may begin another."""
    for _ in range(3):
        done = threading.Event()
        wire._watcher.soon(done.set)
        assert done.wait(20)
