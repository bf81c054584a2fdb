"""Groups (interlock rule 8): members agree on mode and fabric; a change is for all of them or refused by name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
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
    policy,
    port,
    problem,
    question,
    running,
    target,
)

from linkwright.model.documents import Interface
from linkwright.model.plan import Attach
from linkwright.model.records import ModeChange, Phase
from linkwright.planner import plan

BOTH = {"pci_addresses": (f"{CARD}.0", f"{CARD}.1")}


def members(*policies: str, group: str | None = "job"):
    return tuple(target("xyz"[n], name, group=group) for n, name in enumerate(policies))


def two_cards(**more):
    """A card for each of two policies, both with a member attached, in RoCE mode."""
    its = (adapter(away(port(1), None, "x")), adapter(away(port(1, card="0000:5e:00"), None, "y")))
    records = (attached("x", policy="a"), attached("y", "0000:5e:00.0/1", policy="b", inode=2))
    return {"adapters": its, "records": records, "states": {"x": running(1), "y": running(2)}} | more


def two_policies(other):
    """a wants InfiniBand, b the other mode on the other card."""
    return policy("a", IB, activation=AUTO), policy("b", other, activation=AUTO, pci_addresses=("0000:5e:00.0",))


def ask(adapters, **fields):
    return plan(question(*adapters, **fields))


def test_one_policy_changes_all_members_in_one_restart():
    its = adapter(away(port(1), None, "x"), away(port(2), None, "y"))
    made = plan(
        question(
            its,
            policies=(policy(activation=AUTO, **BOTH),),
            targets=members("training", "training"),
            records=(attached("x"), attached("y", P2, inode=2)),
        )
    )
    (change,) = made.changes
    assert set(change.ports) == {P1, P2}
    assert change.targets == ("x", "y")
    assert made.restarts


def test_a_change_of_one_policy_only_is_refused_with_members_and_modes_and_said_to_the_policy():
    policies = two_policies(ROCE)
    made = ask(**two_cards(policies=policies, targets=members("a", "b")))
    assert not made.steps
    group, told = (p for p in made.problems if p.code == "group-mode")
    assert (group.subject, told.subject) == ("group job", "policy a")
    assert "x InfiniBand (policy a), y RoCE (policy b)" in told.text
    assert told.severity == "refused"


def test_when_both_policies_name_the_new_mode_they_change_in_one_restart():
    policies = two_policies(IB)
    made = ask(**two_cards(policies=policies, targets=members("a", "b")))
    assert [c.policy for c in made.changes] == ["a", "b"]
    assert sum(type(s).__name__ == "RestartHost" for s in made.steps) == 1


def test_targets_of_different_groups_or_of_none_are_free():
    policies = two_policies(ROCE)
    for targets in (members("a", "b", group=None), (target("x", "a", group="j1"), target("y", "b", group="j2"))):
        made = ask(**two_cards(policies=policies, targets=targets))
        assert [c.policy for c in made.changes] == ["a"]


def test_a_policy_whose_change_failed_holds_the_others_of_its_group():
    policies = two_policies(IB)
    failed = ModeChange(policy="b", generation=1, wanted=IB, phase=Phase.FAILED, reason_code="card-not-reset")
    made = ask(**two_cards(policies=policies, targets=members("a", "b"), changes=(failed,)))
    assert not made.changes
    assert problem(made, "group-held").text == (
        "its targets talk to those of policy b, whose change cannot begin (card-not-reset); they change together."
    )


def test_a_new_member_follows_the_fabric_of_the_others():
    its = adapter(away(port(1, IB, fabric="rail-0"), None, "x"), port(2, IB, fabric="rail-1"))
    other = adapter(port(1, IB, card="0000:5e:00", fabric="rail-0"))
    made = plan(
        question(
            its,
            other,
            policies=(policy(ports=(1, 2)),),
            targets=members("training", "training"),
            records=(attached("x"),),
        )
    )
    (step,) = (s for s in made.steps if isinstance(s, Attach))
    assert (step.target, step.port) == ("y", "0000:5e:00.0/1")  # not p2 of the same card, which is nearer


def test_members_that_insist_on_fabrics_without_a_way_are_refused_by_name():
    its = adapter(port(1, fabric="rail-0"), port(2, fabric="rail-1"))
    wish = [Interface(name="net1", fabric=f"rail-{n}") for n in (0, 1)]
    targets = tuple(target(n, "training", wish[i], group="job") for i, n in enumerate("xy"))
    made = plan(question(its, policies=(policy(activation=AUTO, **BOTH),), targets=targets))
    assert not made.restarts
    assert problem(made, "group-fabric").text.startswith("x is on rail-0, y on rail-1")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["j1", "j2", None])), min_size=1, max_size=3))
def test_never_two_modes_after_a_change_within_a_group(chosen):
    """Policy a goes to InfiniBand, b stays in RoCE: a changes exactly when no group has members of both."""
    policies = two_policies(ROCE)
    targets = tuple(target("xyz"[n], name, group=group) for n, (name, group) in enumerate(chosen))
    its = (adapter(port(1)), adapter(port(1, card="0000:5e:00")))
    made = plan(question(*its, policies=policies, targets=targets))
    mixed = any({n for n, g in chosen if g == group} == {"a", "b"} for group in ("j1", "j2"))
    assert bool(made.changes) is not mixed
