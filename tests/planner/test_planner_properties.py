"""The interlock (rules 1 to 4 and 7 to 10) over random hosts, documents and histories.

The simulator asserts rules 1 and 2 at every step it takes; the tests here say what must hold between steps.
"""

from __future__ import annotations

import random

import msgspec
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from questions import ALL, IB, ROCE
from simulate import Simulation
from worlds import NAMES, after_event, begin, containers, histories, inventories, targets, with_spec

from linkwright.model.documents import Activation, Allow, Functions
from linkwright.model.plan import Attach, Detach, Question, RestartHost, SetVfs, WriteFirmware
from linkwright.model.records import AttachmentState
from linkwright.planner import plan
from linkwright.planner.view import host_own, strangers

moderate = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


gentle = st.one_of(
    st.tuples(st.just("target"), st.just("new").flatmap(targets)),
    st.tuples(st.just("mode"), st.sampled_from(["p", "q"])),
    st.tuples(
        st.just("functions"),
        st.sampled_from(["p", "q"]),
        st.builds(Functions, assign=st.sampled_from(["Auto", "VF"]), num_vfs=st.sampled_from([None, 1, 2, 8])),
    ),
)


def history(its, happens, *, obeys=True, until_settled=False) -> Simulation:
    """Everything that happened, each event settled with every yes given; the last one only ``until_settled``."""
    simulation = Simulation(begin(its), obeys=obeys)
    for number, event in enumerate(happens, 1):
        simulation.question = after_event(simulation.question, event)
        if until_settled or number < len(happens):
            simulation.settle()
    return simulation


@moderate
@given(inventories(), histories())
def test_rules_1_and_2_hold_at_every_step_and_rule_10_in_the_end(its, happens):
    simulation = history(its, happens)
    last = simulation.settle()
    assert not last.changes
    assert not last.steps
    for port in (p for a in simulation.question.inventory.adapters for p in a.ports):
        pf_given = any(h.ours for h in port.pf.holders)
        assert not (pf_given and port.num_vfs), "the PF and VFs of one port at once"
    slots = [(r.port, r.vf_index) for r in simulation.question.records.attachments]
    assert len(slots) == len(set(slots))


@moderate
@given(inventories(), histories(), gentle)
def test_rule_2_without_a_yes_nobody_loses_an_interface(its, happens, event):
    """Another target, another mode, other VF counts: whoever has an interface keeps it until a person agrees."""
    simulation = history(its, happens, until_settled=True)
    simulation.question = all_ask(simulation.question)
    simulation.settle(approve=False)
    before, restarts = in_use(simulation.question), len(simulation.restarts)
    simulation.question = after_event(simulation.question, [event])
    simulation.settle(approve=False)
    assert before <= in_use(simulation.question)
    assert len(simulation.restarts) == restarts


def in_use(question: Question) -> set[tuple[str, str, str, int | None]]:
    held = {
        (p.id, f.vf_index)
        for a in question.inventory.adapters
        for p in a.ports
        for f in p.functions
        if any(h.ours for h in f.holders)
    }
    return {
        (r.target, r.interface, r.port, r.vf_index)
        for r in question.records.attachments
        if r.state is AttachmentState.ATTACHED and (r.port, r.vf_index) in held
    }


def all_ask(question: Question) -> Question:
    """The same policies with approval: Manual; the documents' generations stay, as nothing else changed."""
    asking = Activation(approval="Manual")
    policies = tuple(with_spec(p, activation=asking) for p in question.desired.policies)
    desired = msgspec.structs.replace(question.desired, policies=policies)
    records = msgspec.structs.replace(question.records, approvals=frozenset())
    return msgspec.structs.replace(question, desired=desired, records=records)


@moderate
@given(inventories(), histories(), st.sampled_from(NAMES), containers)
def test_rule_1_starting_and_stopping_a_container_moves_nobody_else(its, happens, name, state):
    simulation = history(its, happens, until_settled=True)
    assume(all(p.spec.activation.drain == "Detach" for p in simulation.question.desired.policies))
    slots = {(r.target, r.interface): (r.port, r.vf_index) for r in simulation.question.records.attachments}
    simulation.question = after_event(simulation.question, [("container", name, state)])
    made = plan(simulation.question)
    assert not [s for s in made.steps if isinstance(s, SetVfs | RestartHost | WriteFirmware)]
    assert {s.target for s in made.steps if isinstance(s, Detach | Attach)} <= {name}
    simulation.settle()
    after = {(r.target, r.interface): (r.port, r.vf_index) for r in simulation.question.records.attachments}
    assert after == slots


@moderate
@given(inventories(), histories(), st.sampled_from(["p", "q"]))
def test_s4_a_mode_change_gives_everybody_the_same_slot_back(its, happens, name):
    simulation = history(its, happens, until_settled=True)
    assume(all(p.spec.functions.assign != "PF" for p in simulation.question.desired.policies))
    slots = {(r.target, r.interface): (r.port, r.vf_index) for r in simulation.question.records.attachments}
    simulation.question = after_event(simulation.question, [("mode", name)])
    simulation.settle()
    after = {(r.target, r.interface): (r.port, r.vf_index) for r in simulation.question.records.attachments}
    for key, (port, vf_index) in slots.items():
        assert after[key][0] == port
        assert vf_index is None or after[key][1] == vf_index  # a PF may become a VF by a conversion that waited


@moderate
@given(inventories(), histories())
def test_rule_3_a_card_that_does_not_obey_sees_one_restart_for_a_generation(its, happens):
    simulation = history(its, happens, obeys=False)
    simulation.settle()
    seen: set[tuple[str, int, str]] = set()
    for changes in simulation.restarts:
        for change in changes:
            key = (change.policy, change.generation, change.wanted.value)
            assert key not in seen, "a second activation of one generation"
            seen.add(key)


@moderate
@given(inventories(), histories())
def test_rules_4_and_7_unnamed_contested_and_protected_ports_are_untouched(its, happens):
    question = history(its, happens).question
    made = plan(question)
    mine = {d.port for d in made.decisions}
    declared = {(t.name, i.name) for t in question.desired.targets for i in t.spec.interfaces}
    restart = next((n for n, s in enumerate(made.steps) if isinstance(s, RestartHost)), None)
    for number, step in enumerate(made.steps):
        if isinstance(step, SetVfs | Attach):
            assert step.port in mine
            port = question.inventory.port(step.port)
            assert not host_own(port)
            if isinstance(step, SetVfs):
                assert not strangers(port)
        elif isinstance(step, WriteFirmware):
            assert step.pf in {p.split("/")[0] for p in mine}
        elif isinstance(step, Detach) and step.port not in mine:
            forgotten = (step.target, step.interface) not in declared or step.forget
            assert forgotten or (restart is not None and number < restart)
    if made.restarts:
        assert not [h for a in question.inventory.adapters for p in a.ports for h in strangers(p)]


@moderate
@given(inventories(), histories(), st.sampled_from(["firmware", "functions", "restart"]))
def test_rule_4_what_host_yaml_does_not_allow_is_withheld(its, happens, missing):
    question = history(its, happens).question
    allow = msgspec.structs.replace(ALL, **{missing: False})
    made = plan(with_host(question, allow))
    kinds = {"firmware": WriteFirmware, "functions": SetVfs | Attach | Detach, "restart": RestartHost}
    assert not [s for s in made.steps if isinstance(s, kinds[missing])]
    assert not plan(with_host(question, Allow())).steps
    frozen = msgspec.structs.replace(
        question, desired=msgspec.structs.replace(question.desired, frozen_by="root: maintenance")
    )
    assert not plan(frozen).steps
    assert not plan(frozen).changes
    assert not plan(frozen).approvals


def with_host(question: Question, allow: Allow) -> Question:
    host = question.desired.host
    host = msgspec.structs.replace(host, spec=msgspec.structs.replace(host.spec, allow=allow))
    return msgspec.structs.replace(question, desired=msgspec.structs.replace(question.desired, host=host))


@moderate
@given(inventories(quiet=True), histories())
def test_rule_7_an_unreadable_card_keeps_its_targets_and_stops_nobody_else(its, happens):
    simulation = history(its, happens)
    simulation.settle()
    question = simulation.question
    first = question.inventory.adapters[0]
    blind = msgspec.structs.replace(
        first,
        identity=msgspec.structs.replace(first.identity, part_number=None, psid=None),
        faults=("config space reads all ones",),
        ports=tuple(msgspec.structs.replace(p, next_mode=None, current_mode=None) for p in first.ports),
    )
    inventory = msgspec.structs.replace(question.inventory, adapters=(blind, *question.inventory.adapters[1:]))
    made = plan(msgspec.structs.replace(question, inventory=inventory))
    assert not [s for s in made.steps if isinstance(s, Detach | WriteFirmware | RestartHost)]


@moderate
@given(inventories(), histories())
def test_rule_8_a_group_is_changed_to_one_mode_or_not_at_all(its, happens):
    simulation = history(its, happens)
    question = simulation.question
    members = [t for t in question.desired.targets if t.spec.group == "job"]
    used = {t.spec.policy for t in members}
    modes = {p.spec.link_mode for p in question.desired.policies if p.name in used}
    if len(members) > 1 and modes == {IB, ROCE}:
        assert not {c.policy for c in plan(question).changes} & used


@moderate
@given(inventories(), histories(), st.randoms(use_true_random=False))
def test_rule_9_the_order_of_the_input_does_not_matter(its, happens, rng: random.Random):
    question = history(its, happens).question
    assert plan(shuffled(question, rng)) == plan(question)


def shuffled(question: Question, rng: random.Random) -> Question:
    def mix(values):
        return tuple(rng.sample(values, len(values)))

    adapters = tuple(
        msgspec.structs.replace(a, ports=mix(a.ports)) for a in mix(question.inventory.adapters)
    )
    return msgspec.structs.replace(
        question,
        desired=msgspec.structs.replace(
            question.desired, policies=mix(question.desired.policies), targets=mix(question.desired.targets)
        ),
        inventory=msgspec.structs.replace(question.inventory, adapters=adapters),
        targets=dict(mix(list(question.targets.items()))),
        records=msgspec.structs.replace(
            question.records,
            attachments=mix(question.records.attachments),
            changes=mix(question.records.changes),
        ),
    )
