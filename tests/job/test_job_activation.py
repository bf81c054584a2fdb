"""Ways of activation on an emulated host: a reset of one adapter, External, a policy taken back, and verdicts.

One host; each test leaves port 1 of 0000:3b:00 in the mode that its name or its last line says, nothing staged.
"""

from __future__ import annotations

from typing import Any

import pytest
from managed import HOST_YAML, PF, PORT, Managed, policy, target

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("job-activation")]

PROVEN = HOST_YAML.replace(
    "  fabrics:",
    '  resetProven: [{psid: MT_0000000224, firmware: "20.41.*"}]\n'
    "  subnetManagerTimeout: 3s\n  linkTimeout: 4s\n  fabrics:",
)



def activation(**fields: str) -> str:
    words = ", ".join(f"{key}: {value}" for key, value in fields.items())
    return f"  activation: {{approval: Auto, {words}}}\n" if words else "  activation: {approval: Auto}\n"


def hook(job: Managed, event: str, *lines: str) -> None:
    path = job.host.dirs.etc / "hooks" / event / "site"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)


def modes(job: Managed) -> dict[str, str]:
    port = job.port()
    return {name: port[f"{name}_mode"] for name in ("next", "current", "observed")}


def all_are(mode: str) -> dict[str, str]:
    return dict.fromkeys(("next", "current", "observed"), mode)


def boots(job: Managed) -> int:
    return int(job.host.status()["boots"])


def ask_for(job: Managed, mode: str, pfs: str = f'"{PF}"', **fields: str) -> int:
    """Apply the policy without following it; its generation."""
    text = policy(mode, extra=activation(**fields)).replace(f'["{PF}"]', f"[{pfs}]")
    job.host.write("/run/policy.yaml", text)
    job.run("linkwright", "apply", "-f", "/run/policy.yaml", "--yes", "--no-wait", "--why", "test")
    found = next(p for p in job.status()["policies"] if p["name"] == "training")
    return int(found["generation"])


def ended(job: Managed, generation: int, phase: str) -> Any:
    """The change of this generation, once it stands there."""

    def look(status: Any) -> bool:
        wanted = ("training", generation, phase)
        return any((c["policy"], c["generation"], c["phase"]) == wanted for c in status["changes"])

    job.until(f"change of generation {generation} {phase}", look, limit_s=240.0)
    return job.change()


@pytest.fixture(scope="module", autouse=True)
def proven(job: Managed) -> None:
    (job.host.dirs.etc / "host.yaml").write_text(PROVEN)
    job.container("trainer-0")
    job.container("other")
    job.apply(policy("InfiniBand"), target("trainer-0", "10.9.0.1/24"))
    job.apply(
        policy("InfiniBand", name="storage", pf="0000:5e:00.0"),
        target("other", "10.8.0.1/24", policy="storage"),
    )
    job.all_attached()


def test_a_write_refused_on_port_2_only_leaves_nothing_staged_and_interrupts_nobody(job: Managed) -> None:
    job.host.fault(PF, "write_refused", ["LINK_TYPE_P2"])
    change = ended(job, ask_for(job, "RoCE", f'"{PF}", "0000:3b:00.1"'), "failed")
    assert change["reason_code"] == "half-applied"
    assert "Put back for the next boot: LINK_TYPE_P1=1." in change["detail"]
    assert "wanted RoCE · next InfiniBand · current InfiniBand" in change["detail"]
    assert any("mstconfig -y -d 0000:3b:00.0 set LINK_TYPE_P1=2 LINK_TYPE_P2=2" in said for said in change["said"])
    assert modes(job) == all_are("InfiniBand")
    assert job.slots() == {"trainer-0 net1": (PORT, None), "other net1": ("0000:5e:00.0/1", None)}
    job.host.fault(PF, "write_refused", [])
    job.apply(policy("InfiniBand"))
    job.nothing_planned()


def test_a_proven_adapter_is_reset_and_nobody_else_is_touched(job: Managed) -> None:
    before = boots(job)
    since = next(t for t in job.status()["targets"] if t["name"] == "other")["interfaces"][0]["since"]
    job.host.fault(PF, "busy", 2)
    hook(job, "pre-drain", 'echo "$LINKWRIGHT_EVENT $LINKWRIGHT_POLICY $LINKWRIGHT_TARGETS" >>/run/hooked')
    hook(job, "post-verify", 'echo "$LINKWRIGHT_EVENT $LINKWRIGHT_LINK_MODE" >>/run/hooked')
    change = ended(job, ask_for(job, "RoCE"), "done")
    assert change["method"] == "FirmwareReset"
    assert any("mstfwreset -d 0000:3b:00.0 -l 3 --sync 1 -y reset" in said for said in change["said"])
    assert modes(job) == all_are("RoCE")
    job.all_attached()
    assert boots(job) == before
    assert "10.9.0.1/24" in job.inside("trainer-0", "ip", "-o", "address", "show", "net1")
    after = next(t for t in job.status()["targets"] if t["name"] == "other")["interfaces"][0]["since"]
    assert after == since
    assert job.run("cat", "/run/hooked") == "pre-drain training trainer-0\npost-verify RoCE\n"
    job.nothing_planned()


def test_a_subnet_manager_that_comes_late_is_waited_for(job: Managed) -> None:
    job.host.fault("rail-0", "subnet_manager", False)
    generation = ask_for(job, "InfiniBand")
    change = ended(job, generation, "waiting")
    assert change["reason_code"] == "no-subnet-manager"
    assert change["next_step"].startswith("Start a subnet manager on fabric rail-0.")
    assert "wanted InfiniBand · next InfiniBand · current InfiniBand" in change["detail"]
    job.host.fault("rail-0", "subnet_manager", True)
    ended(job, generation, "done")
    job.all_attached()


def test_a_link_that_never_comes_up_is_rolled_back_once_and_says_so(job: Managed) -> None:
    before = boots(job)
    job.host.fault(PF, "link_broken", 1)
    change = ended(job, ask_for(job, "RoCE", onFailure="Rollback"), "failed")
    assert change["reason_code"] == "rolled-back"
    assert change["detail"].startswith("link-down: 0000:3b:00.0 p1: no link in RoCE mode")
    assert "It was returned to InfiniBand once" in change["detail"]
    assert modes(job) == all_are("InfiniBand")
    job.host.fault(PF, "link_broken", 0)
    job.all_attached()
    assert boots(job) == before
    assert "FAILED" in job.run("linkwright", "status")


def test_a_retry_needs_a_reason_and_is_in_the_history(job: Managed) -> None:
    job.run("linkwright", "retry", "training", "--reason", "", code=2)
    job.run("linkwright", "retry", "training", "--reason", "cable mended", "--no-wait")
    ended(job, job.change()["generation"], "done")
    assert modes(job) == all_are("RoCE")
    said = job.ask("history")["history"]
    retried = next(h for h in said if h["what"].startswith("retry policy training"))
    assert retried["why"] == "cable mended"
    assert "rolled-back" in retried["before"] or "link-down" in retried["before"]


def test_external_waits_for_somebody_elses_restart_and_taken_back_leaves_nothing(job: Managed) -> None:
    generation = ask_for(job, "InfiniBand", method="External")
    change = ended(job, generation, "waiting")
    assert change["reason_code"] == "external-restart"
    assert modes(job) == {"next": "InfiniBand", "current": "RoCE", "observed": "RoCE"}
    ask_for(job, "RoCE", method="External")
    assert ended(job, generation, "ended")["reason_code"] == "taken-back"
    assert modes(job) == all_are("RoCE")
    assert "ETH(2)" in job.run("mstconfig", "-d", PF, "query", "LINK_TYPE_P1")


def test_a_port_without_a_guid_is_waited_for(job: Managed) -> None:
    job.host.fault(PF, "guid_zero", 1)
    generation = ask_for(job, "InfiniBand")
    change = ended(job, generation, "waiting")
    assert change["reason_code"] == "guid-zero"
    assert "has no GUID" in change["detail"]
    assert change["next_step"].startswith("Reload the driver of 0000:3b:00.0;")
    job.host.fault(PF, "guid_zero", 0)
    job.host.fault(PF, "driver_reload")
    ended(job, generation, "done")
    job.all_attached()


def test_please_power_cycle_is_said_before_anybody_is_interrupted(job: Managed) -> None:
    job.host.fault(PF, "power_cycle_text")
    generation = ask_for(job, "RoCE", method="Reboot")
    change = ended(job, generation, "waiting")
    assert change["reason_code"] == "power-cycle-needed"
    assert "Nobody was interrupted yet." in change["detail"]
    assert "ipmitool chassis power cycle" in change["next_step"]
    assert "trainer-0 net1" in job.slots()
    job.host.fault(PF, "power_cycle_text", False)
    job.host.crash()  # the power goes and comes again
    ended(job, generation, "done")
    assert modes(job) == all_are("RoCE")
    job.all_attached()


def test_a_restart_that_did_not_reset_the_card_ends_in_a_verdict_and_a_power_cycle_mends_it(job: Managed) -> None:
    before = boots(job)
    job.host.fault(PF, "restart_without_reset")
    generation = ask_for(job, "InfiniBand", method="Reboot")
    job.host.wait_ready(before + 1)
    change = ended(job, generation, "failed")
    assert change["reason_code"] == "card-not-reset"
    assert "the host restarted without resetting the card" in change["detail"]
    seen = "wanted InfiniBand · next InfiniBand · current RoCE · observed RoCE · boot id changed"
    assert seen in change["detail"]
    job.host.fault(PF, "restart_without_reset", False)
    job.host.crash()
    assert ended(job, generation, "failed")["reason_code"] == "card-not-reset"
    job.run("linkwright", "retry", "training", "--reason", "power cycled", "--no-wait")
    ended(job, generation, "done")
    assert modes(job) == all_are("InfiniBand")
    assert boots(job) == before + 2
    job.all_attached()
    job.nothing_planned()
