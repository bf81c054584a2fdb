"""Each finding by example, and what is no finding."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import questions as q

from linkwright.audit import Finding, Marked, Seen, findings
from linkwright.cli.render.audit import NOTHING, audit_lines
from linkwright.cli.render.text import paint
from linkwright.model.inventory import Holder
from linkwright.model.plan import Question
from linkwright.model.records import AttachmentState, Before, ModeChange, Phase
from linkwright.planner import plan
from linkwright.store import OpenOperation

PF = f"{q.CARD}.0"
BEFORE = Before(name="ibs1", mtu=2044, address="aa:bb")


def found(question: Question, *links: Marked, rdma: dict[str, int] | None = None, **more: Any) -> list[Finding]:
    seen = Seen(links=links, rdma_elsewhere=rdma or {})
    return list(findings(question, plan(question), seen, more.get("journal", ())))


def one(question: Question, *links: Marked, **more: Any) -> Finding:
    (finding,) = found(question, *links, **more)
    return finding


def link(function: str = PF, name: str = "en3b0", **more: Any) -> Marked:
    address = "aa:bb:cc:00:00:01"
    return Marked(**({"function": function, "name": name, "ifindex": 7, "address": address, "mtu": 1500} | more))


def given(port: Any = None, **record: Any) -> Question:
    """Target a has the PF, as the record says."""
    return q.question(
        q.adapter(port or q.away(q.port(mode=q.IB), None, "a")),
        policies=(q.policy(),),
        targets=(q.target("a"),),
        records=(q.attached("a", function=PF, before=BEFORE, **record),),
    )


def idle(port: Any = None, **more: Any) -> Question:
    return q.question(q.adapter(port or q.port(mode=q.IB)), **more)


def test_nothing_is_found_where_all_agree() -> None:
    assert found(idle(), link()) == []
    assert found(given(), link(mark="a/net1", name="net1", inode=1)) == []


def test_recorded_as_attached_and_back_on_the_host() -> None:
    finding = one(given(q.port(mode=q.IB)), link(mark="a/net1"))
    assert (finding.code, finding.safe, finding.target) == ("attached-not-there", True, "a")


def test_recorded_as_attached_and_gone() -> None:
    record = q.attached("a", vf=3, before=BEFORE)
    finding = one(idle(policies=(q.policy(),), targets=(q.target("a"),), records=(record,)))
    assert finding.code == "attached-function-gone"
    assert "0000:3b:00.0 p1 VF 3 does not exist now" in finding.text
    assert finding.safe


def test_in_another_namespace_than_recorded() -> None:
    finding = one(given(), link(mark="a/net1", inode=99))
    assert (finding.code, finding.repair) == ("attached-elsewhere", "")


def test_quarantined_is_freed_by_itself_when_the_record_knows_how() -> None:
    finding = one(given(state=AttachmentState.QUARANTINED, reason="its name is taken"), link(mark="a/net1"))
    assert (finding.code, finding.safe) == ("quarantined", True)
    assert "its name is taken" in finding.text


def test_quarantined_without_values_from_before_asks_while_somebody_has_it() -> None:
    record = q.attached("a", function=PF, state=AttachmentState.QUARANTINED)
    question = q.question(q.adapter(q.away(q.port(mode=q.IB), None, "a")), records=(record,))
    assert not one(question, link(mark="a/net1", inode=1)).safe
    assert one(question, link(mark="a/net1")).safe


def test_a_record_of_a_target_that_is_gone() -> None:
    record = q.attached("a", state=AttachmentState.ASSIGNED)
    finding = one(idle(records=(record,)), link())
    assert (finding.code, finding.safe) == ("record-without-target", True)


def test_a_mark_without_a_record() -> None:
    finding = one(idle(), link(mark="gone/net1"))
    assert (finding.code, finding.safe) == ("mark-left", True)
    holder = Holder(kind="address", detail="10.0.0.7")
    used = msgspec.structs.replace(q.port(mode=q.IB), pf=q.function(PF, None, holder))
    assert not one(idle(used), link(mark="gone/net1")).safe


def test_a_marked_netdev_in_a_namespace_that_no_record_speaks_of() -> None:
    holder = Holder(kind="netns", detail="pid 4711 (sleep)", pid=4711)
    used = msgspec.structs.replace(q.port(mode=q.IB), pf=q.function(PF, None, holder, away=True))
    finding = one(idle(used), link(mark="gone/net1", inode=9, pid=4711))
    assert (finding.code, finding.safe) == ("held-without-record", False)
    assert found(idle(used), link(inode=9, pid=4711)) == [], "somebody else's own function is not ours to judge"


@pytest.mark.parametrize(("name", "safe"), [("lw00003b000", True), ("net1", False)])
def test_a_name_left(name: str, safe: bool) -> None:
    question = idle(policies=(q.policy(pci_addresses=("0000:99:00.0",)),), targets=(q.target("a"),))
    finding = next(f for f in found(question, link(name=name)) if f.code == "name-left")
    assert finding.safe is safe


def test_altname_mac_and_mtu_left() -> None:
    question = idle(
        q.port(), policies=(q.policy(pci_addresses=("0000:99:00.0",)),), targets=(q.target("a"),)
    )
    left = link(altnames=("net1",), permanent_address="aa:bb:cc:00:00:99", mtu=9000)
    assert {f.code: f.safe for f in found(question, left)} == {
        "altname-left": False, "mac-left": False, "mtu-left": False,
    }  # fmt: skip


def test_vfs_without_a_policy_and_a_staged_mode_that_nobody_wants() -> None:
    assert one(idle(q.port(mode=q.IB, vfs=2))).code == "vfs-without-policy"
    staged = one(idle(q.port(mode=q.IB, next_mode=q.ROCE)))
    assert (staged.code, staged.safe) == ("staged-unwanted", False)
    assert "the next restart makes 0000:3b:00.0 p1 RoCE (now InfiniBand)" in staged.text


def test_a_staged_mode_of_a_change_under_way_is_wanted() -> None:
    change = ModeChange(policy="training", generation=1, wanted=q.ROCE, ports=(q.P1,), phase=Phase.STAGED)
    question = idle(q.port(mode=q.IB, next_mode=q.ROCE), policies=(q.policy(mode=q.ROCE),), changes=(change,))
    assert found(question) == []


def test_an_rdma_device_that_stayed_behind() -> None:
    question = idle()
    question = msgspec.structs.replace(
        question, inventory=msgspec.structs.replace(question.inventory, rdma_netns="exclusive")
    )
    assert one(question, link(), rdma={"b8:3f": 9}).code == "rdma-elsewhere"
    assert found(question, link()) == []


def test_an_operation_that_nothing_carries_on() -> None:
    operation = OpenOperation(id=1, kind="detach", subject="a/net1", boot_id="boot-1", begun=0.0, intent=True)
    assert one(idle(), journal=(operation,)).code == "journal-open"
    assert found(given(state=AttachmentState.ATTACHING), journal=(operation,)) == []


def test_each_finding_once_and_in_order() -> None:
    question = idle(q.port(mode=q.IB, vfs=2, next_mode=q.ROCE))
    codes = [f.code for f in found(question, link(), link())]
    assert codes == sorted(set(codes))


def test_the_screen() -> None:
    finding = msgspec.to_builtins(one(idle(), link(mark="gone/net1"))) | {"key": f"mark-left:{PF}"}
    text = paint(audit_lines({"findings": [finding], "settled": True}, None), False)
    assert "mark-left  en3b0 is marked as gone/net1, and nobody has it." in text
    assert "linkwright audit --repair" in text
    assert NOTHING in paint(audit_lines({"findings": [], "settled": True}, None), False)


def test_a_function_without_a_driver_on_a_port_of_a_policy() -> None:
    unbound = msgspec.structs.replace(
        q.port(mode=q.IB), pf=msgspec.structs.replace(q.function(PF), driver=None, netdev=None)
    )
    finding = one(idle(unbound, policies=(q.policy(),)))
    assert (finding.code, finding.safe, finding.where) == ("driver-missing", False, PF)
    assert found(idle(unbound)) == [], "without a policy it is somebody else's business"
