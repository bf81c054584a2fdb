"""A seeded sample of the crash matrix (``make crash`` is the whole of it), bounded by time, not by number."""

from __future__ import annotations

import os
import random
import time

import pytest
from rig import CIRCLES, POWER, Rig

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("crash")]

SEED = int(os.environ.get("LINKWRIGHT_SEED") or time.time())
BUDGET_S = {"attach": 40.0, "targets": 50.0, "repair": 15.0, "mode": 50.0}


@pytest.mark.parametrize("circle", list(BUDGET_S))
def test_interrupted_anywhere_it_ends_as_if_undisturbed(rig: Rig, circle: str) -> None:
    print(f"seed {SEED} (again: LINKWRIGHT_SEED={SEED})")
    chance = random.Random(f"{SEED} {circle}")
    to, around, back = CIRCLES[circle]
    points: dict[str, int] = {}
    for operation in (*to, *around):
        run = rig.run(operation)
        assert not run.differences, run
        points[operation.name] = len(run.points)
        if operation in around:
            rig.reboot(operation)
    end = time.monotonic() + BUDGET_S[circle]
    bad: list[str] = []
    runs = 0
    while time.monotonic() < end:
        for operation in around:
            at = {chance.randint(1, points[operation.name]): chance.choice(["kill", "kill", POWER])}
            if chance.random() < 0.3:
                at[max(at) + chance.randint(1, 20)] = "kill"
            run = rig.run(operation, at)
            runs += 1
            bad += [f"{run.title()}: {difference}" for difference in run.differences]
    print(f"{sum(points.values())} points, {runs} interrupted runs")
    for operation in back:
        rig.run(operation)
    assert not bad, f"seed {SEED}\n" + "\n".join(bad)
