"""The whole crash matrix: every operation interrupted before and after every step, commit and write.

Each operation runs once undisturbed; that names its points. Then it runs once for each point, by a kill of the
agent and by a power loss of the host, and with seeded pairs of interruptions (the second one hits the recovery).
Every run must end like the undisturbed one. Prints progress, each difference, and a last line with the sums.

    python scripts/crash.py [--only attach] [--how kill|power|both] [--pairs 20] [--seed N] [--every 1]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS / "crash"), str(TESTS / "job")]

from rig import CIRCLES, POWER, Rig, Run  # noqa: E402

from hostlab.lab import Lab  # noqa: E402


class Matrix:
    def __init__(self, rig: Rig, how: list[str], every: int, pairs: int, seed: int) -> None:
        self.rig = rig
        self.how = how
        self.every = every
        self.pairs = pairs
        self.random = random.Random(seed)
        self.points: Counter[str] = Counter()
        self.runs = self.missed = 0
        self.bad: list[Run] = []

    def circle(self, name: str) -> None:
        """Go round until each operation of the circle was interrupted everywhere."""
        to, around, back = CIRCLES[name]
        for operation in to:
            self.rig.run(operation)
        cases: dict[str, list[dict[int, str]]] = {}
        for operation in around:
            run = self.took(self.rig.run(operation))
            self.points[operation.name] = len(run.points)
            print(f"  {operation.name}: {len(run.points)} points, undisturbed {run.seconds:.1f} s", flush=True)
            cases[operation.name] = self._cases(len(run.points))
        for operation in around:  # the undisturbed run must repeat itself, or nothing can be compared
            self.took(self.rig.run(operation))
            if POWER in self.how:
                self.rig.reboot(operation)
        while any(cases.values()):
            for operation in around:
                left = cases[operation.name]
                self.took(self.rig.run(operation, left.pop() if left else None))
        for operation in back:
            self.rig.run(operation)

    def _cases(self, points: int) -> list[dict[int, str]]:
        singles = [{n: how} for n in range(1, points + 1, self.every) for how in self.how]
        pairs = []
        for _ in range(min(self.pairs, points)):
            first = self.random.randint(1, points)
            second = first + self.random.randint(1, max(2, points // 2))
            pairs.append({first: self.random.choice(self.how), second: self.random.choice(self.how)})
        self.random.shuffle(singles)
        return pairs + singles

    def took(self, run: Run) -> Run:
        self.runs += 1
        self.missed += run.missed
        mark = "DIFFERS" if run.differences else "missed" if run.missed else "ok"
        print(f"{self.runs:5d} {mark:8s} {run.seconds:5.1f} s  {run.title()}", flush=True)
        if run.differences:
            self.bad.append(run)
            for line in run.differences:
                print(f"        {line}", flush=True)
        return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", choices=list(CIRCLES), help="circles of operations; default: all"
    )
    parser.add_argument("--how", choices=["kill", "power", "both"], default="both")
    parser.add_argument("--every", type=int, default=1, help="only every N-th point")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of interruptions for each operation")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    how = [h for h, words in (("kill", ("kill", "both")), (POWER, ("power", "both"))) if chosen.how in words]
    began = time.monotonic()
    print(f"seed {chosen.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        lab = Lab(Path(folder))
        try:
            rig = Rig(lab)
            matrix = Matrix(rig, how, chosen.every, chosen.pairs, chosen.seed)
            for name in chosen.only or CIRCLES:
                print(f"{name}:", flush=True)
                matrix.circle(name)
        finally:
            for host in lab.hosts():
                lab.down(host.name, erase=True)
    print(
        f"{sum(matrix.points.values())} points in {len(matrix.points)} operations, {matrix.runs} runs "
        f"({matrix.missed} whose point did not come again), {len(matrix.bad)} differences, "
        f"{time.monotonic() - began:.0f} s, seed {chosen.seed}"
    )
    return 1 if matrix.bad else 0


if __name__ == "__main__":
    sys.exit(main())
