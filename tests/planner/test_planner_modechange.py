"""S4: the four readings, what is written and activated, whose yes it takes, and when it is not begun."""

from __future__ import annotations

import pytest
from questions import (
    AUTO,
    CARD,
    IB,
    P1,
    P2,
    ROCE,
    adapter,
    attached,
    away,
    busy_port,
    in_use,
    kinds,
    policy,
    port,
    problem,
    question,
    target,
)

from linkwright.model.plan import Attach, Detach, SetVfs, WriteFirmware
from linkwright.model.records import Phase, Setting
from linkwright.planner import plan
from linkwright.planner.approvals import change_key

TWO = {"pci_addresses": (f"{CARD}.0", f"{CARD}.1")}


def test_the_whole_change_in_order_with_reasons_and_one_yes():
    made = plan(question(adapter(busy_port()), **in_use()))
    assert kinds(made) == [
        "WriteFirmware", "Detach", "Detach", "RestartHost", "Verify", "SetVfs", "Attach", "Attach"
    ]  # fmt: skip
    write, first, _, restart, verify, _, back, _ = made.steps
    assert write.command == ("mstconfig", "-y", "-d", "0000:3b:00.0", "set", "LINK_TYPE_P1=1")
    assert write.settings == (Setting(pf=f"{CARD}.0", name="LINK_TYPE_P1", value="1", before="2", current="2"),)
    assert write.reason == "policy training, generation 1"
    assert (first.target, first.forget, first.reason) == (
        "a", False, "the restart takes it; its slot is kept"
    )  # fmt: skip
    assert restart.interrupts == ("a", "b")
    assert restart.reason == (
        "the card takes a new setting only on a reset: InfiniBand on 0000:3b:00.0 p1 (was RoCE)"
    )
    assert (verify.port, verify.mode) == (P1, IB)
    assert (back.target, back.vf_index, back.mode) == ("a", 0, IB)
    assert back.reason == "given back after the restart"
    (change,), (approval,) = made.changes, made.approvals
    assert (change.phase, change.ports, change.targets) == (Phase.PLANNED, (P1,), ("a", "b"))
    assert approval.key == change_key(change)
    assert approval.key.startswith("change:training:1:InfiniBand:")
    assert {s.needs for s in made.steps} == {approval.key}
    assert approval.text == (
        "restart this host for InfiniBand on 0000:3b:00.0 p1 (was RoCE) (policy training, generation 1); "
        "interrupts a, b"
    )


def test_the_yes_of_another_impact_does_not_count():
    one = plan(question(adapter(away(port(1), None, "a")), policies=(policy(),), targets=(target("a"),),
                        records=(attached("a"),)))  # fmt: skip
    two = plan(question(adapter(busy_port()), **in_use(), approvals=(one.approvals[0].key,)))
    assert two.approvals
    agreed = plan(question(adapter(busy_port()), **in_use(), approvals=(two.approvals[0].key,)))
    assert not agreed.approvals
    assert {s.needs for s in agreed.steps} == {None}


def test_approval_auto_needs_no_yes():
    made = plan(question(adapter(port(1)), policies=(policy(activation=AUTO),), targets=(target("a"),)))
    assert not made.approvals
    assert kinds(made) == ["WriteFirmware", "RestartHost", "Verify", "Attach"]


def test_one_restart_and_one_command_for_all_ports_of_a_card():
    its = adapter(port(1), port(2))
    made = plan(question(its, policies=(policy(activation=AUTO, **TWO),)))
    assert kinds(made) == ["WriteFirmware", "RestartHost", "Verify", "Verify"]
    assert made.steps[0].command[-2:] == ("LINK_TYPE_P1=1", "LINK_TYPE_P2=1")
    assert len(made.changes) == 1


def test_one_restart_for_two_policies_and_their_writes_are_joined():
    its, other = adapter(port(1), port(2)), adapter(port(1, IB, card="0000:5e:00"))
    both = (
        policy("a", activation=AUTO),
        policy("b", ROCE, activation=AUTO, pci_addresses=("0000:5e:00.0",)),
    )
    made = plan(question(its, other, policies=both))
    assert kinds(made) == ["WriteFirmware", "WriteFirmware", "RestartHost", "Verify", "Verify"]
    assert [c.policy for c in made.changes] == ["a", "b"]


def test_an_agreed_change_does_not_wait_for_another_that_is_not_agreed():
    its, other = adapter(port(1)), adapter(port(1, IB, card="0000:5e:00"))
    both = (policy("a", activation=AUTO), policy("b", ROCE, pci_addresses=("0000:5e:00.0",)))
    made = plan(question(its, other, policies=both))
    free = [type(s).__name__ for s in made.steps if s.needs is None]
    assert free == ["WriteFirmware", "RestartHost", "Verify"]
    assert [s.pf for s in made.steps if isinstance(s, WriteFirmware) and s.needs] == ["0000:5e:00.0"]
    assert [a.key.split(":")[1] for a in made.approvals] == ["b"]


def test_every_attachment_of_the_host_is_named_whatever_its_card():
    other = adapter(away(port(1, IB, card="0000:5e:00"), None, "x"))
    policies = (policy(), policy("steady", pci_addresses=("0000:5e:00.0",)))
    record = attached("x", "0000:5e:00.0/1", policy="steady")
    made = plan(question(adapter(port(1)), other, policies=policies, targets=(target("x", "steady"),),
                         records=(record,)))  # fmt: skip
    assert made.changes[0].targets == ("x",)
    assert [(s.target, s.port) for s in made.steps if isinstance(s, Detach)] == [("x", "0000:5e:00.0/1")]
    assert [s.target for s in made.steps if isinstance(s, Attach)] == ["x"]


def test_work_on_other_ports_goes_on_while_a_yes_is_awaited():
    other = adapter(port(1, IB, card="0000:5e:00"))
    policies = (policy(), policy("steady", pci_addresses=("0000:5e:00.0",)))
    made = plan(question(adapter(port(1)), other, policies=policies, targets=(target("x", "steady"),)))
    assert [(type(s).__name__, s.target) for s in made.steps if s.needs is None] == [("Attach", "x")]
    assert made.changes[0].targets == ("x",)  # attached by then, so the restart interrupts it


def test_no_interface_is_given_on_a_port_in_the_wrong_mode():
    made = plan(question(adapter(port(1)), policies=(policy(),), targets=(target("a"),)))
    assert not [s for s in made.steps if isinstance(s, Attach | SetVfs) and s.needs is None]


def test_a_staged_mode_that_nobody_wants_is_put_back_without_a_restart():
    """ETH → IB → ETH before the restart must not leave IB staged."""
    made = plan(question(adapter(port(1, next_mode=IB)), policies=(policy(mode=ROCE),), targets=(target("a"),)))
    assert kinds(made) == ["WriteFirmware", "Attach"]
    assert made.steps[0].command[-1] == "LINK_TYPE_P1=2"
    assert made.steps[0].needs is None
    assert not made.changes


def test_next_already_desired_needs_only_the_activation():
    made = plan(question(adapter(port(1, next_mode=IB)), policies=(policy(activation=AUTO),)))
    assert kinds(made) == ["RestartHost", "Verify"]
    assert made.changes[0].settings[0].value == "1"


@pytest.mark.parametrize(
    ("readings", "what"),
    [
        ({"next_mode": None}, "the mode of the next boot"),
        ({"current_mode": None}, "the firmware's current mode"),
        ({"next_mode": None, "current_mode": None}, "the firmware's current mode"),
    ],
    ids=["next", "current", "both"],
)
def test_unknown_readings_cause_no_write_and_no_restart(readings, what):
    made = plan(question(adapter(port(1, **readings)), policies=(policy(),), targets=(target("a"),)))
    assert not made.steps
    said = problem(made, "mode-unknown")
    assert said.severity == "waiting"
    assert said.text == f"{what} of 0000:3b:00.0 p1 cannot be read now; nothing is written on a guess."


def test_unknown_firmware_readings_do_not_stop_a_port_that_is_right():
    its = adapter(port(1, IB, next_mode=None, current_mode=None))
    assert kinds(plan(question(its, policies=(policy(),), targets=(target("a"),)))) == ["Attach"]


def test_firmware_and_kernel_that_disagree_are_a_fault_and_not_restarted():
    made = plan(question(adapter(port(1, IB, observed_mode=ROCE)), policies=(policy(),), targets=(target("a"),)))
    assert not made.steps
    assert problem(made, "mode-fault").text == (
        "the firmware of 0000:3b:00.0 p1 says InfiniBand now, the kernel shows RoCE."
    )


def test_a_fixed_card_in_another_mode_is_refused():
    its = adapter(port(1, can_change=False, next_mode=None, current_mode=None))
    made = plan(question(its, policies=(policy(),), targets=(target("a"),)))
    assert not made.steps
    said = problem(made, "fixed-mode").text
    assert said == "0000:3b:00.0 p1 speaks RoCE only: its firmware offers no LINK_TYPE."
    right = plan(question(its, policies=(policy(mode=ROCE),), targets=(target("a"),)))
    assert kinds(right) == ["Attach"]


def test_a_fabric_that_does_not_carry_the_mode_refuses_it_before_any_drain():
    its = adapter(port(1, fabric="office", fabric_modes=(ROCE,)))
    made = plan(question(its, policies=(policy(),), targets=(target("a"),)))
    assert not made.steps
    said = problem(made, "fabric-lacks-mode").text
    assert said == "fabric office of 0000:3b:00.0 p1 carries RoCE, not InfiniBand."


def test_sriov_settings_are_the_adapters_and_the_maximum_of_its_ports():
    its = adapter(
        port(1, IB, total_vfs=0), port(2, IB, total_vfs=0),
        sriov_enabled_next=False, sriov_enabled_current=False, num_vfs_next=0, num_vfs_current=0,
    )  # fmt: skip
    both = (
        policy("a", assign="VF", num_vfs=4, activation=AUTO),
        policy("b", assign="VF", num_vfs=8, activation=AUTO, pci_addresses=(f"{CARD}.1",)),
    )
    made = plan(question(its, policies=both, targets=(target("x", "a"), target("y", "b"))))
    write = made.steps[0]
    assert write.command[-2:] == ("SRIOV_EN=1", "NUM_OF_VFS=8")
    assert write.reason == "policy a, generation 1; policy b, generation 1"
    assert kinds(made).count("RestartHost") == 1
    assert [(s.port, s.count) for s in made.steps if isinstance(s, SetVfs)] == [(P1, 4), (P2, 8)]


def test_num_of_vfs_is_never_lowered_by_a_smaller_policy():
    made = plan(question(adapter(port(1, IB)), policies=(policy(assign="VF", num_vfs=2),), targets=(target("a"),)))
    assert kinds(made) == ["SetVfs", "Attach"]


def test_a_second_target_that_needs_sriov_in_firmware_asks_once_for_the_restart():
    its = adapter(
        away(port(1, IB, total_vfs=0), None, "a"),
        sriov_enabled_next=False, sriov_enabled_current=False, num_vfs_next=0, num_vfs_current=0,
    )  # fmt: skip
    made = plan(
        question(its, policies=(policy(),), targets=(target("a"), target("b")), records=(attached("a"),))
    )
    assert kinds(made) == ["WriteFirmware", "Detach", "RestartHost", "Verify", "SetVfs", "Attach", "Attach"]
    assert [a.key.split(":")[0] for a in made.approvals] == ["change"]
