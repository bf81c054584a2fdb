"""Interlock rules 2, 3, 4 and 8 on mode changes: who must not be interrupted, tried again, allowed or split."""

from __future__ import annotations

import msgspec
import pytest
from questions import (
    ALL,
    AUTO,
    CARD,
    IB,
    P1,
    P2,
    ROCE,
    adapter,
    attached,
    busy_port,
    function,
    in_use,
    kinds,
    policy,
    port,
    problem,
    question,
    target,
)

from linkwright.model.documents import Allow
from linkwright.model.inventory import Holder
from linkwright.model.plan import Attach, Detach, RestartHost, Verify, WriteFirmware
from linkwright.model.records import ModeChange, Phase, Setting
from linkwright.planner import plan

TWO = {"pci_addresses": (f"{CARD}.0", f"{CARD}.1")}


# -- rule 3 --------------------------------------------------------------------------------------------------


def change(phase, **more):
    setting = Setting(pf=f"{CARD}.0", name="LINK_TYPE_P1", value="1", before="2")
    fields = {"ports": (P1,), "settings": (setting,), "boot_id": "boot-1", "intent_at": 1.0} | more
    return ModeChange(policy="training", generation=1, wanted=IB, phase=phase, **fields)


def test_a_failed_change_is_not_tried_again_before_a_retry():
    failed = change(Phase.FAILED, reason_code="card-not-reset", detail="the card was not reset by this restart")
    asked = {"policies": (policy(activation=AUTO),), "targets": (target("a"),)}
    made = plan(question(adapter(port(1, next_mode=IB)), **asked, changes=(failed,)))
    assert not made.steps
    said = problem(made, "card-not-reset")
    assert (said.severity, said.rule) == ("waiting", 3)
    assert said.text == "generation 1 to InfiniBand failed: the card was not reset by this restart."
    assert said.next_step == 'When the cause is gone: linkwright retry training --reason "…"'
    newer = plan(question(adapter(port(1, next_mode=IB)), **asked, changes=(failed,), generations={"training": 2}))
    assert newer.restarts


def test_a_mode_that_was_activated_once_and_is_gone_again_is_not_activated_twice():
    done = change(Phase.DONE, activations=1)
    made = plan(question(adapter(port(1)), policies=(policy(activation=AUTO),), changes=(done,)))
    assert not made.steps
    assert problem(made, "already-activated").text == (
        "generation 1 was activated once already, and LINK_TYPE_P1 is not current any more: somebody else changed "
        "it."
    )


def test_more_vfs_in_the_same_generation_are_another_value():
    done = change(Phase.DONE, activations=1)
    its = adapter(port(1, IB, total_vfs=2), num_vfs_next=2, num_vfs_current=2)
    made = plan(
        question(
            its,
            policies=(policy(activation=AUTO),),
            targets=tuple(target(n) for n in "abc"),
            changes=(done,),
        )
    )
    assert made.steps[0].command[-1] == "NUM_OF_VFS=3"
    assert made.restarts


@pytest.mark.parametrize("phase", [Phase.INTENT, Phase.STAGED, Phase.DRAINING, Phase.RESTARTING])
def test_before_its_restart_a_change_lets_nothing_new_begin_on_the_host(phase):
    """What is given now would be interrupted without having been named."""
    other = adapter(port(1, IB, card="0000:5e:00"))
    policies = (policy(), policy("steady", pci_addresses=("0000:5e:00.0",)))
    asked = {"policies": policies, "targets": (target("x", "steady"),), "changes": (change(phase),)}
    made = plan(question(adapter(port(1)), other, **asked))
    assert not made.steps
    assert not made.changes


@pytest.mark.parametrize("phase", [Phase.BOOTED, Phase.VERIFY_MODE, Phase.VERIFY_FABRIC])
def test_while_a_change_verifies_only_its_own_ports_wait(phase):
    other = adapter(port(1, IB, card="0000:5e:00"))
    policies = (policy(), policy("steady", pci_addresses=("0000:5e:00.0",)))
    begun = change(phase, boot_id="boot-0", activations=1)
    made = plan(
        question(
            adapter(port(1, IB)),
            other,
            policies=policies,
            targets=(target("x", "steady"), target("a")),
            changes=(begun,),
        )
    )
    assert [s.target for s in made.steps] == ["x"]


@pytest.mark.parametrize("phase", [Phase.FUNCTIONS, Phase.REATTACH])
def test_then_its_functions_and_interfaces_are_planned(phase):
    begun = change(phase, boot_id="boot-0", activations=1)
    made = plan(
        question(adapter(port(1, IB)), policies=(policy(),), targets=(target("a"), target("b")), changes=(begun,))
    )
    assert kinds(made) == ["SetVfs", "Attach", "Attach"]


def test_another_change_follows_the_one_under_way():
    begun = change(Phase.VERIFY_FABRIC, boot_id="boot-0", activations=1)
    other = adapter(port(1, IB, card="0000:5e:00"))
    policies = (policy(), policy("b", ROCE, activation=AUTO, pci_addresses=("0000:5e:00.0",)))
    made = plan(question(adapter(port(1, IB)), other, policies=policies, changes=(begun,)))
    assert not made.restarts
    assert problem(made, "change-in-progress").text == (
        "the change of policy training generation 1 is not finished (verify-fabric); this one follows it."
    )


def test_a_change_that_waits_for_a_person_stops_no_other_card():
    waits = change(Phase.WAITING, boot_id="boot-0", activations=1, reason_code="no-subnet-manager")
    other = adapter(port(1, IB, card="0000:5e:00"))
    policies = (policy(), policy("b", ROCE, activation=AUTO, pci_addresses=("0000:5e:00.0",)))
    made = plan(question(adapter(port(1, IB)), other, policies=policies, targets=(target("a"),), changes=(waits,)))
    assert [c.policy for c in made.changes] == ["b"]
    assert not [s for s in made.steps if isinstance(s, Attach)]  # a's port is still being verified


def test_changing_the_policy_is_an_answer_to_a_change_that_waits():
    waits = change(Phase.WAITING, boot_id="boot-0", activations=1, reason_code="no-subnet-manager")
    back = policy(mode=ROCE, activation=AUTO)
    made = plan(question(adapter(port(1, IB)), policies=(back,), changes=(waits,), generations={"training": 2}))
    assert [(c.generation, c.wanted) for c in made.changes] == [(2, ROCE)]


def test_a_policy_that_is_changed_while_its_change_moves_follows_it():
    begun = change(Phase.VERIFY_MODE, boot_id="boot-0", activations=1)
    back = policy(mode=ROCE, activation=AUTO)
    made = plan(question(adapter(port(1, IB)), policies=(back,), changes=(begun,), generations={"training": 2}))
    assert not made.steps
    assert problem(made, "change-in-progress").text == (
        "generation 2 follows the change of generation 1, which is not finished (verify-mode)."
    )


# -- rules 2, 4, 8 -------------------------------------------------------------------------------------------


def test_no_restart_under_a_guest_on_any_card_of_the_host():
    guest = Holder(kind="vfio", detail="pid 4711 (qemu-system-x86)", pid=4711)
    other = adapter(port(1, IB, card="0000:5e:00", pf=function("0000:5e:00.0", None, guest, away=True)))
    made = plan(question(adapter(port(1)), other, policies=(policy(activation=AUTO),)))
    assert not made.steps
    assert problem(made, "function-in-use").text == (
        "this host cannot restart: pid 4711 (qemu-system-x86) uses a function of 0000:5e:00.0 p1."
    )


def test_the_hosts_own_traffic_that_stops_for_a_restart_is_named_in_the_yes():
    own = Holder(kind="route", detail="default route, 10.0.0.7")
    other = adapter(port(1, card="0000:81:00", pf=function("0000:81:00.0", None, own)))
    made = plan(question(adapter(port(1)), other, policies=(policy(),)))
    assert made.approvals[0].text.endswith(
        "no target is attached; this host's own traffic stops meanwhile: 0000:81:00.0 p1 (default route, 10.0.0.7)"
    )


@pytest.mark.parametrize(("missing", "steps"), [("firmware", 1), ("restart", 1), ("functions", 5)])
def test_what_host_yaml_does_not_allow_is_shown_and_not_done(missing, steps):
    allow = msgspec.structs.replace(ALL, **{missing: False})
    made = plan(question(adapter(busy_port()), **in_use(), allow=allow))
    assert not made.steps
    assert not made.changes
    assert not made.approvals
    assert "RestartHost" in [type(s).__name__ for s in made.withheld]
    said = problem(made, "not-allowed")
    assert (said.severity, said.rule, said.subject) == ("refused", 4, "host gpu-01")
    count = f"{steps} step{'s' if steps > 1 else ''}"
    assert said.text == f"{count} would need spec.allow.{missing}, which /etc/linkwright/host.yaml does not give."
    assert said.next_step == (
        f"To allow it, write in /etc/linkwright/host.yaml: spec: {{allow: {{{missing}: true}}}}"
    )


def test_without_a_host_file_everything_is_only_shown():
    made = plan(question(adapter(port(1, IB)), policies=(policy(),), targets=(target("a"),), allow=Allow()))
    assert (kinds(made), [type(s).__name__ for s in made.withheld]) == ([], ["Attach"])


def test_frozen():
    made = plan(question(adapter(busy_port()), **in_use(), frozen_by="root: maintenance"))
    assert not made.steps
    said = problem(made, "frozen")
    assert said.text == "frozen by root: maintenance; 8 steps wait."
    assert said.next_step == "When it may go on: linkwright unfreeze"


def test_a_group_in_two_modes_is_refused_with_its_members():
    its = adapter(port(1), port(2))
    policies = (policy("a", IB, activation=AUTO), policy("b", ROCE, pci_addresses=(f"{CARD}.1",)))
    made = plan(
        question(its, policies=policies, targets=(target("x", "a", group="job"), target("y", "b", group="job")))
    )
    assert not made.restarts
    said = problem(made, "group-mode")
    assert (said.rule, said.subject) == (8, "group job")
    assert said.text == (
        "its members talk to each other and need one mode, but: x InfiniBand (policy a), y RoCE (policy b); no "
        "mode is changed for them."
    )


def test_policies_of_a_group_begin_together_or_not_at_all():
    its = adapter(port(1), port(2))
    policies = (policy("a", activation=AUTO), policy("b", pci_addresses=(f"{CARD}.1",)))
    members = (target("x", "a", group="job"), target("y", "b", group="job"))
    made = plan(question(its, policies=policies, targets=members))
    assert not [s for s in made.steps if s.needs is None]  # a's own Auto does not split the group
    assert [c.policy for c in made.changes] == ["b"]
    agreed = plan(question(its, policies=policies, targets=members, approvals=(made.approvals[0].key,)))
    assert [c.policy for c in agreed.changes] == ["a", "b"]
    assert {s.needs for s in agreed.steps} == {None}


def test_a_member_that_cannot_follow_holds_its_group():
    its = adapter(port(1), port(2, can_change=False, next_mode=None, current_mode=None))
    made = plan(
        question(
            its,
            policies=(policy(activation=AUTO, **TWO),),
            targets=(target("x", "training", group="job"), target("y", "training", group="job")),
            records=(attached("y", P2),),
        )
    )
    assert not made.restarts
    assert problem(made, "group-incomplete").text == (
        "x, y talk to each other, and the mode of 0000:3b:00.1 p2, which y has, cannot change now; none of them "
        "changes."
    )


def test_members_on_fabrics_without_a_way_between_them_are_refused():
    its = adapter(port(1, fabric="rail-0"), port(2, fabric="rail-1"))
    policies = (policy("a", activation=AUTO), policy("b", activation=AUTO, pci_addresses=(f"{CARD}.1",)))
    members = (target("x", "a", group="job"), target("y", "b", group="job"))
    made = plan(question(its, policies=policies, targets=members))
    assert not made.restarts
    assert problem(made, "group-fabric").text == (
        "x is on rail-0, y on rail-1: they cannot reach each other; no mode is changed for them."
    )


def test_after_success_nothing_is_planned():
    made = plan(question(adapter(busy_port(IB)), **in_use()))
    assert (made.steps, made.changes, made.problems, made.approvals) == ((), (), (), ())


def test_verify_and_restart_are_the_last_word_on_order():
    made = plan(question(adapter(busy_port()), **in_use()))
    order = [type(s) for s in made.steps]
    restart = order.index(RestartHost)
    assert all(k in (WriteFirmware, Detach) for k in order[:restart])
    assert order[restart + 1] is Verify
