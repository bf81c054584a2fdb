"""A reload of the driver: all functions vanished and came back, and everything is rebuilt without a restart."""

from __future__ import annotations

from questions import IB, P1, adapter, attached, policy, port, question, running, target

from linkwright.model.plan import Attach, Detach, SetVfs
from linkwright.planner import plan


def test_vfs_that_vanished_under_their_holders_are_made_anew_and_given_back_without_a_yes():
    two = (target("a"), target("b"))
    records = (attached("a", vf=0), attached("b", vf=1, inode=2))
    made = plan(
        question(
            adapter(port(1, IB)),
            policies=(policy(),),
            targets=two,
            records=records,
            states={"a": running(1), "b": running(2)},
        )
    )
    assert not made.approvals
    assert [(type(s), s.port, getattr(s, "vf_index", None)) for s in made.steps] == [
        (Detach, P1, 0),
        (Detach, P1, 1),
        (SetVfs, P1, None),
        (Attach, P1, 0),
        (Attach, P1, 1),
    ]
    assert not [s for s in made.steps if s.interrupts or s.needs]


def test_a_pf_that_is_back_on_the_host_is_given_again():
    made = plan(question(adapter(port(1, IB)), policies=(policy(),), targets=(target("a"),),
                         records=(attached("a"),)))  # fmt: skip
    assert [type(s) for s in made.steps] == [Detach, Attach]
    assert made.steps[0].reason == "its function is back on the host"


def test_a_single_vf_of_two_that_is_gone_with_the_count_intact_is_said_to_be_gone():
    made = plan(question(adapter(port(1, IB, vfs=1)), policies=(policy(assign="VF"),), targets=(target("a"),),
                         records=(attached("a", vf=3),)))  # fmt: skip
    detach = next(s for s in made.steps if isinstance(s, Detach))
    assert not detach.needs
    assert not detach.interrupts
