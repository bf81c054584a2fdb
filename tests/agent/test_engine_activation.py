"""The mode change engine: every way of activation, what follows its failure, and every answer in the middle."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from bench import IB, PF, ROCE, Bench
from msgspec.structs import replace

from linkwright.agent.verify import POWER_CODES
from linkwright.model.documents import Allow, Window
from linkwright.model.inventory import Holder, RdmaDevice
from linkwright.model.records import Phase
from linkwright.model.values import Guid

GOOD = RdmaDevice(
    name="mlx5_0", state="ACTIVE", phys_state="LinkUp", lid=5, sm_lid=1, node_guid=Guid("b8:ce:f6:00:00:00:00:01")
)
NEVER = (Window(schedule="0 0 30 2 *", duration="1h"),)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    found = Bench(tmp_path, monkeypatch)
    found.want(ROCE)
    found.runs("a")
    found.settle()
    assert found.attached == ["a"]
    return found


def history(bench: Bench) -> list[str]:
    return [entry.what for entry in bench.store.history() if entry.who == "agent"]


# -- restart, reset, External --------------------------------------------------------------------------------


def test_a_restart_and_everything_is_given_back(bench: Bench) -> None:
    bench.want(IB)
    done = bench.run()
    assert (done.phase, done.tried, bench.restarts) == (Phase.DONE, ("Reboot",), 1)
    assert bench.attached == ["a"]
    assert "policy training generation 2: InfiniBand is in force" in history(bench)


def test_a_reset_of_the_proven_adapter_restarts_nobody(bench: Bench) -> None:
    bench.proven = True
    bench.want(IB)
    done = bench.run()
    assert (done.phase, done.method, done.tried) == (Phase.DONE, "FirmwareReset", ("FirmwareReset card",))
    assert (bench.restarts, bench.card.resets, bench.attached) == (0, 1, ["a"])


def test_two_policies_on_one_card_reset_it_once(bench: Bench) -> None:
    bench.proven = True
    bench.want(IB)
    bench.want(IB, ports=(2,), name="second")
    bench.run()
    assert [c.phase for c in bench.store.changes()] == [Phase.DONE, Phase.DONE]
    assert (bench.card.resets, bench.restarts) == (1, 0)


def test_auto_restarts_once_after_a_reset_that_failed(bench: Bench) -> None:
    bench.proven, bench.card.faults["reset_fails"] = True, True
    bench.want(IB)
    done = bench.run()
    assert (done.phase, done.tried) == (Phase.DONE, ("FirmwareReset card", "Reboot"))
    assert (bench.restarts, bench.card.resets, bench.attached) == (1, 1, ["a"])
    assert any("So the host is restarted (method Auto)" in said for said in done.said)


def test_auto_restarts_after_a_reset_that_did_not_bring_the_mode_and_then_ends(bench: Bench) -> None:
    bench.proven, bench.card.faults["current_never_follows"] = True, True
    bench.want(IB)
    failed = bench.run()
    assert (failed.phase, bench.card.resets, bench.restarts) == (Phase.FAILED, 1, 1)
    assert failed.reason_code in POWER_CODES
    bench.run()
    assert (bench.card.resets, bench.restarts) == (1, 1)


def test_a_reset_by_name_that_failed_waits_for_a_person(bench: Bench) -> None:
    bench.card.faults["reset_fails"] = True
    bench.want(IB, method="FirmwareReset")
    waits = bench.run()
    assert (waits.phase, waits.reason_code, waits.stopped_at) == (Phase.WAITING, "reset-failed", Phase.RESTARTING)
    assert "wanted InfiniBand · next InfiniBand · current RoCE" in waits.detail
    assert "-E- failed" in waits.said
    assert (bench.restarts, bench.card.resets) == (0, 1)
    bench.card.faults.clear()
    bench.retry()
    assert (bench.run().phase, bench.card.resets, bench.attached) == (Phase.DONE, 2, ["a"])


def test_a_person_may_restart_the_host_after_a_failed_reset(bench: Bench) -> None:
    bench.card.faults["reset_fails"] = True
    bench.want(IB, method="FirmwareReset")
    bench.run()
    bench.reboot()
    done = bench.run()
    assert (done.phase, done.tried) == (Phase.DONE, ("FirmwareReset card", "Reboot"))


def test_a_reset_that_is_not_offered_any_more_interrupts_nobody(bench: Bench) -> None:
    bench.card.faults["reset_unsupported"] = True
    bench.want(IB, method="FirmwareReset")
    waits = bench.run()
    assert (waits.phase, waits.reason_code) == (Phase.WAITING, "reset-not-offered")
    assert (bench.attached, bench.released) == (["a"], [])


def test_a_function_that_somebody_took_meanwhile_stops_the_reset(bench: Bench) -> None:
    bench.want(IB, method="FirmwareReset")
    bench.until(Phase.DRAINING)
    bench.holders = (Holder(kind="vfio", detail="pid 4711 (qemu)"),)
    waits = bench.run()
    assert (waits.phase, waits.reason_code, bench.card.resets) == (Phase.WAITING, "function-in-use", 0)


def test_external_waits_for_somebody_elses_restart_and_carries_on(bench: Bench) -> None:
    bench.want(IB, method="External")
    waits = bench.run()
    assert (waits.phase, waits.reason_code, waits.stopped_at) == (Phase.WAITING, "external-restart", Phase.STAGED)
    assert (bench.attached, bench.released, bench.restarts) == (["a"], [], 0)
    bench.reboot()
    done = bench.run()
    assert (done.phase, bench.restarts, bench.attached) == (Phase.DONE, 0, ["a"])


def test_an_unrelated_restart_while_staged_counts_as_ours(bench: Bench) -> None:
    bench.want(IB)
    bench.until(Phase.STAGED)
    bench.reboot()
    done = bench.run()
    assert (done.phase, done.activations, bench.restarts) == (Phase.DONE, 1, 0)
    assert "The host was restarted by somebody else; that counts as the activation." in done.said


def test_an_unrelated_restart_that_loads_nothing_is_not_followed_by_another(bench: Bench) -> None:
    bench.want(IB)
    bench.until(Phase.STAGED)
    bench.resets_card = False
    bench.reboot()
    failed = bench.run()
    assert (failed.phase, failed.reason_code, bench.restarts) == (Phase.FAILED, "card-not-reset", 0)
    assert "ipmitool chassis power cycle" in failed.next_step


# -- windows and drain ---------------------------------------------------------------------------------------


def test_a_window_that_closed_after_the_write_waits_without_interrupting(bench: Bench) -> None:
    bench.want(IB, windows=(Window(schedule="* * * * *", duration="1h"),))
    bench.until(Phase.STAGED)
    question = bench.look()
    policies = question.desired.policies
    spec = policies[0].spec
    wishes = msgspec.structs.replace(spec.activation, windows=NEVER)
    shut = msgspec.structs.replace(policies[0], spec=msgspec.structs.replace(spec, activation=wishes))
    desired = msgspec.structs.replace(question.desired, policies=(shut,))
    assert bench.engine.advance(msgspec.structs.replace(question, desired=desired))
    assert (bench.change.phase, bench.change.reason_code) == (Phase.WAITING, "window-closed")
    assert (bench.released, bench.restarts) == ([], 0)
    assert bench.run().phase is Phase.DONE


def test_drain_wait_restarts_when_the_holders_ended(bench: Bench) -> None:
    bench.want(IB, drain="Wait")
    waits = bench.run()
    assert (waits.phase, bench.attached, bench.restarts) == (Phase.DRAINING, ["a"], 0)
    bench.stops("a")
    bench.run()
    assert bench.restarts == 1
    assert bench.change.phase is Phase.DONE


def test_drain_wait_ends_after_its_timeout_and_a_person_decides(bench: Bench) -> None:
    bench.want(IB, drain="Wait", timeout="1s")
    draining = bench.until(Phase.DRAINING)
    bench.store.put_change(msgspec.structs.replace(draining, phase_since=draining.phase_since - 2))
    waits = bench.run()
    assert (waits.phase, waits.reason_code, bench.restarts) == (Phase.WAITING, "drain-timeout", 0)
    assert waits.detail.startswith("drain: Wait: a did not end within 1 s. Nobody was interrupted")
    assert bench.attached == ["a"]


# -- answers in the middle -----------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [Phase.INTENT, Phase.STAGED, Phase.DRAINING])
def test_taken_back_before_the_activation_nothing_stays_staged(bench: Bench, phase: Phase) -> None:
    bench.want(IB)
    bench.until(phase)
    bench.want(ROCE)
    ended = bench.run()
    assert (ended.phase, ended.reason_code, ended.stopped_at) == (Phase.ENDED, "taken-back", phase)
    assert bench.card.next["LINK_TYPE_P1"] == "2"
    assert (bench.restarts, bench.attached) == (0, ["a"])


def test_taken_back_while_it_waits_for_somebody_elses_restart(bench: Bench) -> None:
    bench.want(IB, method="External")
    bench.run()
    bench.want(ROCE, method="External")
    ended = bench.run()
    assert (ended.phase, ended.detail) == (
        Phase.ENDED,
        "generation 3 took its place before the activation; put back for the next boot: LINK_TYPE_P1=2.",
    )
    bench.reboot()
    bench.run()
    assert bench.card.current["LINK_TYPE_P1"] == "2"


@pytest.mark.parametrize("phase", [Phase.INTENT, Phase.STAGED, Phase.DRAINING])
def test_deleted_before_the_activation_what_was_staged_is_put_back(bench: Bench, phase: Phase) -> None:
    bench.want(IB)
    bench.until(phase)
    bench.store.delete_target("a")
    bench.store.delete_policy("training")
    ended = bench.run()
    assert (ended.phase, bench.card.next["LINK_TYPE_P1"], bench.restarts) == (Phase.ENDED, "2", 0)
    assert ended.detail.startswith("the policy was deleted before the activation;")


AFTER = [Phase.BOOTED, Phase.VERIFY_MODE, Phase.VERIFY_FABRIC, Phase.FUNCTIONS, Phase.REATTACH]


@pytest.mark.parametrize("phase", AFTER)
def test_changed_again_after_the_activation_the_next_generation_goes_on(bench: Bench, phase: Phase) -> None:
    bench.proven = True
    bench.want(IB)
    bench.until(phase)
    bench.want(ROCE)
    done = bench.run()
    assert (done.phase, done.generation, done.wanted) == (Phase.DONE, 3, ROCE)
    first = bench.store.change_history("training")[1]
    assert (first.phase, first.reason_code, first.stopped_at) == (Phase.ENDED, "superseded", phase)
    assert bench.mode(f"{PF}/1") is ROCE
    assert (bench.card.resets, bench.attached) == (2, ["a"])


@pytest.mark.parametrize("phase", [Phase.INTENT, Phase.STAGED, Phase.DRAINING, *AFTER])
def test_changed_in_something_else_the_mode_is_reached_once(bench: Bench, phase: Phase) -> None:
    bench.proven = True
    bench.want(IB)
    bench.until(phase)
    bench.want(IB, timeout="11m")
    done = bench.run()
    assert (done.phase, done.wanted, bench.card.resets, bench.attached) == (Phase.DONE, IB, 1, ["a"])


@pytest.mark.parametrize("phase", AFTER)
def test_deleted_after_the_activation_the_mode_stays(bench: Bench, phase: Phase) -> None:
    bench.want(IB)
    bench.proven = True
    bench.until(phase)
    bench.store.delete_target("a")
    bench.store.delete_policy("training")
    ended = bench.run()
    assert (ended.phase, ended.reason_code, bench.mode(f"{PF}/1")) == (Phase.ENDED, "superseded", IB)


def test_frozen_nothing_is_staged_and_nothing_is_put_back(bench: Bench) -> None:
    bench.want(IB, method="External")
    bench.run()
    bench.store.freeze("root")
    bench.want(ROCE)
    assert bench.run().phase is Phase.WAITING
    bench.store.unfreeze()
    assert bench.run().phase is Phase.ENDED


def test_a_verdict_on_an_old_generation_is_history(bench: Bench) -> None:
    bench.card.faults["write_refused"] = "LINK_TYPE_P1"
    bench.want(IB)
    assert bench.run().phase is Phase.FAILED
    bench.want(ROCE)
    ended = bench.run()
    assert (ended.phase, ended.reason_code, ended.stopped_at) == (Phase.ENDED, "superseded", Phase.INTENT)
    assert ended.detail.startswith("generation 3 took its place. It had failed: ")
    assert bench.run().phase_since == ended.phase_since


# -- Rollback and Hold ---------------------------------------------------------------------------------------


def no_link(bench: Bench) -> None:
    bench.fabric = RdmaDevice(name="mlx5_0", state="DOWN", phys_state="Polling")
    bench.limits = "0s"


def test_rollback_returns_once_and_says_so(bench: Bench) -> None:
    no_link(bench)
    bench.want(IB, on_failure="Rollback")
    failed = bench.run()
    assert (failed.phase, failed.reason_code, failed.returned_to) == (Phase.FAILED, "rolled-back", ROCE)
    assert failed.wanted is IB
    assert failed.detail.startswith("link-down: 0000:3b:00.0 p1: no link in InfiniBand mode")
    assert "It was returned to RoCE once (onFailure: Rollback)" in failed.detail
    assert (bench.restarts, bench.attached, bench.mode(f"{PF}/1")) == (2, ["a"], ROCE)
    bench.run()
    assert bench.restarts == 2
    assert "policy training generation 2: failed (rolled-back)" in history(bench)


def test_a_link_that_is_down_in_both_modes_does_not_hold_the_way_back(bench: Bench) -> None:
    no_link(bench)
    bench.carrier = False
    bench.want(IB, on_failure="Rollback")
    failed = bench.run()
    assert (failed.reason_code, bench.restarts, bench.attached) == ("rolled-back", 2, ["a"])
    assert "In RoCE mode too: 0000:3b:00.0 p1: no link in RoCE mode" in failed.detail


def test_rollback_of_a_mode_that_never_came_restarts_nobody_again(bench: Bench) -> None:
    bench.card.faults["current_never_follows"] = True
    bench.want(IB, on_failure="Rollback")
    failed = bench.run()
    assert (failed.reason_code, bench.restarts, bench.attached) == ("rolled-back", 1, ["a"])
    assert bench.card.next["LINK_TYPE_P1"] == "2"


def test_a_rollback_is_tried_again_only_by_a_retry(bench: Bench) -> None:
    no_link(bench)
    bench.want(IB, on_failure="Rollback")
    bench.run()
    bench.fabric = RdmaDevice(name="mlx5_0", state="ACTIVE", phys_state="LinkUp", lid=5, sm_lid=1)
    assert bench.run().phase is Phase.FAILED
    bench.retry()
    done = bench.run()
    assert (done.phase, done.wanted, bench.restarts, bench.attached) == (Phase.DONE, IB, 3, ["a"])


def test_a_way_back_that_fails_ends_there(bench: Bench) -> None:
    no_link(bench)
    bench.want(IB, on_failure="Rollback")
    bench.breaks_at_restart = 2
    failed = bench.run()
    assert (failed.phase, failed.reason_code, failed.wanted, bench.restarts) == (
        Phase.FAILED, "rollback-failed", IB, 2
    )  # fmt: skip


def test_hold_keeps_the_evidence_and_does_nothing(bench: Bench) -> None:
    bench.card.faults["current_never_follows"] = True
    bench.want(IB)
    failed = bench.run()
    assert (failed.phase, failed.reason_code, bench.restarts) == (Phase.FAILED, "mode-not-taken", 1)
    for word in ("wanted InfiniBand", "next InfiniBand", "current RoCE", "observed RoCE"):
        assert word in failed.detail
    assert any(said.startswith(f"mstconfig -y -d {PF} set LINK_TYPE_P1=1") for said in failed.said)
    assert bench.card.next["LINK_TYPE_P1"] == "1"


# -- cards ---------------------------------------------------------------------------------------------------


def test_a_write_refused_on_port_2_only_is_put_back_and_interrupts_nobody(bench: Bench) -> None:
    bench.card.faults["write_refused"] = "LINK_TYPE_P2"
    bench.want(IB, ports=(1, 2))
    failed = bench.run()
    assert (failed.phase, failed.reason_code, failed.stopped_at) == (Phase.FAILED, "half-applied", Phase.INTENT)
    assert bench.card.next == {"LINK_TYPE_P1": "2", "LINK_TYPE_P2": "2"}
    assert "Put back for the next boot: LINK_TYPE_P1=2." in failed.detail
    assert (bench.restarts, bench.released) == (0, [])


def test_a_card_that_is_busy_for_a_while_is_asked_again(bench: Bench) -> None:
    bench.card.faults["busy"] = 2
    bench.want(IB)
    assert bench.run().phase is Phase.INTENT
    assert bench.engine.look_again_s == 2.0
    assert bench.run().phase is Phase.INTENT
    assert bench.run().phase is Phase.DONE


def test_a_card_that_stays_busy_is_said_and_asked_again(bench: Bench) -> None:
    bench.card.faults["busy"] = 9
    bench.want(IB)
    intent = bench.run()
    bench.store.put_change(msgspec.structs.replace(intent, phase_since=intent.phase_since - 400))
    waits = bench.run()
    assert (waits.phase, waits.reason_code, waits.stopped_at) == (Phase.WAITING, "firmware-busy", Phase.INTENT)
    bench.card.faults["busy"] = 0
    assert bench.run().phase is Phase.DONE


def test_please_power_cycle_is_said_before_anybody_is_interrupted(bench: Bench) -> None:
    bench.card.faults["power_cycle_text"] = True
    bench.want(IB)
    waits = bench.run()
    assert (waits.phase, waits.reason_code) == (Phase.WAITING, "power-cycle-needed")
    assert waits.stopped_at is Phase.STAGED
    assert (bench.attached, bench.released, bench.restarts) == (["a"], [], 0)
    assert "Redfish ComputerSystem.Reset with ResetType PowerCycle" in waits.next_step
    bench.reboot()
    assert (bench.run().phase, bench.restarts) == (Phase.DONE, 0)


def test_a_person_may_insist_on_a_plain_restart(bench: Bench) -> None:
    bench.card.faults["power_cycle_text"] = True
    bench.want(IB)
    bench.run()
    bench.retry()
    assert (bench.run().phase, bench.restarts) == (Phase.DONE, 1)


@pytest.mark.parametrize(
    ("fabric", "code"),
    [
        (replace(GOOD, state="INIT", lid=0, sm_lid=0), "no-subnet-manager"),
        (RdmaDevice(name="mlx5_0", state="DOWN", phys_state="Polling"), "link-down"),
        (replace(GOOD, state="INIT", lid=0, sm_lid=0, node_guid=None), "guid-zero"),
    ],
)
def test_what_the_fabric_lacks_is_waited_for_and_goes_on_by_itself(
    bench: Bench, fabric: RdmaDevice, code: str
) -> None:
    good, bench.fabric, bench.limits = bench.fabric, fabric, "0s"
    bench.want(IB)
    waits = bench.run()
    assert (waits.phase, waits.reason_code, waits.stopped_at) == (Phase.WAITING, code, Phase.VERIFY_FABRIC)
    assert "current InfiniBand" in waits.detail
    assert bench.attached == []
    bench.fabric = good
    assert (bench.run().phase, bench.attached, bench.restarts) == (Phase.DONE, ["a"], 1)


def test_verdicts_are_final_until_a_retry(bench: Bench) -> None:
    bench.resets_card = False
    bench.want(IB)
    assert bench.run().reason_code == "card-not-reset"
    assert bench.run().reason_code == "card-not-reset"
    assert bench.restarts == 1
    bench.resets_card = True
    bench.retry()
    assert (bench.run().phase, bench.restarts) == (Phase.DONE, 2)


def test_without_allow_restart_a_failed_reset_waits(bench: Bench) -> None:
    bench.proven, bench.card.faults["reset_fails"] = True, True
    bench.allow = Allow(firmware=True, functions=True, reset=True)
    bench.want(IB)
    waits = bench.run()
    assert (waits.phase, waits.reason_code, bench.restarts) == (Phase.WAITING, "reset-failed", 0)


# -- crashes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["reset", "restart", "reset-fails", "rollback"])
def test_a_crash_at_any_point_ends_like_the_run_without(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def story(crash_at: int) -> tuple[Bench, tuple[object, ...]]:
        root = tmp_path / f"{crash_at}"
        root.mkdir()
        bench = Bench(root, monkeypatch)
        bench.want(ROCE)
        bench.runs("a")
        bench.settle()
        bench.points.clear()
        bench.crash_at = crash_at
        bench.proven = way in ("reset", "reset-fails")
        if way == "reset-fails":
            bench.card.faults["reset_fails"] = True
        if way == "rollback":
            no_link(bench)
        bench.want(IB, on_failure="Rollback" if way == "rollback" else "Hold")
        change = bench.run()
        most = 2 if way == "rollback" else 1
        assert bench.card.loads <= most, f"activated too often with a crash at point {crash_at}"
        seen = (change.phase, change.reason_code, bench.card.next, bench.card.current, bench.attached)
        return bench, seen

    whole, expected = story(0)
    total = len(whole.points)
    assert total > 6
    for number in range(1, total + 1):
        _, seen = story(number)
        assert seen == expected, f"crash at point {number} ({whole.points[number - 1]})"


def test_a_crash_while_it_is_taken_back_leaves_nothing_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 7):
        root = tmp_path / f"{number}"
        root.mkdir()
        bench = Bench(root, monkeypatch)
        bench.want(ROCE)
        bench.runs("a")
        bench.settle()
        bench.want(IB)
        bench.until(Phase.STAGED)
        bench.crash_at = len(bench.points) + number
        bench.want(ROCE)
        ended = bench.run()
        assert (ended.phase, ended.reason_code, bench.restarts) == (Phase.ENDED, "taken-back", 0)
        assert bench.card.next == bench.card.current
