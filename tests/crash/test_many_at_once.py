"""Many requests at once, from several clients, with the agent killed in between; the interlock after each step.

A hypothesis state machine chooses; each rule asks from threads of its own, as separate command lines would.
Bounded by time: after the budget the rules do nothing more, and the end is compared with what was asked for.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from looking import differences, interlock
from managed import policy
from rig import PF, Rig

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("crash")]

SEED = int(os.environ.get("LINKWRIGHT_SEED") or time.time())
BUDGET_S = 60.0
FORMS = ("Auto", "VF")
TARGETS = st.integers(0, 1)


def machine(rig: Rig, end: float, done: list[str]) -> type[RuleBasedStateMachine]:
    class Clients(RuleBasedStateMachine):
        """``wanted``: targets that the last request about them asked for; over all examples, as the host is."""

        wanted: ClassVar[set[int]] = set()

        def at_once(self, wanted: set[int], *requests: Callable[[], None]) -> None:
            """``wanted`` afterwards."""
            if time.monotonic() > end:
                return
            with ThreadPoolExecutor(len(requests)) as pool:
                for answer in [pool.submit(request) for request in requests]:
                    answer.result()
            done.append("x" * len(requests))
            type(self).wanted = wanted

        @rule(number=TARGETS)
        def attach(self, number: int) -> None:
            self.at_once(self.wanted | {number}, lambda: rig.apply(rig.target(number)))

        @rule()
        def attach_both_twice(self) -> None:
            self.at_once({0, 1}, *(lambda n=n: rig.apply(rig.target(n)) for n in (0, 1, 0, 1)))  # type: ignore[misc]

        @rule(number=TARGETS)
        def detach_one_and_audit(self, number: int) -> None:
            self.at_once(
                self.wanted - {number},
                lambda: rig.delete(rig.names[number]),
                lambda: rig.delete(rig.names[number]),
                lambda: rig.post("/v1/audit", {"why": "at once"}),
            )

        @rule(number=TARGETS, form=st.sampled_from(FORMS))
        def detach_while_the_policy_changes(self, number: int, form: str) -> None:
            text = policy("InfiniBand", pf=PF, extra=f"  functions: {{assign: {form}}}")
            self.at_once(self.wanted - {number}, lambda: rig.apply(text), lambda: rig.delete(rig.names[number]))

        @rule(wait_s=st.floats(0, 1))
        def kill_the_agent(self, wait_s: float) -> None:
            if time.monotonic() < end:
                time.sleep(wait_s + 1.2)  # the host's init gives up on 5 failures in 10 s
                rig.managed.run("sh", "-c", "kill -9 $(cat /run/hostlab-agent.pid)", code=None)
                done.append("killed")

        @invariant()
        def interlock_holds(self) -> None:
            if time.monotonic() < end:
                assert interlock(rig.look) == []

        def teardown(self) -> None:
            state = rig.settle()
            attached = {n for n in (0, 1) if any(k.startswith(f"{rig.names[n]}: link net1") for k in state)}
            assert attached == self.wanted
            assert rig._left() == []

    return Clients


def test_many_clients_at_once(rig: Rig) -> None:
    print(f"seed {SEED} (again: LINKWRIGHT_SEED={SEED})")
    clean = rig.raise_pf()
    done: list[str] = []
    test = machine(rig, time.monotonic() + BUDGET_S, done)
    chosen = settings(
        max_examples=2, stateful_step_count=25, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    random.seed(SEED)
    run_state_machine_as_test(seed(SEED)(test), settings=chosen)
    print(f"{sum(map(len, done))} requests in {len(done)} steps")
    rig.back_to_start()
    assert differences(clean, rig.settle([clean])) == []
