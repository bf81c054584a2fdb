"""Which function each interface gets: ports, PF or VFs, indexes, counts, and what is refused."""

from __future__ import annotations

import msgspec
from questions import (
    CARD,
    IB,
    P1,
    P2,
    ROCE,
    STOPPED,
    adapter,
    attached,
    away,
    function,
    policy,
    port,
    problem,
    question,
    running,
    target,
)

from linkwright.model.documents import Interface, Roce
from linkwright.model.inventory import Holder
from linkwright.model.plan import Attach, Detach, SetVfs, TargetState
from linkwright.model.records import AttachmentState
from linkwright.model.values import PortId
from linkwright.planner import plan

BOTH = {"pci_addresses": (f"{CARD}.0", f"{CARD}.1")}


def slots(made):
    return {(a.target, a.interface): (a.port, a.vf_index) for a in made.assignments}


def test_one_target_gets_the_pf():
    made = plan(question(adapter(port(1, IB)), policies=(policy(),), targets=(target("a"),)))
    (step,) = made.steps
    assert isinstance(step, Attach)
    assert (step.port, step.vf_index, step.mode, step.needs) == (P1, None, IB, None)
    assert step.reason == "it runs and has no interface yet"
    assert made.decisions[0].form == "PF"


def test_two_targets_get_a_vf_each():
    made = plan(question(adapter(port(1, IB)), policies=(policy(),), targets=(target("b"), target("a"))))
    vfs, first, second = made.steps
    assert isinstance(vfs, SetVfs)
    assert " ".join(vfs.command) == "echo 2 > /sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs"
    assert (first.target, first.vf_index, second.target, second.vf_index) == ("a", 0, "b", 1)


def test_declared_targets_count_whether_they_run_or_not():
    states = {"a": running(), "b": TargetState(state="absent")}
    made = plan(
        question(adapter(port(1, IB)), policies=(policy(),), targets=(target("a"), target("b")), states=states)
    )
    assert slots(made) == {("a", "net1"): (P1, 0), ("b", "net1"): (P1, 1)}
    assert [s.target for s in made.steps if isinstance(s, Attach)] == ["a"]
    said = problem(made, "container-not-running")
    assert (said.severity, said.subject, said.text) == ("waiting", "target b", "container does not run")


def test_interfaces_of_one_target_get_distinct_ports_first():
    its = adapter(port(1, IB), port(2, IB))
    made = plan(question(its, policies=(policy(**BOTH),), targets=(target("a", "training", "net1", "net2"),)))
    assert slots(made) == {("a", "net1"): (P1, None), ("a", "net2"): (P2, None)}


def test_targets_are_spread_over_the_ports():
    its = adapter(port(1, IB), port(2, IB))
    made = plan(question(its, policies=(policy(**BOTH),), targets=tuple(target(n) for n in "abcd")))
    assert slots(made) == {
        ("a", "net1"): (P1, 0),
        ("b", "net1"): (P2, 0),
        ("c", "net1"): (P1, 1),
        ("d", "net1"): (P2, 1),
    }


def test_a_new_target_with_an_early_name_takes_nobodys_slot():
    its = adapter(away(port(1, IB, vfs=2), 1, "m"))
    made = plan(
        question(
            its,
            policies=(policy(),),
            targets=(target("a"), target("m")),
            states={"a": running(5), "m": running(1)},
            records=(attached("m", vf=1),),
        )
    )
    assert slots(made) == {("a", "net1"): (P1, 0), ("m", "net1"): (P1, 1)}
    assert [(s.target, s.vf_index) for s in made.steps] == [("a", 0)]


def test_the_fabric_of_an_interface_must_be_the_ports():
    its = adapter(port(1, IB, fabric="rail-0"), port(2, IB, fabric="rail-1"))
    wants = (Interface(name="net1", fabric="rail-1"), Interface(name="net2", fabric="rail-7"))
    made = plan(question(its, policies=(policy(**BOTH),), targets=(target("a", "training", *wants),)))
    assert slots(made) == {("a", "net1"): (P2, None)}
    assert problem(made, "no-port-on-fabric").text == (
        "net2 asks for fabric rail-7; policy training has 0000:3b:00.0 p1 (rail-0), 0000:3b:00.1 p2 (rail-1)."
    )


def test_assign_pf_refuses_a_second_target():
    made = plan(
        question(adapter(port(1, IB)), policies=(policy(assign="PF"),), targets=(target("a"), target("b")))
    )
    assert slots(made) == {("a", "net1"): (P1, None)}
    said = problem(made, "pf-taken")
    assert (said.rule, said.subject) == (1, "target b")
    assert said.text == (
        "net1 gets no function: policy training gives PFs only (assign: PF), and the PF of 0000:3b:00.0 p1 serves "
        "another interface."
    )


def test_assign_vf_gives_a_vf_to_a_single_target_and_num_vfs_says_how_many():
    made = plan(
        question(adapter(port(1, IB)), policies=(policy(assign="VF", num_vfs=8),), targets=(target("a"),))
    )
    assert made.steps[0].count == 8
    assert slots(made) == {("a", "net1"): (P1, 0)}


def test_when_every_vf_is_taken_the_next_target_is_refused():
    made = plan(
        question(
            adapter(port(1, IB)),
            policies=(policy(num_vfs=2),),
            targets=tuple(target(n) for n in "abc"),
        )
    )
    assert problem(made, "no-free-vf").text == (
        "net1 gets no function: every VF that policy training gives on 0000:3b:00.0 p1 is taken (2)."
    )


def test_pf_to_vfs_under_a_holder_needs_a_yes_that_names_port_form_and_target():
    its = adapter(away(port(1, IB), None, "a"))
    asked = {"policies": (policy(),), "targets": (target("a"), target("b")), "records": (attached("a"),)}
    made = plan(question(its, **asked))
    key = f"convert:{P1}:VF:a"
    assert {s.needs for s in made.steps} == {key}
    assert [type(s).__name__ for s in made.steps] == ["Detach", "SetVfs", "Attach", "Attach"]
    assert made.interrupts == ("a",)
    (approval,) = made.approvals
    assert approval.key == key
    assert approval.text == "convert 0000:3b:00.0 p1 from its PF to 2 VFs; interrupts a"
    assert slots(made) == {("a", "net1"): (P1, None)}  # until the yes comes
    agreed = plan(question(its, **asked, approvals=(key,)))
    assert {s.needs for s in agreed.steps} == {None}
    assert not agreed.approvals


def test_the_conversion_is_free_while_nobody_holds_the_pf():
    states = {"a": running(9), "b": running(2)}  # a restarted: its old namespace ended, the PF is on the host
    made = plan(
        question(
            adapter(port(1, IB)),
            policies=(policy(),),
            targets=(target("a"), target("b")),
            records=(attached("a", inode=1),),
            states=states,
        )
    )
    assert not made.approvals
    assert [(s.target, s.vf_index) for s in made.steps if isinstance(s, Attach)] == [("a", 0), ("b", 1)]


def test_while_a_yes_for_more_vfs_is_awaited_a_restarted_container_gets_its_vf_again():
    its = adapter(away(port(1, IB, vfs=2), 1, "b"))
    records = (attached("a", vf=0, inode=1), attached("b", vf=1, inode=2))
    states = {"a": running(9), "b": running(2), "c": running(3)}
    made = plan(
        question(
            its,
            policies=(policy(),),
            targets=tuple(target(n) for n in "abc"),
            records=records,
            states=states,
        )
    )
    now = [s for s in made.steps if s.needs is None]
    assert [(type(s).__name__, s.target, s.vf_index) for s in now] == [("Detach", "a", 0), ("Attach", "a", 0)]
    assert made.approvals[0].interrupts == ("a", "b")


def test_vfs_are_never_turned_back_into_the_pf_by_themselves():
    its = adapter(away(port(1, IB, vfs=2), 0, "a"))
    made = plan(question(its, policies=(policy(),), targets=(target("a"),), records=(attached("a", vf=0),)))
    assert not made.steps
    after_a_restart = adapter(port(1, IB))
    kept = attached("a", vf=0, state=AttachmentState.ASSIGNED, boot_id="boot-0")
    made = plan(question(after_a_restart, policies=(policy(),), targets=(target("a"),), records=(kept,)))
    assert [type(s).__name__ for s in made.steps] == ["SetVfs", "Attach"]
    assert slots(made) == {("a", "net1"): (P1, 0)}


def test_more_vfs_under_holders_need_a_yes():
    its = adapter(away(away(port(1, IB, vfs=2), 0, "a"), 1, "b"))
    records = (attached("a", vf=0), attached("b", vf=1, inode=2))
    made = plan(question(its, policies=(policy(),), targets=tuple(target(n) for n in "abc"), records=records))
    step = next(s for s in made.steps if isinstance(s, SetVfs))
    assert " ".join(step.command) == (
        "echo 0 > /sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs && "
        "echo 3 > /sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs"
    )
    assert step.needs == f"convert:{P1}:VF3:a,b"
    assert made.approvals[0].text == "change the VFs of 0000:3b:00.0 p1 from 2 to 3; interrupts a, b"


def test_lowering_num_vfs_below_a_vf_in_use_is_refused():
    its = adapter(away(port(1, IB, vfs=8), 5, "a"))
    made = plan(
        question(its, policies=(policy(num_vfs=4),), targets=(target("a"),), records=(attached("a", vf=5),))
    )
    assert not made.steps
    said = problem(made, "vfs-in-use")
    assert (said.rule, said.holder) == (2, "a net1")
    assert said.text == (
        "0000:3b:00.0 p1 has 1 VF in use; numVfs 8 → 4 would remove VF 5, which is held by a net1."
    )
    assert said.next_step == "Detach it first, or keep numVfs at 6 or more."


def test_a_vf_that_a_guest_holds_is_not_given_and_its_port_is_not_reshaped():
    guest = Holder(kind="vfio", detail="pid 4711 (qemu-system-x86, guest db-2)", pid=4711)
    base = port(1, IB, vfs=1)
    held = msgspec.structs.replace(base.vfs[0], netdev=None, driver="vfio-pci", holders=(guest,))
    its = adapter(msgspec.structs.replace(base, vfs=(held,)))
    made = plan(question(its, policies=(policy(),), targets=(target("a"),)))
    assert not made.steps
    said = problem(made, "function-in-use")
    assert (said.rule, said.holder) == (2, "pid 4711 (qemu-system-x86, guest db-2)")
    assert said.text == (
        "the VFs of 0000:3b:00.0 p1 cannot change from 1 to 2: pid 4711 (qemu-system-x86, guest db-2) uses a "
        "function of this port."
    )


def test_a_vf_reserved_for_guests_is_not_free():
    base = port(1, IB, vfs=2)
    kept = msgspec.structs.replace(base.vfs[0], netdev=None, driver="vfio-pci", driver_override="vfio-pci")
    its = adapter(msgspec.structs.replace(base, vfs=(kept, base.vfs[1])))
    made = plan(question(its, policies=(policy(),), targets=(target("a"),)))
    assert slots(made) == {("a", "net1"): (P1, 1)}


def test_a_pf_in_somebody_elses_namespace_is_refused_with_its_holder():
    holder = Holder(kind="netns", detail="netns of pid 99 (dockerd)", pid=99)
    its = adapter(port(1, IB, pf=function(f"{CARD}.0", None, holder, away=True)))
    made = plan(question(its, policies=(policy(),), targets=(target("a"),)))
    assert not made.steps
    assert problem(made, "function-in-use").text == (
        "PF of 0000:3b:00.0 p1 is not given to net1: it is held by netns of pid 99 (dockerd)."
    )


def test_more_vfs_than_the_card_can_have_are_refused():
    its = adapter(port(1, IB), num_vfs_limit=64)
    made = plan(question(its, policies=(policy(assign="VF", num_vfs=100),), targets=(target("a"),)))
    assert not made.steps
    assert problem(made, "num-vfs-limit").text == "0000:3b:00.0 p1 would need 100 VFs; the card allows 64."


def test_a_deleted_target_gives_its_function_back():
    its = adapter(away(port(1, IB), None, "a"))
    made = plan(question(its, policies=(policy(),), records=(attached("a"),)))
    (step,) = made.steps
    assert isinstance(step, Detach)
    assert (step.forget, step.reason) == (True, "its target is gone")


def test_a_target_that_changed_its_policy_moves():
    its = adapter(away(port(1, IB), None, "a"), port(2, IB))
    two = (policy("training"), policy("storage", pci_addresses=(f"{CARD}.1",)))
    made = plan(question(its, policies=two, targets=(target("a", "storage"),), records=(attached("a"),)))
    assert [type(s).__name__ for s in made.steps] == ["Detach", "Attach"]
    assert (made.steps[0].port, made.steps[0].forget, made.steps[0].interrupts) == (P1, True, ("a",))
    assert made.steps[1].port == P2


def test_a_port_that_its_unchanged_policy_no_longer_names_keeps_its_target():
    """The fabric's name in host.yaml changed, no policy did: nobody is moved for that."""
    its = adapter(away(port(1, IB, fabric="new"), None, "a"), port(2, IB, fabric="rail-0"))
    made = plan(
        question(its, policies=(policy(fabrics=("rail-0",)),), targets=(target("a"),), records=(attached("a"),))
    )
    assert not made.steps
    assert problem(made, "left-as-it-is").text == (
        "net1 on 0000:3b:00.0 p1 stays: its policy no longer names 0000:3b:00.0 p1."
    )


def test_a_port_that_is_not_there_now_keeps_the_slot():
    gone = attached("a", PortId("0000:99:00.0/1"))
    made = plan(question(adapter(port(1, IB)), policies=(policy(),), targets=(target("a"),), records=(gone,)))
    assert not made.steps
    assert problem(made, "port-absent").severity == "waiting"


def test_a_quarantined_function_is_nobodys():
    record = attached("a", vf=0, state=AttachmentState.QUARANTINED, reason="the netdev did not come back")
    its = adapter(port(1, IB, vfs=2))
    made = plan(question(its, policies=(policy(),), targets=(target("b"),), records=(record,)))
    assert slots(made) == {("b", "net1"): (P1, 1)}
    again = plan(question(its, policies=(policy(),), targets=(target("a"),), records=(record,)))
    assert not again.steps
    assert problem(again, "quarantined").text == (
        "net1 on 0000:3b:00.0 p1 is quarantined: the netdev did not come back."
    )


def test_a_container_on_the_hosts_network_is_refused():
    states = {"a": TargetState(state="host-network")}
    made = plan(question(adapter(port(1, IB)), policies=(policy(),), targets=(target("a"),), states=states))
    assert not made.steps
    assert problem(made, "host-network").text == (
        "its container uses the host's own network: there is nothing to move net1 into."
    )


def test_a_stopped_container_releases_its_function_and_keeps_its_slot():
    its = adapter(port(1, IB))
    live = attached("a")
    made = plan(
        question(its, policies=(policy(),), targets=(target("a"),), records=(live,), states={"a": STOPPED})
    )
    (step,) = made.steps
    assert isinstance(step, Detach)
    assert (step.forget, step.interrupts) == (False, ())


def test_a_container_in_a_new_namespace_gets_its_interface_again():
    its = adapter(port(1, IB))
    made = plan(
        question(
            its, policies=(policy(),), targets=(target("a"),), records=(attached("a"),), states={"a": running(7)}
        )
    )
    assert [type(s).__name__ for s in made.steps] == ["Detach", "Attach"]
    assert made.steps[0].reason == "its container runs in a new namespace"


def test_an_unknown_container_state_changes_nothing():
    its = adapter(away(port(1, IB), None, "a"))
    states = {"a": TargetState(state="unknown", detail="podman does not answer")}
    made = plan(
        question(its, policies=(policy(),), targets=(target("a"),), records=(attached("a"),), states=states)
    )
    assert not made.steps


def test_the_mtu_of_a_roce_policy_goes_with_the_interface_unless_it_has_its_own():
    made_policy = policy(mode=ROCE)
    spec = msgspec.structs.replace(made_policy.spec, roce=Roce(mtu=9000))
    made_policy = msgspec.structs.replace(made_policy, spec=spec)
    own = Interface(name="net2", mtu=1400)
    made = plan(
        question(adapter(port(1)), policies=(made_policy,), targets=(target("a", "training", "net1", own),))
    )
    assert [s.mtu for s in made.steps if isinstance(s, Attach)] == [9000, 1400]


def test_a_target_whose_policy_is_missing_waits():
    made = plan(question(adapter(port(1, IB)), targets=(target("a", "nobody"),)))
    assert problem(made, "policy-missing").text == (
        "policy nobody does not exist here; what the target has is left as it is."
    )
