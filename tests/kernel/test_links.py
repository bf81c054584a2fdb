"""Links, addresses and routes on real network namespaces; every test makes its own."""

from __future__ import annotations

import errno
import os
import selectors
from collections.abc import Iterator

import netkit
import pytest

from linkwright.kernel.links import Link, Links, MoveFailed
from linkwright.kernel.netlink.transport import KernelTransport

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")


@pytest.fixture
def transport() -> KernelTransport:
    return KernelTransport()


@pytest.fixture
def links(transport: KernelTransport) -> Links:
    return Links(transport)


@pytest.fixture
def here() -> Iterator[int]:
    with netkit.new_netns() as fd:
        yield fd


@pytest.fixture
def there() -> Iterator[int]:
    with netkit.new_netns() as fd:
        yield fd


@pytest.fixture
def veth(transport: KernelTransport, links: Links, here: int) -> Link:
    netkit.add_veth(transport, here, "enp59s0np0", "peer0")
    link = links.get("enp59s0np0", netns=here)
    assert link is not None
    return link


def test_get_by_name_index_and_altname(links: Links, here: int, veth: Link) -> None:
    assert (veth.link_type, veth.kind, veth.up, veth.parent) == (1, "veth", False, "")
    assert veth.max_mtu == 65535
    assert len(veth.address) == 17
    assert veth.broadcast == "ff:ff:ff:ff:ff:ff"
    assert links.get(ifindex=veth.ifindex, netns=here) == veth
    long_name = "enx-a-name-longer-than-fifteen"
    changed = links.change(veth.ifindex, here, add_altnames=[long_name, "short-alt"])
    assert set(changed.altnames) == {long_name, "short-alt"}
    assert links.get(long_name, netns=here) == changed
    assert links.change(veth.ifindex, here, del_altnames=[long_name, "short-alt"]).altnames == ()


def test_nothing_there_is_none(links: Links, here: int) -> None:
    assert links.get("nosuch0", netns=here) is None
    assert links.get(ifindex=4242, netns=here) is None
    assert links.get("enp59s0np0") is None
    assert [link.name for link in links.dump(here)] == ["lo"]


def test_change_in_place(links: Links, here: int, veth: Link) -> None:
    changed = links.change(
        veth.ifindex, here, name="net1", mtu=9000, address="02:00:00:00:00:07", alias="trainer-0 net1", up=True
    )
    assert (changed.name, changed.mtu, changed.address) == ("net1", 9000, "02:00:00:00:00:07")
    assert (changed.alias, changed.up, changed.carrier) == ("trainer-0 net1", True, False)
    peer = links.get("peer0", netns=here)
    assert peer is not None
    links.change(peer.ifindex, here, up=True)
    now = links.get("net1", netns=here)
    assert now is not None
    assert (now.carrier, now.operstate) == (True, "up")
    assert links.change(veth.ifindex, here, alias="", up=False).alias == ""


def test_a_refused_change_tells_the_kernels_words(links: Links, here: int, veth: Link) -> None:
    with pytest.raises(OSError, match="mtu greater than device maximum") as caught:
        links.change(veth.ifindex, here, mtu=100000)
    assert caught.value.errno == errno.EINVAL
    assert not isinstance(caught.value, MoveFailed)


def test_move_renames_and_sets_in_one_request(links: Links, here: int, there: int, veth: Link) -> None:
    moved = links.change(
        veth.ifindex, here, move_to=there, name="net1", mtu=4000, alias="x", add_altnames=["rail0"]
    )
    assert (moved.name, moved.mtu, moved.alias, moved.altnames) == ("net1", 4000, "x", ("rail0",))
    assert moved.same_device(veth)
    assert links.get(ifindex=veth.ifindex, netns=here) is None
    back = links.change(moved.ifindex, there, move_to=here, name="enp59s0np0", del_altnames=["rail0"])
    assert (back.name, back.altnames) == ("enp59s0np0", ())


def test_move_to_a_taken_index_gets_another(
    transport: KernelTransport, links: Links, here: int, there: int, veth: Link
) -> None:
    netkit.add_veth(transport, there, "a0", "b0")
    netkit.add_veth(transport, there, "a1", "b1")
    taken = {link.ifindex for link in links.dump(there)}
    assert veth.ifindex in taken
    moved = links.change(veth.ifindex, here, move_to=there, name="net1")
    assert moved.ifindex not in taken


def test_move_onto_a_taken_name_moves_nothing(
    transport: KernelTransport, links: Links, here: int, there: int, veth: Link
) -> None:
    netkit.add_veth(transport, there, "net1", "b0")
    with pytest.raises(MoveFailed) as caught:
        links.change(veth.ifindex, here, move_to=there, name="net1")
    assert caught.value.errno == errno.EEXIST
    assert caught.value.moved is False
    assert caught.value.link is not None
    assert caught.value.link.name == "enp59s0np0"
    assert links.get("enp59s0np0", netns=here) == veth


def test_failed_move_is_looked_for_in_both_namespaces(
    transport: KernelTransport, links: Links, here: int, there: int, veth: Link
) -> None:
    """An alternative name equal to the new name: EEXIST, yet the link has moved, under its old name."""
    links.change(veth.ifindex, here, add_altnames=["net1"])
    with pytest.raises(MoveFailed) as caught:
        links.change(veth.ifindex, here, move_to=there, name="net1")
    problem = caught.value
    assert problem.errno == errno.EEXIST
    assert problem.link is not None
    place, other = (there, here) if problem.moved else (here, there)
    found = links.get(problem.link.name, netns=place)
    assert found is not None
    assert found.same_device(veth)
    assert all(not link.same_device(veth) for link in links.dump(other))


def test_a_bad_setting_beside_the_move_leaves_the_link_moved(
    links: Links, here: int, there: int, veth: Link
) -> None:
    with pytest.raises(MoveFailed) as caught:
        links.change(veth.ifindex, here, move_to=there, name="net1", mtu=100000)
    assert caught.value.moved is True
    assert caught.value.link is not None
    assert links.get(ifindex=caught.value.link.ifindex, netns=there) == caught.value.link


def test_move_of_nothing(links: Links, here: int, there: int) -> None:
    with pytest.raises(MoveFailed) as caught:
        links.change(777, here, move_to=there, name="net1")
    assert (caught.value.moved, caught.value.link, caught.value.errno) == (False, None, errno.ENODEV)


def test_addresses(links: Links, here: int, veth: Link) -> None:
    links.change(veth.ifindex, here, up=True)
    for _ in range(2):  # the second time changes nothing
        links.add_address(veth.ifindex, "10.9.0.1/24", netns=here)
        links.add_address(veth.ifindex, "10.9.1.0/31", netns=here)
        links.add_address(veth.ifindex, "fd00:9::1/64", netns=here)
    found = {a.text: a for a in links.addresses(veth.ifindex, here) if not a.link_local}
    assert set(found) == {"10.9.0.1/24", "10.9.1.0/31", "fd00:9::1/64"}
    assert found["10.9.0.1/24"].broadcast == "10.9.0.255"
    assert found["10.9.1.0/31"].broadcast == ""
    assert found["fd00:9::1/64"].flags & 0x40 == 0, "tentative: duplicate address detection was not skipped"
    assert len(links.addresses(netns=here)) >= 3
    with pytest.raises(OSError, match="No such device"):
        links.addresses(4242, here)


def test_routes(links: Links, here: int, veth: Link) -> None:
    links.change(veth.ifindex, here, up=True)
    peer = links.get("peer0", netns=here)
    assert peer is not None
    links.change(peer.ifindex, here, up=True)
    links.add_address(veth.ifindex, "10.9.0.1/24", netns=here)
    links.add_address(veth.ifindex, "fd00:9::1/64", netns=here)
    for _ in range(2):
        links.add_route("default", via="10.9.0.254", ifindex=veth.ifindex, netns=here)
        links.add_route("10.20.0.0/16", via="192.0.2.1", ifindex=veth.ifindex, onlink=True, metric=50, netns=here)
        links.add_route("10.30.0.0/16", ifindex=veth.ifindex, netns=here)
        links.add_route("default", via="fd00:9::fe", ifindex=veth.ifindex, netns=here)
        links.add_route("10.40.0.0/16", via="fd00:9::fe", ifindex=veth.ifindex, netns=here)
    mine = [r for r in links.routes(here) if r.protocol == 4]
    seen = {(r.to, r.via, r.onlink) for r in mine}
    assert seen == {
        ("default", "10.9.0.254", False),
        ("default", "fd00:9::fe", False),
        ("10.20.0.0/16", "192.0.2.1", True),
        ("10.30.0.0/16", "", False),
        ("10.40.0.0/16", "fd00:9::fe", False),
    }
    assert {r.ifindex for r in mine} == {veth.ifindex}
    kernel_made = {r.to for r in links.routes(here) if r.protocol == 2}
    assert {"10.9.0.0/24", "fd00:9::/64"} <= kernel_made


def test_events_tell_of_a_move(links: Links, here: int, there: int, veth: Link) -> None:
    events = links.events(netns=there)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(events.fileno(), selectors.EVENT_READ)
            links.change(veth.ifindex, here, move_to=there, name="net1")
            assert selector.select(5)
        assert any(message.type == 16 for message in events.read())
    finally:
        events.close()


def test_vf_settings_need_a_pf(links: Links, here: int, veth: Link) -> None:
    with pytest.raises(OSError, match="support") as caught:
        links.set_vf(veth.ifindex, 0, mac="02:00:00:00:00:01", netns=here)
    assert caught.value.errno == errno.EOPNOTSUPP
    assert links.vf_info(veth.ifindex, netns=here) == []
    links.set_vf(veth.ifindex, 0, netns=here)  # nothing asked, nothing sent
