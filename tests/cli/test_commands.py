"""The commands against a small agent on a unix socket: what they ask, what they print, their exit codes."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import samples
import yaml
from conftest import FakeAgent, Ran
from samples import NOW

from linkwright.model.errors import NeedsPerson, Refused
from linkwright.model.plan import Plan
from linkwright.model.records import Phase

Run = Callable[..., Ran]

POLICY = """apiVersion: linkwright.dev/v1alpha1
kind: LinkPolicy
metadata: {name: training}
spec:
  nicSelector: {pciAddresses: ["0000:3b:00.0"], ports: [1]}
  linkMode: InfiniBand
"""


@pytest.fixture
def policy_file(tmp_path: Path) -> str:
    path = tmp_path / "training.yaml"
    path.write_text(POLICY)
    return str(path)


def quiet_plan(**more: Any) -> Any:
    """The sample plan without its refusal of another policy."""
    return msgspec.to_builtins(msgspec.structs.replace(samples.plan(), problems=(), **more))


def with_plan(agent: FakeAgent, plan: Any) -> None:
    agent.replies["POST /v1/plan"] = plan
    agent.replies["POST /v1/apply"] = {"generations": {"LinkPolicy/training": 7}, "plan": plan, "cursor": 41}


def done() -> dict[str, Any]:
    """Everything attached, the mode change done."""
    answer = samples.status(changes=[samples.with_stations(samples.change(Phase.DONE), Phase.DONE)])
    answer["targets"] = answer["targets"][:1]
    return answer


def test_without_an_agent_it_says_how_to_start_it(run: Run) -> None:
    ran = run("status")
    assert ran.code == 1
    assert ran.err.startswith("Error: ")
    assert "the agent does not run" in ran.err
    assert "systemctl start linkwright" in ran.err


def test_a_socket_that_may_not_be_used_names_the_group(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    class Forbidden(socket.socket):
        connect = refuse

    monkeypatch.setattr(socket, "socket", Forbidden)
    ran = run("status")
    assert ran.code == 1
    assert "group linkwright" in ran.err


def test_a_slow_agent_is_said_to_be_slow(tmp_path: Path) -> None:
    import socket

    from linkwright.cli.api import Agent
    from linkwright.model.errors import Busy

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "slow.sock"))
        listener.listen()
        with pytest.raises(Busy) as caught:
            Agent(tmp_path / "slow.sock", timeout_s=0.05).get("/v1/status")
    assert caught.value.code == "agent-timeout"


def test_status_in_three_formats(run: Run, agent: FakeAgent) -> None:
    table, as_json, as_yaml = (run("status", "-o", kind) for kind in ("table", "json", "yaml"))
    assert "trainer-2" in table.out
    assert json.loads(as_json.out) == agent.replies["GET /v1/status"]
    assert yaml.safe_load(as_yaml.out) == agent.replies["GET /v1/status"]
    assert {table.code, as_json.code, as_yaml.code} == {0}


def test_nics_from_the_agent_keeps_everything_in_json(run: Run, agent: FakeAgent) -> None:
    answer: Any = {
        "inventory": msgspec.to_builtins(samples.inventory()),
        "decisions": msgspec.to_builtins(samples.decisions()),
        "allow": {"firmware": True, "functions": True, "reset": False, "restart": True},
    }
    answer = json.loads(json.dumps(answer))
    agent.replies["GET /v1/nics"] = answer
    assert json.loads(run("nics", "-o", "json").out) == answer
    assert "ConnectX-6 VPI" in run("nics").out


def test_what_the_agent_refuses_is_shown_as_it_raised_it(run: Run, agent: FakeAgent) -> None:
    agent.replies["POST /v1/retry"] = NeedsPerson(
        "has no change to retry",
        code="nothing-to-retry",
        where="policy training",
        next_step="Look: linkwright status",
    )
    ran = run("retry", "training", "--reason", "power cycled")
    assert ran.code == 4
    assert ran.err == "Waiting: policy training: has no change to retry\n  Look: linkwright status\n"
    agent.replies["POST /v1/freeze"] = Refused("no", rule=4, code="x", holder="somebody")
    ran = run("freeze")
    assert ran.code == 3
    assert ran.err.startswith("Refused (rule 4, not allowed): no")


def test_plan_sends_the_documents_and_shows_the_steps(run: Run, agent: FakeAgent, policy_file: str) -> None:
    with_plan(agent, quiet_plan())
    ran = run("plan", "-f", policy_file)
    assert ran.code == 0
    (body,) = agent.bodies("POST /v1/plan")
    assert body["documents"][0]["metadata"] == {"name": "training", "labels": {}}
    assert f"{policy_file}:1  LinkPolicy training" in ran.out
    assert "mstconfig -y -d 0000:3b:00.0 set LINK_TYPE_P1=1" in ran.out
    assert f"Apply with: linkwright apply -f {policy_file}" in ran.out


def test_plan_ends_with_3_when_a_rule_refuses_what_was_asked_for(
    run: Run, agent: FakeAgent, policy_file: str
) -> None:
    with_plan(agent, msgspec.to_builtins(samples.plan()))
    assert run("plan", "-f", policy_file).code == 0, "the refusal is about another policy"
    plan = quiet_plan()
    plan["problems"] = [
        {
            "severity": "refused",
            "code": "conflict",
            "subject": "policy training",
            "text": "two policies",
            "rule": 4,
        }
    ]
    with_plan(agent, plan)
    assert run("plan", "-f", policy_file).code == 3
    assert run("apply", "-f", policy_file, "--yes").code == 3
    assert agent.bodies("POST /v1/apply") == []


def test_a_wrong_document_is_found_before_anything_is_asked(run: Run, agent: FakeAgent, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(POLICY.replace("linkMode", "linkmode"))
    ran = run("plan", "-f", str(path))
    assert ran.code == 2
    assert ran.err.startswith(f"Error: {path}:")
    assert agent.asked == []


def test_apply_needs_a_yes_that_nobody_can_give_here(
    run: Run, agent: FakeAgent, policy_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_plan(agent, quiet_plan())
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    ran = run("apply", "-f", policy_file)
    assert ran.code == 4
    assert "restarts this host" in ran.err
    assert f"linkwright apply -f {policy_file} --yes" in ran.err
    assert agent.bodies("POST /v1/apply") == []


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code"), [("n\n", 4), ("\n", 4), ("y\n", 0)])
def test_apply_asks_and_takes_the_answer(
    run: Run, agent: FakeAgent, policy_file: str, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    with_plan(agent, quiet_plan())
    agent.replies["GET /v1/status"] = done()
    monkeypatch.setattr(sys, "stdin", _Terminal(answer))
    ran = run("apply", "-f", policy_file)
    assert ran.code == code
    assert "interrupts trainer-0, trainer-1" in ran.err
    assert len(agent.bodies("POST /v1/apply")) == (1 if code == 0 else 0)


def test_apply_sends_the_keys_of_the_plan_and_follows(run: Run, agent: FakeAgent, policy_file: str) -> None:
    with_plan(agent, quiet_plan())
    agent.replies["GET /v1/status"] = done()
    agent.events = [
        {"seq": 42, "at": NOW, "kind": "step", "subject": "policy training", "text": "writes LINK_TYPE_P1=1"},
        {"seq": 43, "at": NOW, "kind": "settled", "settled": True},
    ]
    ran = run("apply", "-f", policy_file, "--yes", "--why", "job 7")
    assert ran.code == 0
    (body,) = agent.bodies("POST /v1/apply")
    assert body["approvals"] == ["change:training:7"]
    assert body["why"] == "job 7"
    assert ("GET /v1/watch?after=41", None) in agent.asked
    assert "writes LINK_TYPE_P1=1" in ran.err
    assert "attached" in ran.out


def test_apply_shows_what_is_awaited_with_its_limit(run: Run, agent: FakeAgent, policy_file: str) -> None:
    with_plan(agent, quiet_plan())
    agent.replies["GET /v1/status"] = done()
    agent.events = [
        {
            "seq": 42, "at": NOW, "kind": "waiting", "subject": "training", "text": "", "phase": "verify-fabric",
            "awaited": "subnet manager", "since": 0.0, "limit_s": 60.0,
        },
        {"seq": 43, "at": NOW, "kind": "settled", "settled": True},
    ]  # fmt: skip
    ran = run("apply", "-f", policy_file, "--yes")
    assert "waits for subnet manager, at most 60 s" in ran.err


def test_apply_ends_cleanly_when_the_host_restarts(run: Run, agent: FakeAgent, policy_file: str) -> None:
    with_plan(agent, quiet_plan())
    agent.events = [
        {"seq": 42, "at": NOW, "kind": "change", "subject": "training", "text": "restarts", "phase": "restarting"}
    ]
    ran = run("apply", "-f", policy_file, "--yes")
    assert ran.code == 0
    assert "This host restarts now" in ran.err
    assert "linkwright status --watch" in ran.err


def test_apply_goes_on_when_only_the_agent_restarts(run: Run, agent: FakeAgent, policy_file: str) -> None:
    with_plan(agent, quiet_plan())
    agent.replies["GET /v1/status"] = done()
    settled = agent.events
    agent.events = []

    def second_life() -> None:
        agent.events = settled

    agent.after_watch = second_life
    assert run("apply", "-f", policy_file, "--yes").code == 0
    assert [asked for asked, _ in agent.asked if "watch" in asked] == [
        "GET /v1/watch?after=41",
        "GET /v1/watch?after=0",
    ]


def test_ctrl_c_says_that_the_change_goes_on(
    run: Run, agent: FakeAgent, policy_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from linkwright.cli.follow import Follower

    def pressed(self: Follower) -> str:
        raise KeyboardInterrupt

    with_plan(agent, quiet_plan())
    monkeypatch.setattr(Follower, "_follow", pressed)
    ran = run("apply", "-f", policy_file, "--yes")
    assert ran.code == 130
    assert "The change goes on in the agent. Look: linkwright status --watch. Stop: linkwright freeze" in ran.err


FAILED = {"detail": "the card did not take the mode", "reason_code": "card-not-reset", "activations": 1}


@pytest.mark.parametrize(
    ("phase", "more", "code"), [(Phase.FAILED, FAILED, 1), (Phase.WAITING, {"detail": "no subnet manager"}, 4)]
)
def test_the_exit_code_says_how_the_change_ended(
    run: Run, agent: FakeAgent, policy_file: str, phase: Phase, more: dict[str, Any], code: int
) -> None:
    with_plan(agent, quiet_plan())
    agent.replies["GET /v1/status"] = samples.status(
        changes=[samples.with_stations(samples.change(phase, **more), Phase.VERIFY_MODE, phase.value)]
    )
    ran = run("apply", "-f", policy_file, "--yes")
    assert ran.code == code
    assert more["detail"] in ran.out


def test_apply_in_json_prints_json_alone(run: Run, agent: FakeAgent, policy_file: str) -> None:
    with_plan(agent, quiet_plan())
    agent.replies["GET /v1/status"] = done()
    ran = run("apply", "-f", policy_file, "--yes", "-o", "json")
    assert json.loads(ran.out) == json.loads(json.dumps(done()))


def test_no_wait_returns_when_it_is_stored(run: Run, agent: FakeAgent, policy_file: str) -> None:
    with_plan(agent, quiet_plan())
    ran = run("apply", "-f", policy_file, "--yes", "--no-wait")
    assert ran.code == 0
    assert "Stored: LinkPolicy training generation 7" in ran.out
    assert not any("watch" in asked for asked, _ in agent.asked)


def test_attach_makes_a_target_of_its_options(run: Run, agent: FakeAgent) -> None:
    with_plan(agent, msgspec.to_builtins(Plan()))
    ran = run(
        "attach", "trainer-0", "--policy", "training", "--address", "10.9.0.1/24", "--address", "fd00::1/64",
        "--rdma-name", "mlx5_0", "--fabric", "rail-0", "--interface", "net7",
    )  # fmt: skip
    assert ran.code == 0
    (body,) = agent.bodies("POST /v1/apply")
    (target,) = body["documents"]
    assert target["kind"] == "Target"
    assert target["metadata"]["name"] == "trainer-0"
    assert target["spec"]["container"]["name"] == "trainer-0"
    (interface,) = target["spec"]["interfaces"]
    assert interface["name"] == "net7"
    assert interface["addresses"] == ["10.9.0.1/24", "fd00::1/64"]
    assert interface["rdmaName"] == "mlx5_0"
    assert interface["fabric"] == "rail-0"


def test_attach_to_a_namespace(run: Run, agent: FakeAgent) -> None:
    with_plan(agent, msgspec.to_builtins(Plan()))
    run("attach", "blue", "--policy", "training", "--netns", "/run/netns/blue", "--no-wait")
    (body,) = agent.bodies("POST /v1/apply")
    container = body["documents"][0]["spec"]["container"]
    assert container["netns"] == "/run/netns/blue"
    assert container["name"] is None


def test_attach_names_the_option_that_is_wrong(run: Run, agent: FakeAgent) -> None:
    ran = run("attach", "trainer-3", "--policy", "training", "--interface", "training-network-1")
    assert ran.code == 2
    assert "has 18 characters; Linux allows 15" in ran.err
    assert run("attach", "a", "--policy", "p", "--netns", "/x", "--container", "c").code == 2


def test_attach_of_a_container_that_does_not_run_waits(run: Run, agent: FakeAgent) -> None:
    with_plan(agent, msgspec.to_builtins(Plan()))
    ran = run("attach", "trainer-2", "--policy", "training")
    assert ran.code == 4
    assert "container does not run" in ran.out


def test_detach_deletes_and_waits(run: Run, agent: FakeAgent) -> None:
    agent.replies["DELETE /v1/targets/trainer-0"] = {"deleted": "Target/trainer-0", "cursor": 7}
    agent.replies["GET /v1/status"] = samples.status(targets=[])
    ran = run("detach", "trainer-0", "--why", "job 7 is over")
    assert ran.code == 0
    assert agent.asked[0][0] == "DELETE /v1/targets/trainer-0?why=job%207%20is%20over"
    assert ("GET /v1/watch?after=7", None) in agent.asked


def test_delete_finds_the_kind_and_takes_targets_first(run: Run, agent: FakeAgent) -> None:
    agent.replies["DELETE /v1/targets/trainer-0"] = {"deleted": "Target/trainer-0", "cursor": 7}
    agent.replies["DELETE /v1/policies/training"] = {"deleted": "LinkPolicy/training", "cursor": 8}
    run("delete", "training", "target/trainer-0", "--no-wait")
    deleted = [asked for asked, _ in agent.asked if asked.startswith("DELETE")]
    assert deleted == ["DELETE /v1/targets/trainer-0", "DELETE /v1/policies/training"]
    ran = run("delete", "nothing")
    assert ran.code == 2
    assert "there is no policy and no target of this name" in ran.err
    assert run("delete").code == 2


def test_approve_shows_asks_and_sends_exactly_those_keys(run: Run, agent: FakeAgent) -> None:
    agent.replies["POST /v1/plan"] = quiet_plan()
    agent.replies["POST /v1/approve"] = {"approved": ["change:training:7"], "cursor": 3}
    agent.replies["GET /v1/status"] = done()
    assert run("approve", "training", "--yes", "--why", "agreed").code == 0
    assert agent.bodies("POST /v1/approve") == [{"keys": ["change:training:7"], "why": "agreed"}]
    assert run("approve", "other", "--yes").code == 2


def test_freeze_history_and_version(run: Run, agent: FakeAgent) -> None:
    agent.replies["POST /v1/freeze"] = {"frozen_by": "uid 0", "cursor": 1}
    agent.replies["GET /v1/history"] = {
        "history": [{"at": NOW, "who": "uid 0 (pid 1)", "what": "freeze", "why": "incident 42"}]
    }
    assert "linkwright unfreeze" in run("freeze", "--why", "incident 42").out
    assert agent.bodies("POST /v1/freeze") == [{"why": "incident 42"}]
    assert "incident 42" in run("history", "-n", "5").out
    assert agent.asked[-1][0] == "GET /v1/history?limit=5"
    assert json.loads(run("version", "-o", "json").out)["agent"] == "0.1.0"
