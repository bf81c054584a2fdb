"""Which policy a port belongs to: selectors, protection, conflicts."""

from __future__ import annotations

import msgspec
import pytest
from questions import CARD, IB, P1, P2, ROCE, adapter, function, netdev, policy, port, problem, question, target

from linkwright.model.inventory import Holder, Identity
from linkwright.model.plan import Attach
from linkwright.model.values import PortId
from linkwright.planner import plan


@pytest.mark.parametrize(
    "selector",
    [
        {"pci_addresses": ("3B:00.0",)},
        {"ports": (1,)},
        {"part_numbers": ("mcx653106a-ecat", "other")},
        {"psids": ("MT_0000000223",)},
        {"serial_numbers": ("MT1",)},
        {"device_ids": ("0x101B",)},
        {"fabrics": ("rail-0",)},
        {"psids": ("MT_0000000223",), "ports": (1,), "fabrics": ("rail-0", "rail-1")},
    ],
    ids=lambda s: "+".join(s),
)
def test_all_given_fields_match_and_any_value_of_a_field_may(selector):
    its = adapter(port(1, IB, fabric="rail-0"), port(2, IB, fabric="rail-9"))
    made = plan(question(its, policies=(policy(**selector),)))
    assert P1 in {d.port for d in made.decisions}


@pytest.mark.parametrize(
    "selector",
    [{"ports": (2,)}, {"psids": ("MT_0000000223",), "ports": (3,)}, {"fabrics": ("rail-9",)}],
    ids=str,
)
def test_one_field_that_does_not_match_is_enough(selector):
    made = plan(question(adapter(port(1, IB, fabric="rail-0")), policies=(policy(**selector),)))
    assert not made.decisions
    said = problem(made, "matches-nothing")
    assert said.text == "its nicSelector matches no port of this host."
    assert said.subject == "policy training"


def test_a_second_pci_connector_of_the_same_port_is_never_offered():
    second = port(1, IB, card="0000:af:00", secondary_of=P1)
    made = plan(question(adapter(port(1, IB), second), policies=(policy(pci_addresses=("0000:af:00.0",)),)))
    assert not made.decisions
    assert problem(made, "matches-nothing").text == (
        "its nicSelector matches only 0000:af:00.0 p1, a second PCI connector of 0000:3b:00.0 p1; name that port "
        "instead."
    )


def test_two_policies_on_one_port_are_both_refused_there_and_the_other_port_works_on():
    its = adapter(port(1, IB), port(2, IB))
    both = (policy("a", pci_addresses=(f"{CARD}.0", f"{CARD}.1")), policy("b", pci_addresses=(f"{CARD}.0",)))
    made = plan(question(its, policies=both, targets=(target("x", "a"), target("y", "b"))))
    said = [p for p in made.problems if p.code == "policy-conflict"]
    assert [p.subject for p in said] == ["policy a", "policy b"]
    assert said[0].text == "0000:3b:00.0 p1 is also named by policy b; neither is applied to it."
    assert said[0].rule == 4
    assert said[1].holder == "policy a"
    assert [(s.target, s.port) for s in made.steps if isinstance(s, Attach)] == [("x", P2)]


@pytest.mark.parametrize("entry", ["0000:3b:00.0", "3b:00.0", "0000:3b:00.0/1", "eno1", "rdma-a"])
def test_a_port_that_host_yaml_protects_is_untouched_by_address_port_or_name(entry):
    pf = function(f"{CARD}.0")
    pf = msgspec.structs.replace(pf, netdev=netdev("eno1", altnames=("rdma-a",)))
    its = adapter(port(1, ROCE, pf=pf))
    made = plan(question(its, policies=(policy(),), targets=(target("a"),), protect=(entry,)))
    assert not made.steps
    assert problem(made, "port-protected").rule == 7
    assert made.untouched == (f"0000:3b:00.0 p1 (protected by {entry} in /etc/linkwright/host.yaml)",)


@pytest.mark.parametrize("kind", ["route", "address", "upper", "rdma"])
def test_a_port_with_the_hosts_own_traffic_is_untouched_and_says_why(kind):
    own = Holder(kind=kind, detail="default route, 10.0.0.7")
    its = adapter(port(1, ROCE, pf=function(f"{CARD}.0", None, own)))
    made = plan(question(its, policies=(policy(),), targets=(target("a"),)))
    assert not made.steps
    said = problem(made, "port-protected")
    assert said.text == "0000:3b:00.0 p1 is never touched: this host's own: default route, 10.0.0.7."
    assert made.untouched == ("0000:3b:00.0 p1 (this host's own: default route, 10.0.0.7)",)


def test_a_card_that_cannot_be_read_may_be_named_by_a_part_number_and_so_waits():
    blind = adapter(port(1, IB), identity=Identity(), faults=("config space reads all ones",))
    made = plan(question(blind, policies=(policy(part_numbers=("MCX6",)),), targets=(target("a"),)))
    assert not made.steps
    assert problem(made, "identity-unknown").text == (
        "cannot tell whether it names 0000:3b:00.0 p1: the card's identity cannot be read now."
    )


def test_a_readable_card_without_a_part_number_simply_has_none():
    its = adapter(port(1, IB), identity=Identity())
    by_part, by_address = policy("a", part_numbers=("MCX6",)), policy("b")
    made = plan(question(its, policies=(by_part, by_address), targets=(target("x", "b"),)))
    assert [d.policy for d in made.decisions] == ["b"]
    assert problem(made, "matches-nothing").subject == "policy a"


def test_ports_are_matched_on_the_adapters_of_every_bus():
    other = adapter(port(1, IB, card="0000:5e:00"))
    made = plan(question(adapter(port(1, IB)), other, policies=(policy(ports=(1,)),)))
    assert [d.port for d in made.decisions] == [P1, PortId("0000:5e:00.0/1")]
