"""Attach and detach cut off before and after every effect, by a failure and by a crash, and then run again.

A crash is a BaseException out of the watcher: nothing of the code's own error handling may run, as when it
is killed. A failure is an ordinary exception: it must be undone. Both times the next run has to end in the
state of the undisturbed run, on InfiniBand and on RoCE, with RDMA namespaces exclusive.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace as with_fields
from pathlib import Path

import pytest
from msgspec.structs import replace
from netlab import BOOT, Lab, attachment, host_namespace, sample

from linkwright.kernel.links import Link
from linkwright.model.documents import Interface
from linkwright.model.errors import LinkwrightError
from linkwright.model.records import Attachment, AttachmentState
from linkwright.model.values import LinkMode
from linkwright.targets import container
from linkwright.targets.steps import Moment

NET1 = Interface(
    name="net1", mtu=1450, addresses=("10.9.0.1/24",), routes=({"to": "10.8.0.0/16", "via": "10.9.0.254"},),
    rdma_name="rdma0",
)  # fmt: skip


class Crash(BaseException):
    """The process is gone."""


class Refusal(OSError):
    """The kernel said no."""

    def __init__(self) -> None:
        super().__init__(22, "Invalid argument")


class World:
    """One function, one target, and what an agent would do about them."""

    def __init__(self, root: Path, mode: LinkMode) -> None:
        self.lab = Lab(root)
        self.mode = mode
        self.lab.ctx = with_fields(self.lab.ctx, host_rdma_netns="exclusive")
        self.function = self.lab.function()
        link = self.lab.at_home(self.function.address)
        assert link is not None
        self.lab.links.change(link.ifindex, add_altnames=["rail0", "net1"], up=True)
        if mode is LinkMode.INFINIBAND:
            self.lab.transport.infiniband.add(self.function.address)
        self.lab.rdma.add(self.function.address, 0, "mlx5_0")
        self.target = self.lab.target()

    def watch(self, watcher: Callable[[Moment, str, str], None]) -> None:
        self.lab.ctx = with_fields(self.lab.ctx, watch=watcher)

    def attach(self) -> Attachment:
        function = self.lab.observed(self.function.address)
        record = self.lab.store.attachment("trainer-0", "net1") or attachment(function)
        return container.attach(self.lab.ctx, record, NET1, function, self.mode, self.target.state)

    def detach(self) -> Attachment:
        record = self.lab.store.attachment("trainer-0", "net1")
        assert record is not None
        return container.detach(self.lab.ctx, record)

    def state(self) -> dict[str, object]:
        """Everything that must be the same in the end: both namespaces, RDMA, records, journal."""
        address = self.function.address
        there = self.lab.find(address, self.target.fd)
        at_home = self.lab.find(address, None)
        record = self.lab.store.attachment("trainer-0", "net1")
        return {
            "target": _link(there),
            "addresses": sorted(
                a.text for a in self.lab.links.addresses(there.ifindex, self.target.fd) if not a.link_local
            )
            if there
            else [],
            "routes": sorted(r.to for r in self.lab.links.routes(self.target.fd) if r.protocol != 2),
            "host": _link(at_home),
            "rdma": [(n, self.lab.rdma.where[i]) for i, n in self.lab.rdma.names.items()],
            "record": record and replace(record, since=0.0, netns_path="", reason=""),
            "journal": self.lab.store.open_operations(),
            "others": [len(self.lab.links.dump(ns)) for ns in (None, self.target.fd)],
        }


def _link(link: Link | None) -> object:
    if link is None:
        return None
    # An IPoIB netdev made anew has another queue pair number in its address, and altnames die with it.
    return (link.name, link.mtu, link.up, link.alias, sorted(link.altnames), link.link_type)


class Points:
    """Counts the moments of a run; raises at the wanted one."""

    def __init__(self, at: int | None = None, what: type[BaseException] = Crash) -> None:
        self.seen: list[str] = []
        self._at = at
        self._what = what

    def __call__(self, moment: Moment, subject: str, step: str) -> None:
        self.seen.append(f"{moment} {step}")
        if len(self.seen) - 1 == self._at:
            raise self._what


def normal(state: dict[str, object], inode: int | None) -> str:
    return repr(state).replace(f"netns_inode={inode}", "netns_inode=N").replace(f", {inode})", ", N)")


def undisturbed(root: Path, mode: LinkMode, *, detach: bool) -> tuple[str, list[str]]:
    with host_namespace():
        world = World(root, mode)
        try:
            if detach:
                world.attach()
            points = Points()
            world.watch(points)
            world.detach() if detach else world.attach()
            return normal(world.state(), world.target.state.netns_inode), points.seen
        finally:
            world.lab.close()


@pytest.mark.parametrize("mode", list(LinkMode))
@pytest.mark.parametrize("what", [Crash, Refusal])
@pytest.mark.parametrize("operation", ["attach", "detach"])
def test_every_point(tmp_path: Path, operation: str, what: type[BaseException], mode: LinkMode) -> None:
    detach = operation == "detach"
    wanted, points = undisturbed(tmp_path / "undisturbed", mode, detach=detach)
    assert len(points) >= 10
    offset = ["attach", "detach"].index(operation) + [Crash, Refusal].index(what) + list(LinkMode).index(mode)
    for at in sample(len(points), offset):
        got = interrupted(tmp_path / str(at), mode, [at], what, detach=detach)
        assert got == wanted, f"{what.__name__} {points[at]}"


@pytest.mark.parametrize("mode", list(LinkMode))
def test_pairs_of_crashes(tmp_path: Path, mode: LinkMode) -> None:
    """The recovery is cut off too; a seeded sample of all pairs."""
    wanted, points = undisturbed(tmp_path / "undisturbed", mode, detach=False)
    pairs = list(itertools.product(range(len(points)), repeat=2))
    for number, pair in enumerate(random.Random(7).sample(pairs, 4)):
        assert interrupted(tmp_path / str(number), mode, list(pair), Crash, detach=False) == wanted, pair


def interrupted(root: Path, mode: LinkMode, at: list[int], what: type[BaseException], *, detach: bool) -> str:
    root.mkdir()
    with host_namespace():
        world = World(root, mode)
        try:
            if detach:
                world.attach()
            for point in at:
                world.watch(Points(point, what))
                try:
                    world.detach() if detach else world.attach()
                except Crash:
                    (open_operation,) = world.lab.store.open_operations()
                    assert open_operation.intent
                except LinkwrightError:
                    record = world.lab.store.attachment("trainer-0", "net1")
                    assert record is not None
                    assert record.state is AttachmentState.ASSIGNED, record.reason
                    assert world.lab.store.open_operations() == ()
            world.watch(lambda moment, subject, step: None)
            world.detach() if detach else world.attach()
            return normal(world.state(), world.target.state.netns_inode)
        finally:
            world.lab.close()


def test_a_crash_in_attach_can_also_be_taken_back(tmp_path: Path) -> None:
    """The target's document was deleted while the agent was away: recovery releases instead."""
    _, points = undisturbed(tmp_path / "undisturbed", LinkMode.ROCE, detach=False)
    for at in range(0, len(points), 3):
        (tmp_path / str(at)).mkdir()
        with host_namespace():
            world = World(tmp_path / str(at), LinkMode.ROCE)
            before = world.state()
            world.watch(Points(at))
            with pytest.raises(Crash):
                world.attach()
            world.watch(lambda moment, subject, step: None)
            assert world.detach().state is AttachmentState.ASSIGNED
            after = world.state()
            world.lab.close()
            assert {**after, "record": None} == {**before, "record": None}, points[at]


def test_the_order_of_rdma_device_and_netdev(tmp_path: Path) -> None:
    orders = {}
    for mode in LinkMode:
        (tmp_path / mode.value).mkdir()
        for detach in (False, True):
            root = tmp_path / f"{mode.value}-{detach}"
            _, points = undisturbed(root, mode, detach=detach)
            orders[mode, detach] = [
                p.removeprefix("before ").removeprefix("undo ")
                for p in points
                if p.startswith("before") and p.endswith(("rdma device", "netdev"))
            ]
    assert orders[LinkMode.INFINIBAND, False] == ["rdma device", "netdev"]
    assert orders[LinkMode.ROCE, False] == ["netdev", "rdma device"]
    assert orders[LinkMode.ROCE, True] == ["rdma device", "netdev"]
    # In InfiniBand mode the netdev comes home by itself: made anew where the RDMA device goes.
    assert orders[LinkMode.INFINIBAND, True] == ["rdma device"]


@pytest.mark.parametrize("mode", list(LinkMode))
def test_rdma_names_and_shared_mode(tmp_path: Path, mode: LinkMode) -> None:
    with host_namespace():
        world = World(tmp_path, mode)
        world.lab.ctx = with_fields(world.lab.ctx, host_rdma_netns="shared")
        got = world.attach()
        assert got.state is AttachmentState.ATTACHED
        assert not got.rdma_moved
        assert "shared mode" in got.reason
        assert world.lab.rdma.calls == ["rename rdma0"]
        assert world.detach().state is AttachmentState.ASSIGNED
        assert world.lab.rdma.names == {0: "mlx5_0"}
        world.lab.rdma.add("0000:3b:00.0", 1, "rdma0")
        world.lab.rdma.functions[1] = "elsewhere"
        world.lab.rdma._show(0)
        with pytest.raises(LinkwrightError, match="unique over all namespaces"):
            world.attach()
        world.lab.close()


def test_the_namespace_died_with_an_rdma_device_in_it(tmp_path: Path) -> None:
    with host_namespace():
        world = World(tmp_path, LinkMode.ROCE)
        before = world.state()
        got = world.attach()
        assert got.rdma_moved
        world.lab.namespace_dies(world.target, world.function.address, after_s=0.2)
        assert world.detach().state is AttachmentState.ASSIGNED
        after = world.state()
        world.lab.close()
        assert (after["host"], after["rdma"]) == (before["host"], before["rdma"])
        assert got.boot_id == BOOT
