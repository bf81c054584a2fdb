"""Attach and detach on an emulated host: RDMA namespaces, IPoIB netdevs that are made anew, VFs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated import Emulated, emulated, state
from netlab import sample

from linkwright.kernel import sriov
from linkwright.kernel.links import Link
from linkwright.model.documents import Interface
from linkwright.model.records import Attachment, AttachmentState
from linkwright.targets import container, functions

pytestmark = pytest.mark.lab

IB, ETH = "0000:3b:00.0/1", "0000:81:00.0/1"
NET1 = Interface(name="net1", addresses=("10.9.0.1/24",), rdma_name="mlx5_0")


class Crash(BaseException):
    """The process is gone."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Emulated]:
    with emulated(tmp_path) as made:
        yield made


def seen(host: Emulated, port: str, vf: int | None = None) -> tuple[object, ...]:
    """What has to be as before: names, values, GUIDs. The IPoIB queue pair number differs at each making."""
    function = host.function(port, vf)
    netdev, rdma = function.netdev, function.rdma
    assert netdev is not None
    assert rdma is not None
    tail = netdev.address[-23:]
    return (netdev.name, netdev.mtu, tail, netdev.up, netdev.alias, netdev.altnames, rdma.name, rdma.node_guid)


def inside(host: Emulated, fd: int) -> Link:
    link = host.ctx.links.get(name="net1", netns=fd)
    assert link is not None
    return link


@pytest.mark.parametrize("port", [IB, ETH])
def test_a_pf_there_and_back(host: Emulated, port: str) -> None:
    before, space = seen(host, port), host.rig.container()
    got = host.attach(port, None, NET1, space)
    assert got.state is AttachmentState.ATTACHED
    assert got.rdma_moved
    assert [d.name for d in host.ctx.rdma.devices(space.fd)] == ["mlx5_0"]
    link = inside(host, space.fd)
    assert (link.up, link.alias, link.parent) == (True, "linkwright:trainer-0/net1", port.partition("/")[0])
    assert host.function(port).net_elsewhere
    assert host.attach(port, None, NET1, space) == got
    assert container.detach(host.ctx, got).state is AttachmentState.ASSIGNED
    assert seen(host, port) == before
    assert host.ctx.rdma.devices(space.fd) == []


def prepare(host: Emulated, port: str, count: int) -> list[Attachment]:
    """What the agent does for VFs: PF up, VFs made, each with its identity."""
    found = host.port(port)
    functions.prepare_pf(host.ctx, found)
    sriov.set_num_vfs(host.ctx.system, found.pf.address, count)
    found = host.port(port)
    return [
        functions.prepare_vf(
            host.ctx, found, found.vfs[n], host.record(port, n, "net1", f"trainer-{n}"), NET1, found.observed_mode
        )
        for n in range(count)
    ]


def test_infiniband_vfs_have_guids_before_use_and_after_a_rebirth(host: Emulated) -> None:
    prepare(host, IB, 2)
    pf = host.port(IB).pf
    assert pf.rdma is not None
    first = [host.function(IB, n).rdma for n in range(2)]
    assert [r and r.node_guid for r in first] == [functions.vf_guid(pf.rdma.port_guid or "", n) for n in range(2)]
    sriov.set_num_vfs(host.ctx.system, pf.address, 0)
    prepare(host, IB, 2)
    assert [host.function(IB, n).rdma for n in range(2)] == first


def test_roce_vfs_have_macs_and_keep_them(host: Emulated) -> None:
    records = prepare(host, ETH, 2)
    shown = [host.function(ETH, n).netdev for n in range(2)]
    assert [n and n.address for n in shown] == [record.mac for record in records]
    assert len({record.mac for record in records}) == 2


@pytest.mark.parametrize("port", [IB, ETH])
def test_two_vfs_in_two_containers_and_one_dies(host: Emulated, port: str) -> None:
    prepare(host, port, 2)
    before = [seen(host, port, n) for n in range(2)]
    spaces = [host.rig.container() for _ in range(2)]
    got = []
    for n, space in enumerate(spaces):
        interface = Interface(name="net1", addresses=(f"10.9.0.{n + 1}/24",), rdma_name=f"mlx5_{n}")
        record = host.record(port, n, "net1", f"trainer-{n}")
        got.append(
            container.attach(host.ctx, record, interface, host.function(port, n), None, state(space))
        )  # fmt: skip
    assert [a.state for a in got] == [AttachmentState.ATTACHED] * 2
    assert spaces[0].ip("-br", "addr", "show", "dev", "net1").split()[2] == "10.9.0.1/24"
    spaces[0].end()
    assert container.detach(host.ctx, got[0]).state is AttachmentState.ASSIGNED
    assert seen(host, port, 0) == before[0]
    assert inside(host, spaces[1].fd).up
    assert container.detach(host.ctx, got[1]).state is AttachmentState.ASSIGNED
    assert seen(host, port, 1) == before[1]


@pytest.mark.parametrize("port", [IB, ETH])
@pytest.mark.parametrize("operation", ["attach", "detach"])
def test_crashes(host: Emulated, port: str, operation: str) -> None:
    before, space = seen(host, port), host.rig.container()
    points: list[str] = []

    def attach() -> Attachment:
        return host.attach(port, None, NET1, space)

    def detach() -> Attachment:
        return container.detach(host.ctx, host.record(port, None, "net1"))

    def cut(at: int | None) -> None:
        """One round, cut off at this point of the operation; then run again, and taken back."""
        if operation == "detach":
            attach()
        points.clear()

        def watch(moment: str, subject: str, step: str) -> None:
            points.append(f"{moment} {step}")
            if len(points) - 1 == at:
                raise Crash

        host.watch(watch)
        with contextlib.suppress(Crash):
            attach() if operation == "attach" else detach()
        host.watch(lambda moment, subject, step: None)
        if operation == "attach":
            assert attach().state is AttachmentState.ATTACHED
            assert inside(host, space.fd).up
        assert detach().state is AttachmentState.ASSIGNED
        assert seen(host, port) == before, points[-1]
        assert host.store.open_operations() == ()

    cut(None)
    for at in sample(len(points), len(operation)):
        cut(at)
