"""How long attach and detach take, and how much of it is the kernel's own move.

    python benchmarks/attach.py [--rounds 40] [--many 8]
    linkwright lab exec gpu-01 -- python benchmarks/attach.py --port 0000:3b:00.0/1

Runs as root on veth pairs in namespaces of its own (nothing of the machine's network is touched); inside an
emulated host (LINKWRIGHT_NETLINK is set) on the free functions of a port, its VFs if it has some. For one function
and for several of one target it prints p50 and p99 of attach and detach, and beside it:

- bare move: one RTM_SETLINK with the namespace and the name, nothing around it: what the kernel takes;
- netlink: all requests of the operation, looks and changes;
- disk: what the journal waits for (fsync of SQLite's log), counted at the p50 of one commit.

Ratios compare on one machine. The milliseconds of a NIC, whose driver has queues to stop, are not a veth's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/targets"))

from msgspec.structs import replace
from netlab import Lab, Target, attachment, host_namespace, new_namespace

from linkwright.discovery.observe import observe
from linkwright.kernel import netns
from linkwright.kernel.linkcodec import LINK_HEADER, change_attributes
from linkwright.kernel.links import Links
from linkwright.kernel.netlink import codec, constants
from linkwright.kernel.netlink.codec import Message
from linkwright.kernel.netlink.transport import Subscription, Transport
from linkwright.kernel.rdma import Rdma
from linkwright.kernel.system import System
from linkwright.model.documents import HostConfig, Interface
from linkwright.model.inventory import Function
from linkwright.model.records import AttachmentState
from linkwright.store import Store
from linkwright.targets import container
from linkwright.targets.context import Context
from linkwright.targets.scene import pinned


class Timed:
    """A transport that adds up the time inside its requests."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.spent_ms = 0.0
        self.requests = 0

    def request(
        self, family: int, messages: bytes, *, netns: int | None = None, passed_fd: int | None = None
    ) -> list[Message]:
        begun = time.perf_counter()
        try:
            return self._inner.request(family, messages, netns=netns, passed_fd=passed_fd)
        finally:
            self.spent_ms += (time.perf_counter() - begun) * 1000
            self.requests += 1

    def subscribe(self, family: int, groups: int, *, netns: int | None = None) -> Subscription:
        return self._inner.subscribe(family, groups, netns=netns)


@dataclass
class Series:
    """Durations in milliseconds."""

    values: list[float] = field(default_factory=list)

    def p(self, percent: int) -> float:
        return statistics.quantiles(self.values, n=100, method="inclusive")[percent - 1]

    @contextmanager
    def timed(self) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.values.append((time.perf_counter() - begun) * 1000)


@dataclass
class Bench:
    """Functions to give and a namespace to give them to. ``look`` observes the functions anew."""

    ctx: Context
    timed: Timed
    target: Target
    look: Callable[[], list[Function]]
    steps: list[str] = field(default_factory=list)

    def attach(self, functions: list[Function]) -> None:
        with pinned(self.ctx, self.target.state) as namespace:
            for number, function in enumerate(functions):
                interface = Interface(name=f"net{number}", addresses=(f"10.9.{number}.1/24",), mtu=1450)
                record = replace(
                    attachment(function), interface=interface.name, vf_index=number, boot_id=self.ctx.boot_id
                )
                done = container.attach(
                    self.ctx, record, interface, function, None, self.target.state, namespace=namespace
                )
                if done.state is not AttachmentState.ATTACHED:
                    raise RuntimeError(done.reason)

    def detach(self) -> None:
        for record in self.ctx.store.attachments():
            done = container.detach(self.ctx, record)
            if done.state is not AttachmentState.ASSIGNED:
                raise RuntimeError(done.reason)

    def bare_move(self, rounds: int) -> tuple[Series, Series]:
        """Only the kernel: in under another name, and out again under the old one."""
        into, out = Series(), Series()
        with netns.open_path("/proc/self/ns/net") as home:
            for _ in range(rounds):
                netdev = self.look()[0].netdev
                if netdev is None:
                    raise RuntimeError("the function is not at home")
                with into.timed():
                    self._set_link(netdev.ifindex, "net0", self.target.fd, None)
                inside = self.ctx.links.get(name="net0", netns=self.target.fd)
                if inside is None:
                    raise RuntimeError("the function did not arrive")
                with out.timed():
                    self._set_link(inside.ifindex, netdev.name, home, self.target.fd)
        return into, out

    def _set_link(self, ifindex: int, name: str, to: int, where: int | None) -> None:
        wanted = change_attributes(name=name, mtu=None, address=None, alias=None, move_to=to)
        message = Message(constants.RTM_SETLINK, 0, LINK_HEADER.pack(0, 0, ifindex, 0, 0) + wanted)
        self.timed.request(constants.NETLINK_ROUTE, codec.pack(message), netns=where, passed_fd=to)

    def commits(self, rounds: int) -> Series:
        series = Series()
        operation = self.ctx.store.begin_operation("benchmark", "commit", "boot")
        for number in range(rounds):
            with series.timed():
                operation.begin(f"step {number}")
        operation.end()
        return series


def measure(bench: Bench, count: int, rounds: int) -> None:
    commit = bench.commits(50)
    bare = dict(zip(("attach", "detach"), bench.bare_move(rounds), strict=True))
    totals = {"attach": Series(), "detach": Series()}
    parts: dict[str, list[tuple[float, int, int]]] = {"attach": [], "detach": []}
    bench.ctx = with_fields(bench.ctx, watch=lambda moment, subject, step: bench.steps.append(step))
    for _ in range(rounds):
        functions = bench.look()[:count]
        for name, total in totals.items():
            bench.timed.spent_ms, bench.timed.requests = 0.0, 0
            bench.steps.clear()
            with total.timed():
                bench.attach(functions) if name == "attach" else bench.detach()
            parts[name].append((bench.timed.spent_ms, bench.timed.requests, len(bench.steps) // 2))
    print(f"{count} function{'s' if count > 1 else ''} of one target; one commit: p50 {commit.p(50):.2f} ms")
    for name, total in totals.items():
        netlink, requests, steps = (statistics.median(part[i] for part in parts[name]) for i in range(3))
        # One commit a begun step and two around them; releasing marks each step as undone too.
        disk = (steps * (2 if name == "detach" else 1) + 2 * count) * commit.p(50)
        whole, kernel = total.p(50), bare[name].p(50) * count
        print(
            f"  {name}  p50 {whole:7.2f} ms  p99 {total.p(99):7.2f} ms = {whole / kernel:4.1f} x bare move"
            f" ({kernel:6.2f} ms, {kernel / whole:4.0%})  netlink {netlink / whole:4.0%} in {requests:.0f}"
            f" requests  disk ~{disk / whole:4.0%} in {steps:.0f} steps"
        )


@contextmanager
def on_veths(count: int, folder: Path) -> Iterator[Bench]:
    with host_namespace():
        lab = Lab(folder)
        try:
            timed = Timed(lab.transport)
            addresses = [lab.function(number).address for number in range(count)]
            ctx = with_fields(lab.ctx, links=Links(timed), system=with_fields(lab.system, netlink=timed))
            yield Bench(ctx, timed, lab.target(), lambda: [lab.observed(address) for address in addresses])
        finally:
            lab.close()


@contextmanager
def on_this_host(port: str | None, folder: Path) -> Iterator[Bench]:
    """Functions of an emulated host in which this runs; nothing that somebody holds is touched."""
    system = System.from_environment()
    timed = Timed(system.netlink)
    system = with_fields(system, netlink=timed)

    def look() -> list[Function]:
        ports = [p for a in observe(system, None, HostConfig()).adapters for p in a.ports]
        chosen = next((p for p in ports if p.id == port), None) if port else max(ports, key=lambda p: len(p.vfs))
        if chosen is None:
            raise SystemExit(f"attach.py: this host has no port {port}; it has {', '.join(p.id for p in ports)}")
        return [f for f in (chosen.vfs or (chosen.pf,)) if not f.holders and f.netdev is not None]

    rdma = Rdma(timed)
    store = Store(folder / "state.db")
    ctx = Context(
        system=system,
        store=store,
        links=Links(timed),
        rdma=rdma,
        boot_id="benchmark",
        host_rdma_netns=rdma.netns_mode(),
    )
    target = new_namespace()
    try:
        yield Bench(ctx, timed, target, look)
    finally:
        target.end()
        os.close(target.fd)
        store.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--many", type=int, default=8, help="functions of one target in the second measurement")
    parser.add_argument("--port", help="on an emulated host: the port, like 0000:3b:00.0/1")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("attach.py: needs root, for network namespaces", file=sys.stderr)
        return 2
    emulated = "LINKWRIGHT_NETLINK" in os.environ
    print("on an emulated host" if emulated else "on veth pairs of the kernel " + os.uname().release)
    for count in (1, options.many):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
            folder = Path(directory)
            with on_this_host(options.port, folder) if emulated else on_veths(count, folder) as bench:
                free = len(bench.look())
                measure(bench, min(count, free), options.rounds)
                if emulated and free < options.many:
                    print(f"  (this port has {free} free functions)")
                    break
    return 0


if __name__ == "__main__":
    sys.exit(main())
