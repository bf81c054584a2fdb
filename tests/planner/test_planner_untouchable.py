"""What is never touched, and the line of host.yaml that would change that."""

from __future__ import annotations

import msgspec
import pytest
from questions import (
    CARD,
    IB,
    P1,
    P2,
    ROCE,
    adapter,
    attached,
    away,
    function,
    policy,
    port,
    problem,
    question,
    target,
)

from linkwright.model.inventory import Holder, Identity, Owner
from linkwright.model.plan import Attach
from linkwright.model.values import PortId
from linkwright.planner import plan

OWN = Holder(kind="route", detail="default route, 10.0.0.7")
SNO = Owner(
    name="sriov-network-operator",
    evidence=f"/etc/sriov-operator/pci/{CARD}.0",
    what="VFs",
    pfs=(f"{CARD}.0",),
)


def with_owners(asked, *owners):
    return msgspec.structs.replace(asked, inventory=msgspec.structs.replace(asked.inventory, owners=owners))


def test_one_policy_that_selects_the_management_nic_by_part_number_touches_the_others_only():
    office = adapter(port(1, ROCE, card="0000:81:00", pf=function("0000:81:00.0", None, OWN)), id="office")
    rail = adapter(port(1, ROCE))
    every = policy(mode=ROCE, part_numbers=("MCX653106A-ECAT",))
    made = plan(question(rail, office, policies=(every,), targets=(target("a"), target("b"))))
    assert [d.port for d in made.decisions] == [P1]
    assert problem(made, "port-protected").text == (
        "0000:81:00.0 p1 is never touched: this host's own: default route, 10.0.0.7."
    )
    assert made.untouched == ("0000:81:00.0 p1 (this host's own: default route, 10.0.0.7)",)
    assert not [s for s in made.steps if "81:00" in str(s)]


def test_the_refusal_says_the_line_that_would_allow_it_and_with_the_line_it_goes_on():
    its = adapter(port(1, ROCE, pf=function(f"{CARD}.0", None, OWN)))
    asked = {"policies": (policy(mode=IB),), "targets": (target("a"),)}
    said = problem(plan(question(its, **asked)), "port-protected")
    assert said.next_step.endswith(
        'allow it in /etc/linkwright/host.yaml: spec: {allowOwnTraffic: ["0000:3b:00.0"]}'
    )
    made = plan(question(its, **asked, allow_own_traffic=("0000:3b:00.0",)))
    assert [c.policy for c in made.changes] == ["training"]
    assert "0000:3b:00.0 p1 (default route, 10.0.0.7)" in made.approvals[0].text


def test_a_pf_with_own_traffic_is_given_to_nobody_even_when_the_port_is_allowed():
    its = adapter(port(1, IB, pf=function(f"{CARD}.0", None, OWN)))
    made = plan(question(its, policies=(policy(),), targets=(target("a"),), allow_own_traffic=("0000:3b:00.0",)))
    assert not [s for s in made.steps if isinstance(s, Attach)]
    assert problem(made, "function-in-use").holder == "default route, 10.0.0.7"


def test_an_address_alone_may_be_a_network_manager_s_and_the_refusal_says_what_to_do():
    own = Holder(kind="address", detail="192.0.2.7")
    its = adapter(port(1, IB, vfs=1, pf=function(f"{CARD}.0", None, own)))
    said = problem(plan(question(its, policies=(policy(),))), "port-protected")
    assert said.next_step.endswith(
        '["0000:3b:00.0"]}. If a network manager gave it an address by itself: linkwright host setup.'
    )


def test_protect_wins_over_own_traffic_that_is_allowed():
    its = adapter(port(1, IB))
    both = {"protect": ("0000:3b:00.0",), "allow_own_traffic": ("0000:3b:00.0",)}
    assert problem(plan(question(its, policies=(policy(),), **both)), "port-protected").rule == 7


def test_a_card_that_another_tool_manages_is_left_to_it_by_name_and_both_its_ports():
    its = adapter(port(1, ROCE), port(2, ROCE))
    asked = question(its, policies=(policy(psids=("MT_0000000223",)),), targets=(target("a"),))
    made = plan(with_owners(asked, SNO))
    assert not made.steps
    assert not made.decisions
    assert {p.text.split(" is ")[0] for p in made.problems if p.code == "managed-elsewhere"} == {
        "0000:3b:00.0 p1",
        "0000:3b:00.1 p2",
    }
    said = problem(made, "managed-elsewhere")
    assert said.text == (
        "0000:3b:00.0 p1 is left to another tool: sriov-network-operator manages its VFs "
        "(/etc/sriov-operator/pci/0000:3b:00.0)."
    )
    assert "spec: {takeOver: [sriov-network-operator]}" in said.next_step
    assert said.holder == "sriov-network-operator: /etc/sriov-operator/pci/0000:3b:00.0"


def test_take_over_by_name_goes_on_and_a_tool_that_is_not_named_still_holds():
    its = adapter(port(1, IB))
    asked = question(its, policies=(policy(),), targets=(target("a"),), take_over=("sriov-network-operator",))
    plugin = Owner(name="sriov-network-device-plugin", evidence="pid 9 (sriovdp)", what="VFs")
    assert [d.port for d in plan(with_owners(asked, SNO)).decisions] == [P1]
    assert "device-plugin" in problem(plan(with_owners(asked, SNO, plugin)), "managed-elsewhere").text


def test_another_tool_of_another_card_is_no_matter():
    other = msgspec.structs.replace(SNO, pfs=("0000:5e:00.0",))
    asked = question(adapter(port(1, IB)), policies=(policy(),), targets=(target("a"),))
    assert [d.port for d in plan(with_owners(asked, other)).decisions] == [P1]


def test_what_a_target_has_stays_with_it_when_another_tool_appears():
    its = adapter(port(1, IB))
    asked = question(its, policies=(policy(),), targets=(target("a"),), records=(attached("a"),))
    made = plan(with_owners(asked, SNO))
    assert not made.steps


def test_a_swapped_card_is_left_alone_until_a_person_says_so():
    its = adapter(port(1, IB), replaced="serial MT1 → MT2")
    made = plan(question(its, policies=(policy(mode=ROCE),), targets=(target("a"),)))
    assert not made.steps
    assert not made.changes
    said = problem(made, "adapter-replaced")
    assert said.severity == "waiting"
    assert "(serial MT1 → MT2)" in said.text
    assert "linkwright adapter replace 0000:3b:00.0" in said.next_step


def test_a_card_whose_ports_are_merged_is_refused_while_merged_even_when_allowed():
    bond = Holder(kind="upper", detail="bond0 (bond)")
    its = adapter(port(1, ROCE, pf=function(f"{CARD}.0", None, bond)), port(2, ROCE), merged="bond0")
    made = plan(question(its, policies=(policy(mode=IB),), allow_own_traffic=(P1, P2)))
    assert not made.changes
    assert problem(made, "ports-merged").text == (
        "0000:3b:00.0 p1 is never touched: its card's ports are merged into one RDMA device (bond0)."
    )


def test_eight_cards_with_one_serial_number_are_eight_cards_and_it_is_said():
    cards = [
        adapter(
            port(1, IB, card=f"0000:{bus:02x}:00"),
            id=f"guid-{bus}",
            identity=Identity(serial="mt2331x0001", part_number="P", psid="MT_1"),
        )
        for bus in range(0x10, 0x18)
    ]
    made = plan(question(*cards, policies=(policy(serial_numbers=("MT2331X0001",)),)))
    assert len(made.decisions) == 8
    said = problem(made, "serial-not-unique")
    assert said.severity == "note"
    assert said.text.startswith("serial number MT2331X0001 is that of 8 cards of this host; all of them are")
    one = plan(question(*cards, policies=(policy(serial_numbers=("MT2331X0001",), pci_addresses=("12:00.0",)),)))
    assert [d.port for d in one.decisions] == [PortId("0000:12:00.0/1")]
    assert "serial-not-unique" not in [p.code for p in one.problems]


@pytest.mark.parametrize("kind", ["route", "address", "upper", "rdma"])
def test_every_kind_of_own_traffic_can_be_allowed_by_name_only(kind):
    own = Holder(kind=kind, detail="nfs")
    its = adapter(port(1, IB, pf=function(f"{CARD}.0", None, own)))
    refused = plan(question(its, policies=(policy(),), allow_own_traffic=("0000:5e:00.0",)))
    assert problem(refused, "port-protected").holder == "this host's own: nfs"
    allowed = plan(question(its, policies=(policy(),), allow_own_traffic=(P1,)))
    assert [d.port for d in allowed.decisions] == [P1]


def test_a_dpu_is_refused_before_anybody_is_drained():
    its = adapter(away(port(1, ROCE), None, "a"), dpu=True)
    made = plan(question(its, policies=(policy(),), targets=(target("a"),), records=(attached("a"),)))
    assert not made.steps
    assert not made.changes
    said = problem(made, "dpu-mode")
    assert said.severity == "refused"
    assert said.text == (
        "0000:3b:00.0 p1 is on a BlueField in DPU mode: a restart of this host does not reset it, so its mode "
        "would stay RoCE."
    )


def test_a_dpu_in_the_right_mode_serves_its_targets():
    made = plan(question(adapter(port(1, IB), dpu=True), policies=(policy(),), targets=(target("a"),)))
    assert [type(s) for s in made.steps] == [Attach]


@pytest.mark.parametrize(("off", "code"), [(True, "roce-off"), (None, "rdma-missing")])
def test_ethernet_without_rdma_is_said_and_is_no_fault(off, code):
    asked = question(adapter(port(1, ROCE), roce_off=off), policies=(policy(mode=ROCE),), targets=(target("a"),))
    shown = msgspec.structs.replace(asked.inventory, rdma_netns="exclusive")
    made = plan(msgspec.structs.replace(asked, inventory=shown))
    assert [type(s) for s in made.steps] == [Attach]
    assert [p.code for p in made.problems] == [code]
    assert problem(made, code).text.startswith("0000:3b:00.0 p1 is Ethernet without RDMA: ")


def test_a_dual_card_whose_second_port_has_no_link_type_changes_its_first_only():
    its = adapter(port(1, ROCE), port(2, ROCE, can_change=False))
    made = plan(question(its, policies=(policy(psids=("MT_0000000223",)),)))
    assert [s.name for c in made.changes for s in c.settings] == ["LINK_TYPE_P1"]
    assert problem(made, "fixed-mode").text == (
        "0000:3b:00.1 p2 speaks RoCE only: its firmware offers no LINK_TYPE."
    )
