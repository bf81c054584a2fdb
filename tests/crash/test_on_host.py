"""Recovery of a real agent from what is no mere interruption: a damaged state file, cards that vanish, audits."""

from __future__ import annotations

from typing import Any

import pytest
from looking import differences
from managed import policy
from rig import ATTACH, DETACH, PF, REPAIR, Rig, _damage

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("crash")]

KILL_AND_DAMAGE = """
kill -9 $(cat /run/hostlab-agent.pid)
dd if=/dev/zero of=/var/lib/linkwright/state.db bs=4096 count=2 conv=notrunc,fsync 2>/dev/null
rm -f /var/lib/linkwright/state.db-wal
"""


def audit(rig: Rig) -> dict[str, Any]:
    answer: dict[str, Any] = rig.agent().get("/v1/audit")
    return answer


def test_audit_lists_and_repairs_and_finds_nothing_then(rig: Rig) -> None:
    clean = rig.settle()
    assert audit(rig)["findings"] == []
    _damage(rig)
    said = rig.managed.run("linkwright", "audit", code=4)
    assert "mark-left  net1 is marked as ghost/net1, and nobody has it." in said
    said = rig.managed.run("linkwright", "audit", "--repair", "--why", "test")
    assert f"repaired {PF}: bind its driver anew" in said
    assert differences(clean, rig.settle([clean])) == []
    assert "Nothing is left behind" in rig.managed.run("linkwright", "audit", "--repair")
    assert "audit repair" in rig.managed.run("linkwright", "history")
    assert not rig.run(REPAIR).differences


def test_functions_that_vanish_and_come_back_under_a_target(rig: Rig) -> None:
    attached = rig.run(ATTACH).state
    rig.host.fault("0000:5e:00", "driver_reload")
    assert differences(attached, rig.settle([attached])) == []
    rig.host.fault("0000:5e:00", "vanished", True)
    rig.managed.run("ip", "link", "set", "lo", "mtu", "65000")  # an event, or it is seen at the next tick
    rig.managed.until("the card is gone", lambda s: s["targets"][0]["state"] != "attached")
    rig.host.fault("0000:5e:00", "vanished", False)
    rig.managed.run("ip", "link", "set", "lo", "mtu", "65536")
    assert differences(attached, rig.settle([attached])) == []
    assert audit(rig)["findings"] == []
    assert not rig.run(DETACH).differences


def test_a_damaged_state_file_is_set_aside_and_the_host_waits_for_a_person(rig: Rig) -> None:
    attached = rig.run(ATTACH).state
    rig.managed.run("sh", "-c", KILL_AND_DAMAGE)
    status = rig.managed.until("rebuilt", lambda s: s["frozen_by"])
    assert "state.db was damaged" in status["frozen_by"]
    assert "state.db.damaged-" in rig.managed.run("ls", "/var/lib/linkwright")
    found = audit(rig)["findings"]
    assert [(f["code"], f["safe"], f["target"]) for f in found] == [("quarantined", False, rig.names[0])]
    assert f"{rig.names[0]}: link net1" in rig.look.state(rig.agent()), "the target keeps what it has"
    assert "frozen" in rig.managed.run("linkwright", "audit", "--repair", "--yes", code=3)

    rig.apply(policy("InfiniBand", pf=PF))
    rig.apply(rig.target(0))
    rig.managed.run("linkwright", "unfreeze", "--why", "looked at it")
    rig.settle()
    assert audit(rig)["findings"], "it stays quarantined until somebody agrees"
    rig.managed.run("linkwright", "audit", "--repair", "--yes")
    assert differences(attached, rig.settle([attached])) == []
    assert audit(rig)["findings"] == []
    assert not rig.run(DETACH).differences
