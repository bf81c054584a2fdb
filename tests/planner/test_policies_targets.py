"""Targets in real life: many rails, many targets, names that cannot be had twice, containers that come and go."""

from __future__ import annotations

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st
from questions import (
    CARD,
    IB,
    P1,
    P2,
    adapter,
    attached,
    away,
    function,
    in_use,
    kinds,
    policy,
    port,
    problem,
    question,
    running,
    target,
)
from simulate import Simulation

from linkwright.model.documents import Interface
from linkwright.model.inventory import Holder, RdmaDevice
from linkwright.model.plan import Attach, Detach, SetVfs, TargetState
from linkwright.model.records import AttachmentState, Before
from linkwright.planner import plan
from linkwright.planner.attach import wish_of

BOTH = {"pci_addresses": (f"{CARD}.0", f"{CARD}.1")}
WISH = Interface(name="net1", rdma_name="mlx5_0")


def given(made):
    return {(s.target, s.interface.name): (s.port, s.vf_index) for s in made.steps if isinstance(s, Attach)}


# -- many rails, many targets ----------------------------------------------------------------------------------


def test_eight_rails_for_one_target_are_eight_ports_of_one_policy():
    cards = [f"0000:{bus:02x}:00" for bus in range(0x10, 0x90, 0x10)]
    its = [adapter(port(1, IB, card=card)) for card in cards]
    rails = [Interface(name=f"rail{n}") for n in range(8)]
    made = plan(question(*its, policies=(policy(ports=(1,)),), targets=(target("a", "training", *rails),)))
    assert given(made) == {("a", f"rail{n}"): (f"{cards[n]}.0/1", None) for n in range(8)}
    assert kinds(made) == ["Attach"] * 8
    assert not made.problems


def test_a_ninth_rail_shares_a_port_and_then_both_have_vfs():
    its = adapter(port(1, IB), port(2, IB))
    made = plan(question(its, policies=(policy(**BOTH),), targets=(target("a", "training", "x", "y", "z"),)))
    assert given(made) == {("a", "x"): (P1, 0), ("a", "y"): (P2, None), ("a", "z"): (P1, 1)}


def test_ten_targets_on_one_port():
    names = [f"t{n}" for n in range(10)]
    made = plan(question(adapter(port(1, IB)), policies=(policy(),), targets=tuple(map(target, names))))
    vfs, *gives = made.steps
    assert isinstance(vfs, SetVfs)
    assert (vfs.before, vfs.count, vfs.needs) == (0, 10, None)
    assert [(s.target, s.vf_index) for s in gives] == [(f"t{n}", n) for n in range(10)]


def test_pf_and_vf_policies_side_by_side_on_a_dual_port_card():
    whole, shared = policy("whole", assign="PF"), policy("shared", assign="VF", pci_addresses=(f"{CARD}.1",))
    targets = (target("a", "whole"), target("b", "shared"), target("c", "shared"))
    made = plan(question(adapter(port(1, IB), port(2, IB)), policies=(whole, shared), targets=targets))
    assert given(made) == {("a", "net1"): (P1, None), ("b", "net1"): (P2, 0), ("c", "net1"): (P2, 1)}
    assert [(s.port, s.count) for s in made.steps if isinstance(s, SetVfs)] == [(P2, 2)]


# -- names -----------------------------------------------------------------------------------------------------


def test_two_new_targets_that_wish_one_rdma_name_are_both_refused_with_both_named():
    made = plan(
        question(
            adapter(port(1, IB), port(2, IB)),
            policies=(policy(**BOTH),),
            targets=(target("a", "training", WISH), target("b", "training", WISH), target("c")),
        )
    )
    assert set(given(made)) == {("c", "net1")}
    said = [p for p in made.problems if p.code == "rdma-name-taken"]
    assert [(p.subject, p.holder) for p in said] == [("target a", "b net1"), ("target b", "a net1")]
    assert said[0].text == (
        "a net1 and b net1 ask for the same rdmaName mlx5_0; names of RDMA devices are unique over all namespaces "
        "of a host."
    )
    assert {a.target for a in made.assignments} == {"c"}  # no slot is kept for who cannot have it


def test_whoever_has_the_rdma_name_keeps_it_whatever_the_others_are_called():
    made = plan(
        question(
            adapter(away(port(1, IB), None, "m"), port(2, IB)),
            policies=(policy(**BOTH),),
            targets=(target("a", "training", WISH), target("m", "training", WISH)),
            states={"a": running(5), "m": running(1)},
            records=(attached("m"),),
        )
    )
    assert not made.steps
    assert [(p.subject, p.holder) for p in made.problems] == [("target a", "m net1")]


def test_the_owner_of_a_name_gets_its_interface_again_after_a_restart_of_its_container():
    made = plan(
        question(
            adapter(port(1, IB), port(2, IB)),
            policies=(policy(**BOTH),),
            targets=(target("a", "training", WISH), target("m", "training", WISH)),
            states={"a": running(5), "m": running(7)},
            records=(attached("m", state=AttachmentState.ASSIGNED, inode=None),),
        )
    )
    assert given(made) == {("m", "net1"): (P1, None)}


def test_an_rdma_name_that_another_function_of_the_host_has_is_refused_before_the_attach():
    other = port(2, IB, pf=function(f"{CARD}.1", rdma=RdmaDevice(name="mlx5_0")))
    ask = {"policies": (policy(),), "targets": (target("a", "training", WISH),)}
    made = plan(question(adapter(port(1, IB), other), **ask))
    assert not made.steps
    said = problem(made, "rdma-name-taken")
    assert said.text == (
        "net1 cannot have the RDMA device name mlx5_0: PF of 0000:3b:00.1 p2 has it, and these names are unique "
        "over the whole host."
    )
    mine = port(1, IB, pf=function(f"{CARD}.0", rdma=RdmaDevice(name="mlx5_0")))
    made = plan(question(adapter(mine), **ask))
    assert kinds(made) == ["Attach"]  # its own name already


def test_a_name_that_went_along_into_a_container_is_taken_too():
    before = Before(name="ib0", mtu=2044, address="00", rdma_name="mlx5_0")
    made = plan(
        question(
            adapter(away(port(1, IB), None, "m"), port(2, IB)),
            policies=(policy(**BOTH),),
            targets=(target("a", "training", WISH), target("m")),
            states={"a": running(5), "m": running(1)},
            records=(attached("m", before=before, rdma_moved=True),),
        )
    )
    assert not made.steps
    assert problem(made, "rdma-name-taken").holder == "m net1"


def test_two_containers_that_share_a_namespace_need_different_interface_names():
    shared = {"a": running(5), "b": running(5)}
    its, policies = adapter(port(1, IB), port(2, IB)), (policy(**BOTH),)
    made = plan(question(its, policies=policies, targets=(target("a"), target("b")), states=shared))
    assert not made.steps
    assert problem(made, "interface-name-taken").text == (
        "a net1 and b net1 are in one network namespace, which has room for one net1."
    )
    made = plan(
        question(its, policies=policies, targets=(target("a"), target("b", "training", "net2")), states=shared)
    )
    assert given(made) == {("a", "net1"): (P1, None), ("b", "net2"): (P2, None)}


# -- containers that come and go -------------------------------------------------------------------------------


def test_a_target_declared_before_its_container_has_its_slot_and_says_what_it_waits_for():
    absent = TargetState(state="absent", detail="podman knows no container a")
    made = plan(question(adapter(port(1, IB)), policies=(policy(),), targets=(target("a"),), states={"a": absent}))
    assert not made.steps
    assert [(a.port, a.vf_index) for a in made.assignments] == [(P1, None)]
    said = problem(made, "container-not-running")
    assert (said.text, said.next_step) == (
        "container does not run (podman knows no container a)",
        "It gets its interfaces when it starts.",
    )


def _held(pid: int | None):
    """Port 1, whose PF is in a's namespace; ``pid``: a process that lives there."""
    holder = Holder(kind="target", detail="a net1", ours=True, target="a", pid=pid)
    return port(1, IB, pf=function(f"{CARD}.0", None, holder, away=True))


def test_a_renamed_container_keeps_its_interface_while_it_lives():
    absent = TargetState(state="absent", detail="podman knows no container a")
    ask = {"policies": (policy(),), "targets": (target("a"),), "records": (attached("a"),)}
    made = plan(question(adapter(_held(4711)), states={"a": absent}, **ask))
    assert not made.steps
    said = problem(made, "container-renamed")
    assert said.text == (
        "there is no container of this name now, but the one that has net1 lives on (pid 4711): renamed, or its "
        "namespace is shared."
    )
    again = plan(question(adapter(_held(4711)), states={"a": running(9)}, **ask))  # another one of the old name
    assert kinds(again) == ["Detach", "Attach"]


def test_a_removed_container_gives_its_function_back_and_the_next_of_its_name_gets_it():
    absent = TargetState(state="absent")
    ask = {"policies": (policy(),), "targets": (target("a"),), "records": (attached("a"),)}
    made = plan(question(adapter(_held(None)), states={"a": absent}, **ask))
    (step,) = made.steps
    assert isinstance(step, Detach)
    assert (step.forget, step.interrupts) == (False, ())
    ask["records"] = (attached("a", state=AttachmentState.ASSIGNED, inode=None),)
    made = plan(question(adapter(port(1, IB)), states={"a": running(9)}, **ask))
    assert given(made) == {("a", "net1"): (P1, None)}


def test_a_namespace_path_that_names_another_namespace_moves_the_interface_there():
    replaced = TargetState(state="running", netns_path="/run/netns/a", netns_inode=99)
    made = plan(
        question(
            adapter(_held(None)),
            policies=(policy(),),
            targets=(target("a"),),
            states={"a": replaced},
            records=(attached("a"),),
        )
    )
    assert kinds(made) == ["Detach", "Attach"]
    assert made.steps[0].reason == "its container runs in a new namespace"


def test_a_changed_document_is_given_anew_on_the_same_slot_and_names_whom_it_interrupts():
    old, new = (Interface(name="net1", addresses=(f"10.9.0.{n}/24",)) for n in (1, 2))
    records = (attached("a", wish=wish_of(old)),)
    ask = {"policies": (policy(),), "records": records}
    made = plan(question(adapter(_held(7)), targets=(target("a", "training", old),), **ask))
    assert not made.steps
    made = plan(question(adapter(_held(7)), targets=(target("a", "training", new),), **ask))
    taken, given_again = made.steps
    assert taken.reason == "its document changed; it is given anew"
    assert (taken.forget, taken.interrupts) == (False, ("a",))
    assert (given_again.interface, given_again.vf_index) == (new, None)


def test_a_container_on_the_hosts_network_is_refused_and_its_neighbour_is_served():
    states = {"a": TargetState(state="host-network"), "b": running(2)}
    made = plan(
        question(
            adapter(port(1, IB), port(2, IB)),
            policies=(policy(**BOTH),),
            targets=(target("a"), target("b")),
            states=states,
        )
    )
    assert set(given(made)) == {("b", "net1")}
    assert problem(made, "host-network").severity == "refused"


# -- VF counts -------------------------------------------------------------------------------------------------


def test_more_vfs_with_nobody_there_are_free_and_fewer_too():
    its = adapter(port(1, IB, vfs=4))
    more = plan(question(its, policies=(policy(assign="VF", num_vfs=8),)))
    assert [(s.before, s.count, s.needs) for s in more.steps] == [(4, 8, None)]
    fewer = plan(question(its, policies=(policy(assign="VF", num_vfs=2),)))
    assert [(s.before, s.count, s.needs) for s in fewer.steps] == [(4, 2, None)]


@pytest.mark.parametrize("count", [8, 3])
def test_another_vf_count_under_holders_names_them_and_waits(count):
    busy = away(away(port(1, IB, vfs=4), 0, "a"), 1, "b")
    made = plan(question(adapter(busy), **in_use() | {"policies": (policy(assign="VF", num_vfs=count),)}))
    (approval,) = made.approvals
    assert approval.key == f"convert:{P1}:VF{count}:a,b"
    assert approval.text == f"change the VFs of 0000:3b:00.0 p1 from 4 to {count}; interrupts a, b"
    assert {s.needs for s in made.steps} == {approval.key}


def test_dual_port_card_with_different_vf_counts_is_settled_and_restarts_nothing():
    one = policy("one", assign="VF", num_vfs=4)
    two = policy("two", assign="VF", num_vfs=8, pci_addresses=(f"{CARD}.1",))
    its = adapter(
        port(1, IB, vfs=4, total_vfs=8), port(2, IB, vfs=8, total_vfs=8), num_vfs_next=8, num_vfs_current=8
    )
    made = plan(question(its, policies=(one, two)))
    assert (made.steps, made.changes, made.approvals) == ((), (), ())


def test_vfs_asked_for_on_a_port_whose_pf_is_out_wait_for_a_yes_and_take_nothing():
    made = plan(
        question(
            adapter(away(port(1, IB), None, "a")),
            policies=(policy(assign="VF", num_vfs=4),),
            targets=(target("a"),),
            records=(attached("a"),),
        )
    )
    (approval,) = made.approvals
    assert approval.interrupts == ("a",)
    assert not [s for s in made.steps if s.needs is None]


def test_deleting_a_policy_touches_nobodys_vfs():
    guest = Holder(kind="vfio", detail="pid 4711 (qemu-system-x86)", pid=4711)
    vfs = port(1, IB, vfs=3)
    held = msgspec.structs.replace(
        vfs, vfs=(*vfs.vfs[:2], function(vfs.vfs[2].address, 2, guest))
    )
    made = plan(question(adapter(held)))
    assert (made.steps, made.withheld, made.approvals, made.problems) == ((), (), (), ())


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["m0", "m1", None])), max_size=6))
def test_no_two_interfaces_ever_have_one_rdma_name(declared):
    """Documents come one after the other, each settled; whoever was first keeps the name."""
    simulation = Simulation(question(adapter(port(1, IB)), policies=(policy(assign="VF", num_vfs=8),)))
    first: dict[str, str] = {}
    for number, (name, wish) in enumerate(declared, 1):
        made = target(name, "training", Interface(name="net1", rdma_name=wish))
        others = tuple(t for t in simulation.question.desired.targets if t.name != name)
        desired = msgspec.structs.replace(simulation.question.desired, targets=(*others, made))
        states = simulation.question.targets | {name: running(ord(name))}
        simulation.question = msgspec.structs.replace(
            simulation.question, desired=desired, targets=states, now=1000.0 + number
        )
        first = {w: n for w, n in first.items() if n != name}
        refused = {p.subject for p in simulation.settle().problems if p.code == "rdma-name-taken"}
        if wish is not None and f"target {name}" not in refused:
            assert first.setdefault(wish, name) == name, "the name went to a second one"
