"""How long attach and detach take, and how much of it is the kernel's own move.

    python benchmarks/attach.py [--rounds 40] [--many 8]

Runs as root on veth pairs in namespaces of its own (nothing of the machine's network is touched). For one function
and for several functions of one target it prints p50 and p99 of attach and detach, and beside it:

- the bare move: one RTM_SETLINK in and one out, with nothing around it. What the kernel takes whoever asks;
- the netlink part: all requests of the operation, looks and changes, on a socket of their own each;
- the disk part: what the journal waits for (fsync of SQLite's log), at the store's own p50.

The ratios compare on one machine; the milliseconds of another machine, or of a NIC whose driver has queues
to stop, are others. A veth's move is cheaper than that of a ConnectX function.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/targets"))

from msgspec.structs import replace
from netlab import Lab, Target, WithParents, attachment, host_namespace

from linkwright.kernel import netns
from linkwright.kernel.linkcodec import LINK_HEADER, change_attributes
from linkwright.kernel.links import Links
from linkwright.kernel.netlink import codec, constants
from linkwright.kernel.netlink.codec import Message
from linkwright.model.documents import Interface
from linkwright.model.inventory import Function
from linkwright.model.records import AttachmentState
from linkwright.model.values import LinkMode
from linkwright.targets import container
from linkwright.targets.scene import pinned


@dataclass
class Series:
    """Durations in milliseconds."""

    values: list[float] = field(default_factory=list)

    def p(self, percent: int) -> float:
        return statistics.quantiles(self.values, n=100, method="inclusive")[percent - 1]

    def time(self, work: Callable[[], None]) -> None:
        begun = time.perf_counter()
        work()
        self.values.append((time.perf_counter() - begun) * 1000)


class Timed(WithParents):
    """Adds up the time inside netlink requests."""

    spent_ms = 0.0
    requests = 0

    def request(
        self, family: int, messages: bytes, *, netns: int | None = None, passed_fd: int | None = None
    ) -> list[Message]:
        begun = time.perf_counter()
        try:
            return super().request(family, messages, netns=netns, passed_fd=passed_fd)
        finally:
            self.spent_ms += (time.perf_counter() - begun) * 1000
            self.requests += 1


def attach_all(lab: Lab, functions: list[Function], target: Target) -> None:
    with pinned(lab.ctx, target.state) as namespace:
        for number, function in enumerate(functions):
            interface = Interface(name=f"net{number}", addresses=(f"10.9.{number}.1/24",), mtu=1450)
            record = replace(attachment(function), interface=interface.name, vf_index=number)
            done = container.attach(
                lab.ctx, record, interface, function, LinkMode.ROCE, target.state, namespace=namespace
            )
            if done.state is not AttachmentState.ATTACHED:
                raise RuntimeError(done.reason)


def detach_all(lab: Lab) -> None:
    for record in lab.store.attachments():
        done = container.detach(lab.ctx, record)
        if done.state is not AttachmentState.ASSIGNED:
            raise RuntimeError(done.reason)


def bare_move(lab: Lab, function: Function, target: Target, rounds: int) -> tuple[Series, Series]:
    """Only the kernel: in under another name, and out again under the old one."""
    into, out = Series(), Series()
    links = Links(lab.transport)
    with netns.open_path("/proc/self/ns/net") as home:
        for _ in range(rounds):
            link = lab.at_home(function.address)
            if link is None:
                raise RuntimeError("the function is not at home")
            index, name = link.ifindex, link.name
            into.time(lambda i=index: set_link(lab, i, "net0", target.fd, None))
            inside = links.get(name="net0", netns=target.fd)
            if inside is None:
                raise RuntimeError("the function did not arrive")
            back = inside.ifindex
            out.time(lambda i=back, n=name: set_link(lab, i, n, home, target.fd))
    return into, out


def set_link(lab: Lab, ifindex: int, name: str, to: int, where: int | None) -> None:
    wanted = change_attributes(name=name, mtu=None, address=None, alias=None, move_to=to)
    message = Message(constants.RTM_SETLINK, 0, LINK_HEADER.pack(0, 0, ifindex, 0, 0) + wanted)
    lab.transport.request(constants.NETLINK_ROUTE, codec.pack(message), netns=where, passed_fd=to)


def commits(lab: Lab, rounds: int) -> Series:
    series = Series()
    operation = lab.store.begin_operation("benchmark", "commit", "boot")
    for number in range(rounds):
        series.time(lambda n=number: operation.begin(f"step {n}"))
    operation.end()
    return series


def measure(lab: Lab, timed: Timed, count: int, rounds: int, commit_ms: float) -> None:
    functions = [lab.function(number) for number in range(count)]
    target = lab.target()
    steps: list[str] = []
    lab.ctx = with_fields(lab.ctx, watch=lambda moment, subject, step: steps.append(step))
    bare_in, bare_out = bare_move(lab, functions[0], target, rounds)
    attach, detach = Series(), Series()
    parts: dict[str, list[tuple[float, int, int]]] = {"attach": [], "detach": []}
    for _ in range(rounds):
        seen = [lab.observed(function.address) for function in functions]
        for name, series, work in (
            ("attach", attach, lambda s=seen: attach_all(lab, s, target)),
            ("detach", detach, lambda: detach_all(lab)),
        ):
            timed.spent_ms, timed.requests = 0.0, 0
            steps.clear()
            series.time(work)
            parts[name].append((timed.spent_ms, timed.requests, len(steps) // 2))
    for name, series, bare in (("attach", attach, bare_in), ("detach", detach, bare_out)):
        netlink = statistics.median(part[0] for part in parts[name])
        requests = statistics.median(part[1] for part in parts[name])
        # One commit a begun step, two around them; releasing marks each step undone as well.
        per_step = 2 if name == "detach" else 1
        disk = (statistics.median(part[2] for part in parts[name]) * per_step + 2 * count) * commit_ms
        total, kernel = series.p(50), bare.p(50) * count
        print(
            f"{name} of {count:2}  p50 {total:7.2f} ms  p99 {series.p(99):7.2f} ms"
            f"  bare move {kernel:6.2f} ms ({kernel / total:4.0%})"
            f"  netlink {netlink:6.2f} ms ({netlink / total:4.0%}, {requests:.0f} requests)"
            f"  disk ~{disk:6.2f} ms ({disk / total:4.0%})  = {total / kernel:4.1f} x the bare move"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--many", type=int, default=8, help="functions of one target in the second measurement")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("attach.py: needs root, for network namespaces", file=sys.stderr)
        return 2
    for count in (1, options.many):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, host_namespace():
            lab = Lab(Path(directory), transport=(timed := Timed()))
            try:
                commit = commits(lab, 50)
                if count == 1:
                    print(f"one commit of the journal: p50 {commit.p(50):.2f} ms, p99 {commit.p(99):.2f} ms")
                measure(lab, timed, count, options.rounds, commit.p(50))
            finally:
                lab.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
