"""Why is my target not connected? one line for each cause, from the real plan of each situation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from questions import (
    CARD,
    IB,
    P1,
    P2,
    STOPPED,
    adapter,
    attached,
    away,
    function,
    in_use,
    policy,
    port,
    question,
    running,
    target,
)

from linkwright.agent.reasons import why_not_connected
from linkwright.model.documents import Allow, Interface
from linkwright.model.errors import HardwareFault
from linkwright.model.inventory import Holder, Identity
from linkwright.model.plan import Problem, Question, TargetState
from linkwright.model.records import AttachmentState, ModeChange, Phase
from linkwright.planner import plan

ONE: dict[str, Any] = {"policies": (policy(),), "targets": (target("a"),)}
BUSY = Holder(kind="vfio", detail="pid 4711 (qemu-system-x86)", pid=4711)
WISH = Interface(name="net1", rdma_name="mlx5_0")
CHANGE = ModeChange(policy="training", generation=1, wanted=IB, ports=(P1,), boot_id="boot-1", intent_at=1.0)


def changed(phase: Phase, **more: Any) -> dict[str, Any]:
    return ONE | {"changes": (msgspec.structs.replace(CHANGE, phase=phase, **more),)}


def quarantined() -> dict[str, Any]:
    record = attached("a", state=AttachmentState.QUARANTINED, reason="its driver does not answer")
    return ONE | {"records": (record,)}


SITUATIONS: dict[str, tuple[Question, str, str]] = {
    "container-not-running": (
        question(adapter(port(1, IB)), **ONE, states={"a": STOPPED}),
        "container does not run",
        "It gets its interfaces when it starts.",
    ),
    "container-unknown": (
        question(adapter(port(1, IB)), **ONE, states={"a": TargetState(state="unknown", detail="no podman")}),
        "container state cannot be read (no podman)",
        "Look at the container's runtime.",
    ),
    "host-network": (
        question(adapter(port(1, IB)), **ONE, states={"a": TargetState(state="host-network")}),
        "its container uses the host's own network: there is nothing to move net1 into.",
        "Run it with a network namespace of its own (podman run --network none, or a bridge).",
    ),
    "policy-missing": (
        question(adapter(port(1, IB)), targets=(target("a"),)),
        "policy training does not exist here; what the target has is left as it is.",
        "Apply LinkPolicy training, or name another in spec.policy.",
    ),
    "port-protected": (
        question(adapter(port(1, IB)), **ONE, protect=(f"{CARD}.0",)),
        "0000:3b:00.0 p1 is never touched: protected by 0000:3b:00.0 in /etc/linkwright/host.yaml.",
        "Name other ports in spec.nicSelector of training, or take 0000:3b:00.0 out of protect.",
    ),
    "policy-conflict": (
        question(adapter(port(1, IB)), **ONE | {"policies": (policy(), policy("b", ports=(1,)))}),
        "0000:3b:00.0 p1 is also named by policy b; neither is applied to it.",
        "Narrow spec.nicSelector of training or of b, so that one of them names this port.",
    ),
    "fixed-mode": (
        question(adapter(port(1, can_change=False, next_mode=None)), **ONE),
        "0000:3b:00.0 p1 speaks RoCE only: its firmware offers no LINK_TYPE.",
        "Name a VPI card in spec.nicSelector of training, or ask for RoCE.",
    ),
    "identity-unknown": (
        question(
            adapter(port(1, IB), identity=Identity(), faults=("reads all ones",)),
            **ONE | {"policies": (policy(psids=("MT_1",)),)},
        ),
        "cannot tell whether it names 0000:3b:00.0 p1: the card's identity cannot be read now.",
        "Look at the adapter's fault: linkwright nics. Or select by pciAddresses.",
    ),
    "function-in-use": (
        question(adapter(port(1, IB, pf=function(f"{CARD}.0", None, BUSY))), **ONE),
        "PF of 0000:3b:00.0 p1 is not given to net1: it is held by pid 4711 (qemu-system-x86).",
        "Stop it or detach it first.",
    ),
    "quarantined": (
        question(adapter(away(port(1, IB), None, "a")), **quarantined()),
        "net1 on 0000:3b:00.0 p1 is quarantined: its driver does not answer.",
        "Look: linkwright audit. Free it: linkwright audit --repair",
    ),
    "port-absent": (
        question(**ONE, records=(attached("a"),)),
        "net1 on 0000:3b:00.0 p1: this host does not show the port now; its slot is kept.",
        "Look: linkwright nics",
    ),
    "num-vfs-limit": (
        question(
            adapter(port(1, IB, total_vfs=1), num_vfs_limit=1),
            **ONE | {"policies": (policy(assign="VF", num_vfs=4),)},
        ),
        "0000:3b:00.0 p1 would need 4 VFs; the card allows 1.",
        "Lower spec.functions.numVfs of training, or name more ports in its nicSelector.",
    ),
    "rdma-name-taken": (
        question(
            adapter(port(1, IB), port(2, IB)),
            policies=(policy(ports=(1, 2)),),
            targets=(target("a", "training", WISH), target("b", "training", WISH)),
        ),
        "a net1 and b net1 ask for the same rdmaName mlx5_0; names of RDMA devices are unique over all namespaces "
        "of a host.",
        "Give one of them another rdmaName, or none: the device then keeps its own name.",
    ),
    "frozen": (
        question(adapter(port(1, IB)), **ONE, frozen_by="uid 0: audit"),
        "frozen by uid 0: audit; 1 step waits.",
        "When it may go on: linkwright unfreeze",
    ),
    "not-allowed": (
        question(adapter(port(1, IB)), **ONE, allow=Allow()),
        "this host only observes: /etc/linkwright/host.yaml does not allow functions",
        "To allow it, write in /etc/linkwright/host.yaml: spec: {allow: {functions: true}}",
    ),
    "no-subnet-manager": (
        question(
            adapter(port(1, IB)),
            **changed(
                Phase.WAITING,
                reason_code="no-subnet-manager",
                detail="no subnet manager answers",
                next_step="Start one.",
            ),
        ),
        "the change of 0000:3b:00.0 p1 to InfiniBand waits: no subnet manager answers",
        "Start one.",
    ),
    "change-in-progress": (
        question(adapter(port(1, IB)), **changed(Phase.VERIFY_MODE)),
        "0000:3b:00.0 p1 is changing to InfiniBand (verify mode)",
        "Look: linkwright status --watch",
    ),
    "restart-ahead": (
        question(
            adapter(port(1, IB), port(2)),
            policies=(policy(), policy("other", pci_addresses=(f"{CARD}.1",))),
            targets=(target("a"),),
            changes=(msgspec.structs.replace(CHANGE, policy="other", ports=(P2,), phase=Phase.STAGED),),
        ),
        "this host is about to restart for policy other; it is given back afterwards",
        "Look: linkwright status --watch",
    ),
}


def why(asked: Question, failure: HardwareFault | None = None) -> Problem | None:
    made = plan(asked)
    kept = next((r for r in asked.records.attachments if r.target == "a"), None)
    return why_not_connected(
        asked.desired.targets[0], "net1", kept, asked, made, made.problems, failure
    )


@pytest.mark.parametrize("code", SITUATIONS)
def test_one_line_for_each_cause(code):
    asked, text, next_step = SITUATIONS[code]
    said = why(asked)
    assert said is not None
    assert (said.code, said.text, said.next_step) == (code, text, next_step)
    assert "\n" not in said.text


def test_a_failed_change_says_its_evidence():
    failed = changed(Phase.FAILED, reason_code="card-not-reset", detail="firmware uptime 41 d", next_step="Power")
    said = why(question(adapter(port(1)), **failed))
    assert (said.code, said.next_step) == ("card-not-reset", "Power")
    assert "firmware uptime 41 d" in said.text


def test_a_mode_change_that_waits_for_a_yes():
    said = why(question(adapter(port(1)), **ONE))
    assert said.code == "approval-needed"
    assert said.text.startswith("waits for a yes: restart this host for InfiniBand on 0000:3b:00.0 p1")
    assert said.next_step == "Say yes: linkwright approve training"


def test_a_conversion_that_waits_for_a_yes():
    asked = question(
        adapter(away(port(1, IB), None, "b")),
        policies=(policy(),),
        targets=(target("a"), target("b")),
        states={"a": running(1), "b": running(2)},
        records=(attached("b", inode=2),),
    )
    said = why(asked)
    assert said.text == "waits for a yes: convert 0000:3b:00.0 p1 from its PF to 2 VFs; interrupts b"


def test_what_just_failed_comes_first_and_another_interfaces_trouble_is_not_told():
    failure = HardwareFault("the kernel refused the name net1", code="kernel-error", next_step="See the log.")
    said = why(question(adapter(port(1, IB)), **ONE), failure)
    assert (said.code, said.text) == ("kernel-error", "the kernel refused the name net1")
    two = target("a", "training", "net1", Interface(name="net2", fabric="rail-7"))
    asked = question(adapter(port(1, IB)), policies=(policy(),), targets=(two,))
    assert why(asked) is None  # net1 is given in this very plan


def test_a_group_that_cannot_agree():
    asked = question(
        adapter(port(1), port(2)),
        policies=(policy(), policy("b", msgspec.convert("RoCE", type(IB)), pci_addresses=(f"{CARD}.1",))),
        targets=(target("a", group="job"), target("b", "b", group="job")),
    )
    said = why(asked)
    assert said.code == "group-mode"
    assert "a InfiniBand (policy training), b RoCE (policy b)" in said.text


def test_nothing_in_the_way():
    assert why(question(adapter(away(port(1, IB, vfs=2), 0, "a")), **in_use())) is None
