"""nicSelector: AND over fields, OR over values, and the explanation that people read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from questions import CARD, P1, P2, adapter, policy, port, question

from linkwright.cli.render.explain import explain_lines
from linkwright.model.inventory import Identity
from linkwright.planner import plan

MINE = Identity(part_number="MCX653106A-ECAT", psid="MT_0000000223", serial="MT1", device_id="101b")
OTHER = "0000:81:00"
RIGHT = {
    "pci_addresses": (f"{CARD}.0",),
    "ports": (1,),
    "part_numbers": ("MCX653106A-ECAT",),
    "serial_numbers": ("MT1",),
    "psids": ("MT_0000000223",),
    "device_ids": ("101b",),
    "fabrics": ("rail-0",),
}
WRONG = {
    "pci_addresses": ("0000:99:00.0",),
    "ports": (7,),
    "part_numbers": ("MCX75310AAS-NEAT",),
    "serial_numbers": ("MT2",),
    "psids": ("MT_0000000838",),
    "device_ids": ("1021",),
    "fabrics": ("rail-1",),
}


def ask(*policies, identity=MINE, **more):
    return plan(question(adapter(port(1, fabric="rail-0"), identity=identity, **more), policies=policies))


def text(made) -> list[str]:
    return ["".join(part for part, _ in line) for line in explain_lines(made, None)]


@pytest.mark.parametrize("field", RIGHT)
def test_each_field_alone_names_the_port_and_any_of_its_values_may(field):
    both = (*WRONG[field], *RIGHT[field])
    assert [d.port for d in ask(policy(**{field: RIGHT[field]})).decisions] == [P1]
    assert [d.port for d in ask(policy(**{field: both})).decisions] == [P1]
    assert not ask(policy(**{field: WRONG[field]})).decisions


@given(st.dictionaries(st.sampled_from(sorted(RIGHT)), st.sampled_from(["right", "wrong", "both"]), min_size=1))
def test_all_given_fields_must_match(chosen):
    values = {"right": RIGHT, "wrong": WRONG}
    fields = {f: (*WRONG[f], *RIGHT[f]) if c == "both" else values[c][f] for f, c in chosen.items()}
    made = ask(policy(**fields))
    (match,) = made.matches
    assert match.answer is ("wrong" not in chosen.values())
    assert bool(made.decisions) is match.answer
    assert {m.answer for m in match.fields} <= {True, False}
    assert len(match.fields) == len(chosen)


def test_explain_says_which_policy_matched_by_which_fields_and_which_field_failed():
    made = ask(
        policy("training", ports=(1,), psids=("MT_0000000223",)),
        policy("storage", part_numbers=("MCX75310AAS-NEAT", "MCX75343AAN-NEAC"), ports=(1,), fabrics=("rail-1",)),
    )
    assert text(made)[2:] == [
        "  0000:3b:00.0 p1  policy training: InfiniBand, nothing declared on it",
        "    ✔ policy training: named by ports 1 and psids MT_0000000223",
        "    ✖ policy storage: not named: partNumbers wants MCX75310AAS-NEAT or MCX75343AAN-NEAC, it has "
        "MCX653106A-ECAT and fabrics wants rail-1, it has rail-0",
    ]


def test_explain_says_what_cannot_be_read_and_what_keeps_a_named_port_untouched():
    made = ask(policy("training", psids=("MT_1",)), identity=Identity(), faults=("reads all ones",))
    assert text(made)[2:] == [
        "  0000:3b:00.0 p1  no policy names it: only observed",
        "    ? policy training: cannot tell: psids of the card cannot be read now",
    ]
    made = ask(policy("a", ports=(1,)), policy("b", fabrics=("rail-0",)))
    assert text(made)[2] == "  0000:3b:00.0 p1  left as it is: policies a and b both name it"
    protected = question(adapter(port(1)), policies=(policy(),), protect=(f"{CARD}.0",))
    assert "left as it is: protected by 0000:3b:00.0" in text(plan(protected))[2]


def test_a_fabric_that_nobody_told_is_no_match_and_said():
    made = plan(question(adapter(port(1)), policies=(policy(fabrics=("rail-0",)),)))
    assert text(made)[-1] == "    ✖ policy training: not named: fabrics wants rail-0, it has none"


def test_pf_and_vf_policies_side_by_side_on_a_dual_port_card():
    whole = policy("whole", assign="PF")
    shared = policy("shared", assign="VF", num_vfs=4, pci_addresses=(f"{CARD}.1",))
    made = plan(question(adapter(port(1), port(2)), policies=(whole, shared)))
    assert {d.port: d.policy for d in made.decisions} == {P1: "whole", P2: "shared"}
    assert {d.port: (d.form, d.num_vfs) for d in made.decisions} == {P1: (None, None), P2: ("VF", 4)}
