"""How a change is activated, by example: reset or restart, External, windows, drain, what a rollback leaves."""

from __future__ import annotations

from typing import Any

import msgspec
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

from linkwright.model.documents import Activation, Allow, Functions, ResetProven, Window
from linkwright.model.inventory import Adapter, Holder, Identity
from linkwright.model.plan import Attach, Detach, ResetAdapter, RestartHost, SetVfs, WriteFirmware
from linkwright.model.records import ModeChange, Phase, Setting
from linkwright.planner import plan

PROVEN = (ResetProven(psid="MT_0000000223", firmware="20.43.*"),)
IDENTITY = Identity(part_number="MCX653106A-ECAT", psid="MT_0000000223", firmware="20.43.2026", device_id="101b")
OTHER = "0000:5e:00"


def card(*ports: Any, **more: Any) -> Adapter:
    return adapter(*ports, **({"identity": IDENTITY, "reset_offered": True} | more))


def ask(its: Adapter, *others: Adapter, activation: Activation = AUTO, **more: Any):
    asked = in_use() | {"policies": (policy(activation=activation),)} | more
    return question(its, *others, **({"reset_proven": PROVEN} | asked))


# -- Auto ----------------------------------------------------------------------------------------------------


def test_auto_resets_only_the_proven_adapter():
    elsewhere = away(port(1, IB, card=OTHER), None, "c")
    records = (*in_use()["records"], attached("c", f"{OTHER}.0/1", inode=3, policy="other"))
    policies = (policy(activation=AUTO), policy("other", IB, pci_addresses=(f"{OTHER}.0",)))
    targets = (target("a"), target("b"), target("c", "other"))
    made = plan(ask(card(busy_port()), adapter(elsewhere), policies=policies, targets=targets, records=records))
    assert kinds(made) == [
        "WriteFirmware", "Detach", "Detach", "ResetAdapter", "Verify", "SetVfs", "Attach", "Attach"
    ]  # fmt: skip
    reset = next(s for s in made.steps if isinstance(s, ResetAdapter))
    assert reset.command == ("mstfwreset", "-d", f"{CARD}.0", "-l", "3", "--sync", "1", "-y", "reset")
    assert reset.interrupts == ("a", "b")
    change = made.changes[0]
    assert (change.method, change.targets, change.also_interrupts) == ("FirmwareReset", ("a", "b"), ("c",))
    assert {s.reason for s in made.steps if isinstance(s, Attach)} == {"given back after the reset"}
    assert not made.restarts


def test_the_yes_to_a_reset_names_what_a_failed_one_leads_to():
    made = plan(ask(card(busy_port()), activation=Activation()))
    assert [a.text for a in made.approvals] == [
        f"reset the card of {CARD}.0 for InfiniBand on {CARD}.0 p1 (was RoCE) (policy training, generation 1); "
        "interrupts a, b; if the reset fails, restart this host"
    ]
    restart = plan(ask(card(busy_port()), activation=Activation(method="Reboot")))
    assert restart.approvals[0].key != made.approvals[0].key


def _foreign(**fields: Any) -> Any:
    holder = Holder(kind="address", detail="10.0.0.7", **fields)
    return port(2, ROCE, pf=function(f"{CARD}.1", None, holder))


@pytest.mark.parametrize(
    ("its", "more"),
    [
        (card(busy_port()), {"reset_proven": ()}),
        (card(busy_port()), {"reset_proven": (ResetProven(psid="MT_0000000223", firmware="20.41.*"),)}),
        (card(busy_port()), {"reset_proven": (ResetProven(psid="MT_0000000999", firmware="*"),)}),
        (card(busy_port()), {"allow": Allow(firmware=True, functions=True, restart=True)}),
        (card(busy_port(), reset_offered=False), {}),
        (card(busy_port(), reset_offered=None), {}),
        (card(busy_port(), _foreign()), {}),
        (card(busy_port(), identity=Identity(psid="MT_0000000223")), {}),
    ],
    ids=["none", "other-firmware", "other-psid", "not-allowed", "not-offered", "not-asked", "in-use", "unknown"],
)
def test_auto_restarts_where_a_reset_is_not_known_to_be_safe(its, more):
    made = plan(ask(its, **more))
    assert [type(s).__name__ for s in made.steps if isinstance(s, ResetAdapter | RestartHost)] == ["RestartHost"]
    assert [c.method for c in made.changes] == ["Reboot"]


# -- FirmwareReset and External ------------------------------------------------------------------------------

RESET = Activation(approval="Auto", method="FirmwareReset")
EXTERNAL = Activation(approval="Auto", method="External")


def test_a_reset_that_is_asked_for_needs_no_proof_and_no_allow_restart():
    allow = Allow(firmware=True, functions=True, reset=True)
    made = plan(ask(card(busy_port()), activation=RESET, reset_proven=(), allow=allow))
    assert "ResetAdapter" in kinds(made)
    assert [(c.method, c.also_interrupts) for c in made.changes] == [("FirmwareReset", ())]


def test_a_reset_that_is_not_allowed_is_shown_and_not_done():
    allow = Allow(firmware=True, functions=True, restart=True)
    made = plan(ask(card(busy_port()), activation=RESET, allow=allow))
    assert not made.steps
    assert not made.changes
    assert problem(made, "not-allowed").next_step.endswith("spec: {allow: {reset: true}}")


def test_a_reset_that_the_card_does_not_offer_is_refused_before_anything_is_written():
    made = plan(ask(card(busy_port(), reset_offered=False), activation=RESET))
    assert not made.steps
    said = problem(made, "reset-not-offered")
    assert said.text.endswith("offers no reset in which its driver takes part; nothing was written.")
    assert said.next_step == "Set spec.activation.method of training to Reboot or Auto."


def test_a_reset_is_refused_under_somebody_elses_function_of_the_same_adapter():
    made = plan(ask(card(busy_port(), _foreign()), activation=RESET))
    assert not made.steps
    said = problem(made, "function-in-use")
    assert (said.rule, said.holder) == (2, "10.0.0.7")
    assert said.text == f"the adapter cannot be reset: 10.0.0.7 uses a function of {CARD}.1 p2."


def test_a_stranger_on_another_card_stops_a_restart_and_no_reset():
    guest = Holder(kind="vfio", detail="pid 4711 (qemu)")
    other = adapter(port(1, card=OTHER, pf=function(f"{OTHER}.0", None, guest)))
    assert "ResetAdapter" in kinds(plan(ask(card(busy_port()), other, activation=RESET)))
    assert problem(plan(ask(card(busy_port()), other, reset_proven=())), "function-in-use")


def test_external_writes_and_interrupts_nobody():
    made = plan(ask(card(busy_port()), activation=EXTERNAL, allow=Allow(firmware=True, functions=True)))
    assert kinds(made) == ["WriteFirmware"]
    assert [(c.method, c.targets) for c in made.changes] == [("External", ())]
    assert problem(made, "external-restart").severity == "note"


def test_external_with_manual_approval_asks_for_the_write():
    made = plan(ask(card(busy_port()), activation=Activation(method="External")))
    assert [a.text for a in made.approvals] == [
        f"write the next boot for InfiniBand on {CARD}.0 p1 (was RoCE) (policy training, generation 1); "
        "nobody is interrupted by us"
    ]


def test_a_change_that_waits_for_somebody_elses_restart_does_not_stop_new_targets_of_another_card():
    waits = ModeChange(
        policy="training", generation=1, wanted=IB, ports=(P1,), phase=Phase.WAITING, stopped_at=Phase.STAGED,
        boot_id="boot-1", intent_at=1.0, reason_code="external-restart", method="External",
    )  # fmt: skip
    policies = (policy(activation=EXTERNAL), policy("other", IB, pci_addresses=(f"{OTHER}.0",)))
    made = plan(
        question(
            adapter(port(1, ROCE, next_mode=IB)), adapter(port(1, IB, card=OTHER)),
            policies=policies, targets=(target("c", "other"),), changes=(waits,),
        )
    )
    assert kinds(made) == ["Attach"]


# -- windows and drain ---------------------------------------------------------------------------------------

NIGHT = (Window(schedule="0 2 * * *", duration="1h"),)  # the questions' now is 00:16:40 UTC


def test_outside_its_windows_a_change_is_shown_and_asked_for_and_not_begun():
    activation = Activation(windows=NIGHT)
    made = plan(ask(card(busy_port()), activation=activation, reset_proven=()))
    assert {s.needs for s in made.steps} == {made.approvals[0].key}
    assert problem(made, "window-closed").text == (
        "the change waits for its maintenance window; it opens Thu 1 Jan 1970 02:00 (UTC)."
    )
    agreed = plan(
        ask(card(busy_port()), activation=activation, reset_proven=(), approvals=(made.approvals[0].key,))
    )
    assert {s.needs for s in agreed.steps} == {"window:training"}
    assert not agreed.changes
    inside = msgspec.structs.replace(
        ask(card(busy_port()), activation=activation, reset_proven=(), approvals=(made.approvals[0].key,)),
        now=2.5 * 3600,
    )
    assert [c.policy for c in plan(inside).changes] == ["training"]


def test_targets_of_other_cards_are_given_while_a_window_is_awaited():
    activation = Activation(approval="Auto", windows=NIGHT)
    policies = (policy(activation=activation), policy("other", IB, pci_addresses=(f"{OTHER}.0",)))
    made = plan(
        question(
            adapter(port(1)), adapter(port(1, IB, card=OTHER)), policies=policies, targets=(target("c", "other"),)
        )
    )
    assert isinstance(next(s for s in made.steps if s.needs is None), Attach)


def test_drain_wait_begins_and_interrupts_nobody():
    waits = Activation(approval="Auto", drain="Wait", timeout="5m")
    made = plan(ask(adapter(busy_port()), activation=waits))
    assert [type(s) for s in made.steps if s.needs is None] == [WriteFirmware]
    assert not made.interrupts
    assert not [s for s in made.steps if isinstance(s, Detach)]
    assert [(c.policy, c.targets) for c in made.changes] == [("training", ())]
    said = problem(made, "drain-waits")
    assert (said.text, said.holder) == (
        "drain: Wait: the change begins and waits until a, b have ended, at most 300 s.", "a, b"
    )  # fmt: skip


# -- after a rollback ----------------------------------------------------------------------------------------


def rolled_back(**fields: Any) -> ModeChange:
    base: dict[str, Any] = {
        "policy": "training", "generation": 1, "wanted": IB, "ports": (P1,), "phase": Phase.FAILED,
        "reason_code": "rolled-back", "detail": "link-down: no link. Returned to RoCE.", "returned_to": ROCE,
        "settings": (Setting(pf=f"{CARD}.0", name="LINK_TYPE_P1", value="1", before="2", current="2"),),
    }  # fmt: skip
    return ModeChange(**(base | fields))


def test_after_a_rollback_targets_have_the_old_mode_and_nothing_is_tried_again():
    policies = (policy(activation=AUTO),)
    made = plan(question(adapter(port(1)), policies=policies, targets=(target("a"),), changes=(rolled_back(),)))
    assert kinds(made) == ["Attach"]
    assert made.steps[0].mode is ROCE
    assert problem(made, "rolled-back").text == (
        "generation 1 to InfiniBand failed: link-down: no link. Returned to RoCE."
    )


def test_a_new_generation_after_a_rollback_is_tried():
    policies = (policy(activation=AUTO),)
    its = question(adapter(port(1)), policies=policies, changes=(rolled_back(),), generations={"training": 2})
    assert [c.wanted for c in plan(its).changes] == [IB]


# -- known failures of other tools ---------------------------------------------------------------------------


def test_a_needed_restart_is_not_lost_because_another_nic_needs_none():
    done = adapter(port(1, IB, card=OTHER))
    policies = (policy(activation=AUTO), policy("other", IB, pci_addresses=(f"{OTHER}.0",)))
    for its in ((adapter(port(1)), done), (done, adapter(port(1)))):
        made = plan(question(*its, policies=policies))
        assert [c.policy for c in made.changes] == ["training"]
        assert made.restarts
    staged = question(adapter(port(1, ROCE, next_mode=IB)), done, policies=policies)
    assert plan(staged).restarts, "what is staged already still needs its activation"


def test_a_flip_and_back_before_the_restart_leaves_nothing_staged():
    its = question(adapter(port(1, ROCE, next_mode=IB)), policies=(policy(mode=ROCE, activation=AUTO),))
    made = plan(its)
    assert kinds(made) == ["WriteFirmware"]
    assert [s.value for s in made.steps[0].settings] == ["2"]
    assert not made.changes
    assert not made.restarts


def test_a_dual_port_card_with_different_vf_counts_restarts_once():
    its = adapter(
        port(1, IB, total_vfs=0), port(2, IB, total_vfs=0),
        sriov_enabled_next=False, sriov_enabled_current=False, num_vfs_next=0, num_vfs_current=0,
    )  # fmt: skip
    both = (
        policy("a", assign="VF", num_vfs=2, activation=AUTO),
        policy("b", assign="VF", num_vfs=6, activation=AUTO, pci_addresses=(f"{CARD}.1",)),
    )
    targets = (target("x", "a"), target("y", "b"))
    states = {t.name: running() for t in targets}
    simulation = Simulation(question(its, policies=both, targets=targets, states=states))
    last = simulation.settle()
    assert len(simulation.restarts) == 1
    assert not last.steps
    counts = {s.port: s.count for s in simulation.steps if isinstance(s, SetVfs)}
    assert counts == {P1: 2, P2: 6}
    smaller = msgspec.structs.replace(both[1].spec, functions=Functions(assign="VF", num_vfs=4))
    policies = (both[0], msgspec.structs.replace(both[1], spec=smaller))
    desired = msgspec.structs.replace(
        simulation.question.desired, policies=policies, generations={"a": 1, "b": 2}
    )
    simulation.question = msgspec.structs.replace(simulation.question, desired=desired)
    simulation.settle()
    assert len(simulation.restarts) == 1
