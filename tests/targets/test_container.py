"""Attach and detach on real namespaces: what is there afterwards, what is said, and what is left behind."""

from __future__ import annotations

import errno
from dataclasses import replace as with_fields

import pytest
from msgspec.structs import replace
from netlab import Lab, Target, attachment, run

from linkwright.kernel.links import Link
from linkwright.kernel.netlink import constants
from linkwright.model.documents import Interface
from linkwright.model.errors import HardwareFault, InvalidInput, LinkwrightError, Refused, Vanished
from linkwright.model.inventory import Function
from linkwright.model.plan import TargetState
from linkwright.model.records import Attachment, AttachmentState
from linkwright.model.values import LinkMode
from linkwright.targets import container
from linkwright.targets.scene import pinned

NET1 = Interface(
    name="net1",
    addresses=("10.9.0.1/24", "fd00:9::1/64"),
    routes=({"to": "10.8.0.0/16", "via": "10.9.0.254"}, {"to": "default", "via": "10.9.0.254"}),
)


def give(
    lab: Lab,
    function: Function,
    target: Target,
    interface: Interface = NET1,
    mode: LinkMode = LinkMode.ROCE,
    mtu: int | None = None,
    **fields: object,
) -> Attachment:
    record = lab.store.attachment("trainer-0", interface.name) or replace(
        attachment(function), interface=interface.name, **fields
    )
    return container.attach(lab.ctx, record, interface, function, mode, target.state, mtu)


def home(lab: Lab, function: Function) -> Link:
    """The function's netdev in the host, as comparable values (the index may change over a move)."""
    link = lab.at_home(function.address)
    assert link is not None
    return with_fields(link, ifindex=0, carrier=False, operstate="", link=None, link_netnsid=None)


def inside(lab: Lab, target: Target, name: str = "net1") -> Link:
    link = lab.links.get(name=name, netns=target.fd)
    assert link is not None
    return link


def test_there_and_back_again(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    ifindex = lab.links.get(name="enp59s0f0np0").ifindex
    lab.links.change(ifindex, alias="rack 7", add_altnames=["rail0", "net1"], up=True, mtu=1400)
    before = home(lab, function)
    got = give(lab, function, target, mtu=1450, mac="02:00:00:00:00:99")
    assert got.state is AttachmentState.ATTACHED
    assert lab.store.attachments() == (got,)
    assert got.before is not None
    assert (got.before.name, got.before.mtu, got.before.up) == ("enp59s0f0np0", 1400, True)
    link = inside(lab, target)
    assert (link.mtu, link.address, link.up, link.alias) == (
        1450,
        "02:00:00:00:00:99",
        True,
        "linkwright:trainer-0/net1",
    )
    assert link.altnames == ("rail0",)
    addresses = {a.text for a in lab.links.addresses(link.ifindex, target.fd)}
    assert {"10.9.0.1/24", "fd00:9::1/64"} <= addresses
    routes = {(r.to, r.via) for r in lab.links.routes(target.fd)}
    assert {("10.8.0.0/16", "10.9.0.254"), ("default", "10.9.0.254")} <= routes
    assert lab.at_home(function.address) is None

    back = container.detach(lab.ctx, got)
    assert back.state is AttachmentState.ASSIGNED
    assert (back.before, back.netns_inode, back.reason) == (None, None, "")
    after = home(lab, function)
    assert set(after.altnames) == set(before.altnames)
    assert with_fields(after, altnames=()) == with_fields(before, altnames=())
    assert [link.name for link in lab.links.dump(target.fd)] == ["lo"]
    assert lab.store.open_operations() == ()


def test_attached_twice_is_attached_once(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    first = give(lab, function, target)
    effects: list[str] = []
    lab.ctx = with_fields(lab.ctx, watch=lambda moment, subject, step: effects.append(step))
    assert give(lab, lab.observed(function.address), target) == first
    assert effects == []


def test_spelling_of_addresses_and_routes_does_not_matter(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    interface = Interface(
        name="net1",
        addresses=("fd00:0009::0001/64", "10.9.0.1/24"),
        routes=(
            {"to": "fd00:8:0::1/48", "via": "fd00:9:0:0::fe"},
            {"to": "10.8.1.2/16"},
            {"to": "default", "via": "fd00:9::fe"},
        ),
    )
    first = give(lab, function, target, interface)
    assert {("fd00:8::/48", "fd00:9::fe"), ("10.8.0.0/16", ""), ("default", "fd00:9::fe")} <= {
        (r.to, r.via) for r in lab.links.routes(target.fd)
    }
    assert give(lab, lab.observed(function.address), target, interface) == first


def test_detached_twice_is_detached_once(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    got = give(lab, function, target)
    once = container.detach(lab.ctx, got)
    assert container.detach(lab.ctx, got) == once
    assert container.detach(lab.ctx, once) == once


def test_drift_inside_is_put_right(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    got = give(lab, function, target)
    lab.links.change(inside(lab, target).ifindex, target.fd, up=False)  # takes routes and IPv6 addresses with it
    again = give(lab, lab.observed(function.address), target)
    assert again.before == got.before
    assert inside(lab, target).up
    assert {r.to for r in lab.links.routes(target.fd)} >= {"default", "10.8.0.0/16"}


def test_a_name_that_the_target_has_is_refused_and_nothing_changes(lab: Lab) -> None:
    function, target = lab.function(name="eth0"), lab.target()
    run("ip", "link", "add", "other", "type", "veth", "peer", "name", "other2")
    lab.links.change(lab.links.get(name="other").ifindex, name="eth0x", move_to=target.fd)
    lab.links.change(lab.links.get(name="eth0x", netns=target.fd).ifindex, target.fd, name="net1")
    before = home(lab, function)
    with pytest.raises(Refused, match="has an interface net1 already") as caught:
        give(lab, function, target)
    assert caught.value.code == "name-taken"
    assert home(lab, function) == before
    assert lab.store.attachments() == ()
    assert lab.store.open_operations() == ()


def test_altname_equal_to_a_name_inside_is_left_at_home(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    run("ip", "link", "add", "other", "type", "veth", "peer", "name", "other2")
    lab.links.change(lab.links.get(name="other").ifindex, name="rail0", move_to=target.fd)
    lab.links.change(lab.links.get(name="enp59s0f0np0").ifindex, add_altnames=["rail0"])
    got = give(lab, function, target)
    assert inside(lab, target).altnames == ()
    container.detach(lab.ctx, got)
    assert home(lab, function).altnames == ("rail0",)


def test_the_hosts_own_namespace_is_refused(lab: Lab) -> None:
    function = lab.function()
    for state in (
        TargetState(state="host-network"),
        TargetState(state="running", netns_path="/proc/self/ns/net"),
    ):
        with pytest.raises(Refused) as caught:
            container.attach(lab.ctx, attachment(function), NET1, function, LinkMode.ROCE, state)
        assert caught.value.code == "host-network"


def test_a_target_that_does_not_run_or_was_restarted(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    for state, code in (
        (TargetState(state="stopped"), "target-not-running"),
        (replace(target.state, netns_inode=1), "netns-changed"),
        (replace(target.state, netns_path="/proc/4194304/ns/net"), "netns-gone"),
    ):
        with pytest.raises(Vanished) as caught:
            container.attach(lab.ctx, attachment(function), NET1, function, LinkMode.ROCE, state)
        assert caught.value.code == code
    assert lab.store.attachments() == ()


def test_a_function_in_use_is_not_taken(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    ifindex = lab.links.get(name="enp59s0f0np0").ifindex
    lab.links.add_address(ifindex, "192.0.2.7/24")
    with pytest.raises(Refused, match=r"192\.0\.2\.7/24") as caught:
        give(lab, function, target)
    assert caught.value.code == "in-use"
    run("ip", "addr", "flush", "dev", "enp59s0f0np0")
    run("ip", "link", "add", "br0", "type", "bridge")
    run("ip", "link", "set", "enp59s0f0np0", "master", "br0")
    with pytest.raises(Refused, match="part of br0"):
        give(lab, function, target)
    run("ip", "link", "set", "enp59s0f0np0", "nomaster")
    lab.rdma.add(function.address, 0, "mlx5_0")
    lab.rdma.users = ("nvme_rdma",)
    with pytest.raises(Refused, match="nvme_rdma uses mlx5_0"):
        give(lab, function, target)
    assert lab.store.attachments() == ()


def test_an_address_that_a_network_manager_gave_between_two_containers_does_not_keep_it(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    released = container.detach(lab.ctx, give(lab, function, target))
    ifindex = lab.links.get(name="enp59s0f0np0").ifindex
    lab.links.add_address(ifindex, "192.0.2.7/24")
    again = container.attach(
        lab.ctx, released, NET1, lab.observed(function.address), LinkMode.ROCE, target.state
    )
    assert again.state is AttachmentState.ATTACHED


def test_a_function_that_others_moved_is_not_taken(lab: Lab) -> None:
    function, target, other = lab.function(), lab.target(), lab.target()
    lab.links.change(lab.links.get(name="enp59s0f0np0").ifindex, move_to=other.fd)
    with pytest.raises(Refused) as caught:
        give(lab, lab.observed(function.address), target)
    assert caught.value.code == "held-elsewhere"
    with pytest.raises(Refused, match="not by us"):
        give(lab, lab.observed(function.address), other)


def test_wrong_mode_and_wrong_mtu_are_said_before_anything(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    with pytest.raises(HardwareFault) as caught:
        give(lab, function, target, mode=LinkMode.INFINIBAND)
    assert caught.value.code == "mode-mismatch"
    with pytest.raises(InvalidInput, match="65535") as wrong:
        give(lab, function, target, mtu=70000)
    assert wrong.value.code == "mtu-out-of-range"
    assert lab.store.attachments() == ()


@pytest.mark.parametrize(
    ("message", "attribute", "text"),
    [
        (constants.RTM_SETLINK, constants.IFLA_MTU, "mtu"),
        (constants.RTM_SETLINK, constants.IFLA_ADDRESS, "mac"),
        (constants.RTM_NEWADDR, constants.IFA_LOCAL, "10.9.0.1/24"),
        (constants.RTM_NEWROUTE, constants.RTA_GATEWAY, "10.8.0.0/16"),
        (constants.RTM_SETLINK, constants.IFLA_NET_NS_FD, "netdev"),
    ],
)
def test_a_refused_step_undoes_everything(lab: Lab, message: int, attribute: int, text: str) -> None:
    function, target = lab.function(), lab.target()
    before = home(lab, function)
    lab.transport.refuse[message, attribute] = errno.EINVAL
    if attribute in (constants.IFLA_MTU, constants.IFLA_ADDRESS):
        give_fields = {"mtu": 1450, "mac": "02:00:00:00:00:99"}
    else:
        give_fields = {}
    with pytest.raises(LinkwrightError, match=text) as caught:
        give(lab, function, target, **give_fields)
    assert "Undoing" not in str(caught.value)
    assert home(lab, function) == before
    (record,) = lab.store.attachments()
    assert record.state is AttachmentState.ASSIGNED
    assert record.before is None
    assert text in record.reason
    assert lab.store.open_operations() == ()
    lab.transport.refuse.clear()
    assert give(lab, lab.observed(function.address), target, **give_fields).state is AttachmentState.ATTACHED


def test_a_failed_undo_is_quarantined_with_both_reasons_and_never_free(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    got = give(lab, function, target, mtu=1450)
    lab.transport.refuse[constants.RTM_SETLINK, constants.IFLA_MTU] = errno.EBUSY
    lab.transport.refuse[constants.RTM_SETLINK, constants.IFLA_IFALIAS] = errno.EPERM
    stuck = container.detach(lab.ctx, got)
    assert stuck.state is AttachmentState.QUARANTINED
    assert "undo mtu" in stuck.reason
    assert "undo alias" in stuck.reason
    assert stuck.before == got.before
    assert home(lab, function).name == "enp59s0f0np0"  # what could be done was done
    with pytest.raises(Refused) as caught:
        give(lab, lab.observed(function.address), target)
    assert caught.value.code == "quarantined"
    lab.transport.refuse.clear()
    freed = container.detach(lab.ctx, stuck)
    assert freed.state is AttachmentState.ASSIGNED
    assert (home(lab, function).mtu, home(lab, function).alias) == (1500, "")


def test_its_old_name_is_taken_meanwhile(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    got = give(lab, function, target)
    run("ip", "link", "add", "enp59s0f0np0", "type", "bridge")
    stuck = container.detach(lab.ctx, got)
    assert stuck.state is AttachmentState.QUARANTINED
    assert "enp59s0f0np0, is used by another device" in stuck.reason
    link = home(lab, function)
    assert (link.name, link.alias) == ("lw00003b000", "")
    run("ip", "link", "del", "enp59s0f0np0")
    assert container.detach(lab.ctx, stuck).state is AttachmentState.ASSIGNED
    assert home(lab, function).name == "enp59s0f0np0"


@pytest.mark.parametrize("name", [None, "net1"])
def test_the_namespace_died_and_the_netdev_comes_back_late(lab: Lab, name: str | None) -> None:
    function, target = lab.function(), lab.target()
    before = home(lab, function)
    got = give(lab, function, target, mtu=1450)
    lab.namespace_dies(target, function.address, after_s=0.3, name=name)
    back = container.detach(lab.ctx, got)
    assert back.state is AttachmentState.ASSIGNED, back.reason
    assert home(lab, function) == before


def test_the_netdev_never_comes_back_and_its_driver_is_bound_anew(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, target = lab.function(), lab.target()
    lab.ctx = with_fields(lab.ctx, wait_s=0.3)
    got = give(lab, function, target)
    target.end()
    rebound: list[str] = []
    monkeypatch.setattr("linkwright.kernel.sriov.rebind", lambda system, address: rebound.append(address))
    stuck = container.detach(lab.ctx, got)
    assert rebound == [function.address]
    assert stuck.state is AttachmentState.QUARANTINED
    assert "did not come back within 0 s, nor after its driver was bound anew" in stuck.reason

    def rebind(system: object, address: str) -> None:
        link = lab.find(address, target.fd)
        assert link is not None
        lab.links.change(link.ifindex, target.fd, move_to=lab_home)

    with pinned_home() as lab_home:
        monkeypatch.setattr("linkwright.kernel.sriov.rebind", rebind)
        assert container.detach(lab.ctx, stuck).state is AttachmentState.ASSIGNED
    assert home(lab, function).name == "enp59s0f0np0"


def test_a_function_that_is_gone_is_released(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    got = give(lab, function, target)
    run("nsenter", f"--net=/proc/{target.process.pid}/ns/net", "ip", "link", "del", "net1")
    (lab.system.sys / "bus/pci/devices" / function.address).rmdir()
    assert container.detach(lab.ctx, got).state is AttachmentState.ASSIGNED


def test_a_restart_has_undone_it(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    got = give(lab, function, target)
    lab.links.change(inside(lab, target).ifindex, target.fd, name="enp59s0f0np0")
    lab.ctx = with_fields(lab.ctx, boot_id="another boot")
    assert container.detach(lab.ctx, got).state is AttachmentState.ASSIGNED
    assert inside(lab, target, "enp59s0f0np0").name == "enp59s0f0np0"  # not touched


def test_home_already_by_other_hands(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    before = home(lab, function)
    got = give(lab, function, target)
    with pinned_home() as fd:
        lab.links.change(inside(lab, target).ifindex, target.fd, name="dev77", move_to=fd)
    assert container.detach(lab.ctx, got).state is AttachmentState.ASSIGNED
    assert home(lab, function) == before


def test_a_late_release_of_somebody_else_has_no_effect(lab: Lab) -> None:
    function, first, second = lab.function(), lab.target(), lab.target()
    late = give(lab, function, first)
    container.detach(lab.ctx, late)
    lab.store.delete_attachment("trainer-0", "net1")
    now = container.attach(
        lab.ctx,
        attachment(function, "trainer-1"),
        NET1,
        lab.observed(function.address),
        LinkMode.ROCE,
        second.state,
    )
    container.detach(lab.ctx, late)
    assert lab.store.attachments() == (now,)
    assert inside(lab, second).alias == "linkwright:trainer-1/net1"


def test_a_restarted_container_gets_it_from_the_old_namespace(lab: Lab) -> None:
    function, old, new = lab.function(), lab.target(), lab.target()
    first = give(lab, function, old)
    again = give(lab, lab.observed(function.address), new)
    assert again.before == first.before
    assert again.netns_inode == new.state.netns_inode
    assert inside(lab, new).up
    assert lab.links.get(name="net1", netns=old.fd) is None


def test_the_path_is_replaced_but_the_namespace_lives(lab: Lab) -> None:
    function, target = lab.function(), lab.target()
    got = give(lab, function, target)
    moved = lab.store.put_attachment(replace(got, netns_path="/run/netns/gone"))
    assert container.detach(lab.ctx, moved).state is AttachmentState.ASSIGNED  # found by a process that is in it
    assert home(lab, function).name == "enp59s0f0np0"


def test_several_interfaces_with_one_pinned_namespace(lab: Lab) -> None:
    functions, target = [lab.function(n) for n in range(3)], lab.target()
    with pinned(lab.ctx, target.state) as namespace:
        for number, function in enumerate(functions):
            interface = Interface(name=f"net{number}", addresses=(f"10.9.{number}.1/24",))
            record = replace(attachment(function), interface=interface.name, vf_index=number)
            container.attach(
                lab.ctx, record, interface, function, LinkMode.ROCE, target.state, namespace=namespace
            )  # fmt: skip
    assert [link.name for link in lab.links.dump(target.fd)] == ["lo", "net0", "net1", "net2"]
    for record in lab.store.attachments():
        assert container.detach(lab.ctx, record).state is AttachmentState.ASSIGNED


def test_a_vf_mtu_above_its_pf_raises_the_pf_first(lab: Lab) -> None:
    pf, vf, target = lab.function(0), lab.function(2, vf=0), lab.target()
    give(lab, vf, target, mtu=9000)
    assert home(lab, pf).mtu == 9000
    assert inside(lab, target).mtu == 9000


def pinned_home():  # type: ignore[no-untyped-def]
    from linkwright.kernel import netns

    return netns.open_path("/proc/self/ns/net")
