"""The main job on an emulated host: PF, then VFs, then another mode over a restart, then over a power loss.

One host and one story: each test goes on where the one before ended, as a person would.
"""

from __future__ import annotations

import re

import pytest
from managed import PF, PORT, Managed, policy, target

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("job-main")]


def test_one_target_gets_the_pf(job: Managed) -> None:
    job.container("trainer-0")
    said = job.apply(policy("InfiniBand"), target("trainer-0", "10.9.0.1/24", extra=", rdmaName: mlx5_0"))
    assert "attach" in said
    assert job.slots() == {"trainer-0 net1": (PORT, None)}
    assert "10.9.0.1/24" in job.inside("trainer-0", "ip", "-o", "address", "show", "net1")
    assert "trainer-0" in job.run("linkwright", "nics")
    job.nothing_planned()


def test_a_second_target_needs_a_yes(job: Managed) -> None:
    job.container("trainer-1")
    said = job.apply(target("trainer-1", "10.9.0.2/24", extra=", rdmaName: mlx5_1"), yes=False, code=4)
    assert "convert 0000:3b:00.0 p1 from its PF to 2 VFs; interrupts trainer-0" in said
    assert job.slots() == {"trainer-0 net1": (PORT, None)}


def test_after_the_yes_both_have_a_vf_and_talk(job: Managed) -> None:
    job.apply(target("trainer-1", "10.9.0.2/24", extra=", rdmaName: mlx5_1"))
    job.all_attached()
    assert sorted(job.slots().values(), key=str) == [(PORT, 0), (PORT, 1)]
    assert " 0% packet loss" in job.inside("trainer-0", "ping", "-c", "1", "-W", "3", "10.9.0.2")
    job.nothing_planned()


def test_a_restarted_container_gets_its_interface_again(job: Managed) -> None:
    slots = job.slots()
    job.run("podman", "restart", "--time", "0", "trainer-1")
    job.until("trainer-1 is back", lambda s: job.slots() == slots)
    assert "10.9.0.2/24" in job.inside("trainer-1", "ip", "-o", "address", "show", "net1")


def test_a_stopped_container_keeps_its_slot(job: Managed) -> None:
    slots = job.slots()
    job.run("podman", "stop", "--time", "0", "trainer-1")
    job.until("released", lambda s: "trainer-1 net1" not in job.slots())
    status = job.status()
    waiting = next(t for t in status["targets"] if t["name"] == "trainer-1")
    assert waiting["state"] == "waiting"
    assert "container does not run" in waiting["reason"]
    job.run("podman", "start", "trainer-1")
    job.until("trainer-1 is back", lambda s: job.slots() == slots)


def _flip(job: Managed, mode: str) -> None:
    port = job.port()
    assert {port["next_mode"], port["current_mode"], port["observed_mode"]} == {mode}


def _talk(job: Managed) -> None:
    assert "10.9.0.1/24" in job.inside("trainer-0", "ip", "-o", "address", "show", "net1")
    assert "10.9.0.2/24" in job.inside("trainer-1", "ip", "-o", "address", "show", "net1")
    assert " 0% packet loss" in job.inside("trainer-0", "ping", "-c", "1", "-W", "3", "10.9.0.2")


def test_another_mode_restarts_the_host_once_and_all_come_back(job: Managed) -> None:
    slots, boots = job.slots(), job.host.status()["boots"]
    said = job.apply(policy("RoCE"), yes=False, code=4)
    assert f"mstconfig -y -d {PF} set LINK_TYPE_P1=2" in said
    assert "trainer-0" in said
    assert "trainer-1" in said
    job.apply(policy("RoCE"), code=None)
    job.host.wait_ready(boots + 1)
    job.phase_reached("done")
    job.all_attached()
    _flip(job, "RoCE")
    assert job.slots() == slots
    assert job.host.status()["boots"] == boots + 1
    said = job.run("mstconfig", "-d", PF, "-e", "query", "LINK_TYPE_P1")
    assert re.search(r"LINK_TYPE_P1\s+IB\(1\)\s+ETH\(2\)\s+ETH\(2\)", said)
    _talk(job)
    job.nothing_planned()


def test_a_power_loss_in_the_middle_is_finished_by_itself(job: Managed) -> None:
    slots, boots = job.slots(), job.host.status()["boots"]
    job.host.crash_on_next_restart()
    job.apply(policy("InfiniBand"), code=None)
    job.host.wait_ready(boots + 1)
    job.phase_reached("done")
    job.all_attached()
    _flip(job, "InfiniBand")
    assert job.slots() == slots
    assert job.host.status()["boots"] == boots + 1
    _talk(job)
    job.nothing_planned()


def test_history_says_who_what_and_why(job: Managed) -> None:
    history = job.ask("history")["history"]
    applied = [h for h in history if h["what"].startswith("apply LinkPolicy training")]
    assert applied
    assert all(h["who"].startswith("uid 0") and h["why"] == "test" for h in applied)


def test_a_deleted_target_leaves_the_function_as_it_was(job: Managed) -> None:
    job.run("linkwright", "detach", "trainer-1")
    assert list(job.slots()) == ["trainer-0 net1"]
    vf = next(f for f in job.port()["vfs"] if f["vf_index"] == 1)
    assert vf["netdev"]["alias"] == ""
    assert vf["netdev"]["name"].startswith("ibp59s0f0v1")
    assert "net1" not in job.inside("trainer-1", "ip", "-o", "link")
