"""Hook directories: who may run, what an exit code means, and how a mode change obeys."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from bench import IB, ROCE, Bench

from linkwright.agent import hooks
from linkwright.model.records import Phase

FACTS = {
    "event": "pre-drain", "host": "gpu-01", "policy": "training", "generation": 7, "linkMode": "InfiniBand",
    "method": "Reboot", "ports": ["0000:3b:00.0/1"], "targets": ["a", "b"],
}  # fmt: skip
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="hooks belong to root")


def put(directory: Path, name: str, *lines: str, mode: int = 0o755) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(mode)
    return path


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    found = Bench(tmp_path, monkeypatch)
    found.want(ROCE)
    found.runs("a")
    found.settle()
    return found


def event(bench: Bench, name: str) -> Path:
    return bench.root / "etc" / "hooks" / name


# -- running -------------------------------------------------------------------------------------------------


def test_hooks_run_by_name_with_json_and_environment(tmp_path: Path) -> None:
    put(tmp_path, "10-first", f"cat > {tmp_path}/told", "env > /dev/null")
    put(tmp_path, "20-second", f'echo "$LINKWRIGHT_POLICY $LINKWRIGHT_TARGETS" > {tmp_path}/words')
    put(tmp_path, "README", "exit 1", mode=0o644)
    assert hooks.run(tmp_path, FACTS).kind == "go"
    assert json.loads((tmp_path / "told").read_text()) == FACTS
    assert (tmp_path / "words").read_text() == "training a b\n"


def test_a_missing_directory_has_no_hooks(tmp_path: Path) -> None:
    assert hooks.run(tmp_path / "none", FACTS).kind == "go"


@pytest.mark.parametrize(
    ("lines", "kind", "said"),
    [
        (("exit 0",), "go", ""),
        (("echo job 4711 runs", "exit 75"), "later", "job 4711 runs"),
        (("exit 75",), "later", "not yet"),
        (("echo first", "echo 'node is reserved' >&2", "exit 1"), "stop", "node is reserved (exit code 1)"),
        (("exit 3",), "stop", "exit code 3"),
        (("kill -9 $$",), "stop", "was ended by signal 9"),
    ],
)
def test_exit_codes(tmp_path: Path, lines: tuple[str, ...], kind: str, said: str) -> None:
    put(tmp_path, "hook", *lines)
    put(tmp_path, "later", "exit 0")
    answer = hooks.run(tmp_path, FACTS)
    assert answer.kind == kind
    assert kind == "go" or (answer.hook, answer.said) == ("hook", said)


def test_a_hook_that_does_not_answer_is_ended_with_what_it_started(tmp_path: Path) -> None:
    put(tmp_path, "slow", "sleep 1000 & sleep 1000")
    answer = hooks.run(tmp_path, FACTS, limit_s=0.2)
    assert answer.kind == "stop"
    assert answer.said.startswith("did not answer within 0 s and was ended")


def test_a_hook_that_leaves_something_running_does_not_hold_us(tmp_path: Path) -> None:
    put(tmp_path, "leaves", "sleep 3 &", "exit 0")
    assert hooks.run(tmp_path, FACTS, limit_s=2.0).kind == "go"


def test_what_others_could_change_is_not_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    hook = put(tmp_path / "d", "hook", f"touch {ran}")
    for spoil, said in (
        (lambda: hook.chmod(0o775), "can be written by others than root"),
        (lambda: (hook.chmod(0o755), os.chown(hook, 1, 1)), "does not belong to root"),
        (lambda: (os.chown(hook, 0, 0), hook.parent.chmod(0o777)), "can be written by others than root"),
    ):
        spoil()
        answer = hooks.run(tmp_path / "d", FACTS)
        assert answer.kind == "stop"
        assert said in answer.said
    hook.parent.chmod(0o755)
    hook.rename(tmp_path / "elsewhere")
    hook.symlink_to(tmp_path / "elsewhere")
    assert "is not a regular file" in hooks.run(tmp_path / "d", FACTS).said
    assert not ran.exists()


def test_a_name_is_never_read_by_a_shell(tmp_path: Path) -> None:
    put(tmp_path, "a; touch x", "exit 75")
    assert hooks.run(tmp_path, FACTS).kind == "later"
    assert not Path("/x").exists()


# -- in a change ---------------------------------------------------------------------------------------------


def test_pre_drain_says_not_yet_then_yes(bench: Bench) -> None:
    put(event(bench, "pre-drain"), "slurm", "echo job 4711 runs on this node", "exit 75")
    bench.want(IB)
    waits = bench.run()
    assert (waits.phase, waits.reason_code, waits.stopped_at) == (Phase.WAITING, "hook-not-yet", Phase.STAGED)
    assert waits.detail == "pre-drain hook slurm: job 4711 runs on this node"
    assert (bench.attached, bench.restarts) == (["a"], 0)
    assert bench.engine.look_again_s is not None
    put(event(bench, "pre-drain"), "slurm", "exit 0")
    assert bench.run().phase is Phase.WAITING, "it is not asked again before its time"
    bench.retry()
    assert (bench.run().phase, bench.restarts) == (Phase.DONE, 1)


def test_pre_drain_that_stops_waits_for_a_person(bench: Bench) -> None:
    put(event(bench, "pre-drain"), "slurm", "echo node is reserved", "exit 1")
    bench.want(IB)
    waits = bench.run()
    assert (waits.phase, waits.reason_code, bench.released) == (Phase.WAITING, "hook-stopped", [])
    assert waits.next_step == 'Settle what it says, then: linkwright retry training --reason "…"'
    bench.run()
    put(event(bench, "pre-drain"), "slurm", "exit 0")
    assert bench.run().phase is Phase.WAITING
    bench.retry()
    assert bench.run().phase is Phase.DONE


def test_post_verify_may_hold_back_the_functions(bench: Bench) -> None:
    put(event(bench, "post-verify"), "check", "echo only 12 Gb/s", "exit 1")
    bench.want(IB)
    waits = bench.run()
    assert (waits.phase, waits.reason_code, waits.stopped_at) == (
        Phase.WAITING, "hook-stopped", Phase.VERIFY_FABRIC
    )  # fmt: skip
    assert (bench.attached, bench.restarts) == ([], 1)
    put(event(bench, "post-verify"), "check", "exit 0")
    bench.retry()
    assert (bench.run().phase, bench.attached, bench.restarts) == (Phase.DONE, ["a"], 1)


def test_the_power_cycle_hook_takes_part_where_only_a_power_cycle_helps(bench: Bench) -> None:
    bench.resets_card = False
    put(event(bench, "power-cycle"), "redfish", f"cat > {bench.root}/told", "exit 0")
    bench.want(IB)
    waits = bench.run()
    assert (waits.phase, waits.reason_code, waits.tried) == (
        Phase.WAITING, "restart-did-not-happen", ("Reboot", "PowerCycle")
    )  # fmt: skip
    told = json.loads((bench.root / "told").read_text())
    assert "the host restarted without resetting the card" in told["detail"]
    bench.resets_card = True
    bench.reboot()
    done = bench.run()
    assert (done.phase, bench.restarts, bench.attached) == (Phase.DONE, 1, ["a"])


def test_a_power_cycle_that_did_not_help_is_not_tried_again(bench: Bench) -> None:
    bench.card.faults["current_never_follows"] = True
    put(event(bench, "power-cycle"), "redfish", f"echo x >> {bench.root}/asked", "exit 0")
    bench.want(IB)
    bench.run()
    bench.reboot()
    failed = bench.run()
    assert failed.phase is Phase.FAILED
    assert (bench.root / "asked").read_text() == "x\n"


def test_please_power_cycle_goes_to_the_hook_at_once(bench: Bench) -> None:
    bench.card.faults["power_cycle_text"] = True
    put(event(bench, "power-cycle"), "redfish", "echo BMC does not answer", "exit 1")
    bench.want(IB)
    waits = bench.run()
    assert (waits.phase, waits.reason_code, bench.restarts) == (Phase.WAITING, "hook-stopped", 0)
    assert waits.detail == (
        "the card says that it loads this setting only on a power cycle. power-cycle hook redfish: BMC does not "
        "answer (exit code 1)"
    )
    bench.reboot()
    assert bench.run().phase is Phase.DONE
