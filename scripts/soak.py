"""Random targets, policies, faults and restarts for a chosen time on emulated hosts, each with a real agent.

Reports operations, faults survived, leaks (what is not as before when everything was taken back, and what an audit
finds) and how the memory of an agent that nobody killed has grown. Exit code 1 for a leak or for growth.

    python scripts/soak.py [--seconds 1200] [--hosts 2] [--seed N]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS / "crash"), str(TESTS / "job")]

from looking import differences, interlock  # noqa: E402
from rig import AUTO, PF, TO_IB, TO_PF, TO_ROCE, Rig  # noqa: E402

from hostlab.lab import Lab  # noqa: E402

QUIET = 0.4  # the last part of the time is without kills, so that memory is measured over one process
GROWTH_KIB = 4096  # what an agent may grow in that part: allocator noise, never a leak at each operation
WARM_UP = 6  # operations before the first measurement: imports, caches, SQLite's pages


class Soak:
    """One host's random life."""

    def __init__(self, lab: Lab, name: str, seed: int, end: float) -> None:
        self.rig = Rig(lab, name)
        self.random = random.Random(f"{seed} {name}")
        self.end = end
        self.began = time.monotonic()
        self.count: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.memory_kib: list[int] = []

    def run(self) -> None:
        try:
            clean = self.rig.raise_pf()
            while time.monotonic() < self.end:
                self._turn()
            self._clear(clean)
        except Exception as error:  # the report has to come all the same
            self.wrong.append(f"{self.rig.host.name}: stopped by {error!r}")

    def _turn(self) -> None:
        quiet = self.end - time.monotonic() < QUIET * (self.end - self.began)
        number = self.random.randrange(2)
        what, ask = self.random.choice(
            [
                ("attach", lambda: self.rig.apply(self.rig.target(number))),
                ("detach", lambda: self.rig.delete(self.rig.names[number])),
                ("restart container", lambda: self._podman("restart", self.rig.names[number])),
                ("policy", lambda: self.random.choice([AUTO, TO_PF]).ask(self.rig)),
                ("audit", lambda: self.rig.post("/v1/audit", {"why": "soak"})),
            ]
            + ([] if quiet else [("mode", lambda: self.random.choice([TO_IB, TO_ROCE]).ask(self.rig))])
        )
        ask()
        self.count[what] += 1
        if self.random.random() < 0.4:
            self._fault(quiet)
        self.rig.settle()
        self.wrong += [f"{self.rig.host.name}: {broken}" for broken in interlock(self.rig.look)]
        if quiet:
            self.memory_kib.append(self._memory_kib())

    def _fault(self, quiet: bool) -> None:
        name = self.random.choice(["driver reload"] if quiet else ["kill", "kill", "power loss", "driver reload"])
        time.sleep(self.random.random())
        if name == "kill":
            time.sleep(2)  # the host's init gives up on 5 failures in 10 s
            self.rig.managed.run("sh", "-c", "kill -9 $(cat /run/hostlab-agent.pid)", code=None)
        elif name == "power loss":
            self.rig.host.crash()
        else:
            self.rig.host.fault(PF[:-2], "driver_reload")
        self.faults[name] += 1

    def _podman(self, *command: str) -> None:
        self.rig.managed.run("podman", command[0], "--time", "0", *command[1:], code=None)

    def _memory_kib(self) -> int:
        """Resident memory of the agent."""
        said = self.rig.managed.run("sh", "-c", "cat /proc/$(cat /run/hostlab-agent.pid)/status")
        return next(int(line.split()[1]) for line in said.splitlines() if line.startswith("VmRSS:"))

    def _clear(self, clean: dict[str, object]) -> None:
        """Take everything back; what is not as it was at the beginning has leaked."""
        self.rig.back_to_start()
        self.rig.settle()

        def kept(state: dict[str, object]) -> dict[str, object]:
            return {k: v for k, v in state.items() if not k.startswith("change:")}

        left = differences(kept(clean), kept(self.rig.settle([])))
        self.wrong += [f"{self.rig.host.name}: leaked {line}" for line in left + self.rig._left()]

    @property
    def growth_kib(self) -> int:
        return self.memory_kib[-1] - self.memory_kib[WARM_UP] if len(self.memory_kib) > WARM_UP else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        lab = Lab(Path(folder))
        try:
            end = time.monotonic() + chosen.seconds
            hosts = [Soak(lab, f"soak-{n}", chosen.seed, end) for n in range(chosen.hosts)]
            threads = [threading.Thread(target=host.run) for host in hosts]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                time.sleep(min(30.0, max(1.0, end - time.monotonic())))
                print("; ".join(_said(host) for host in hosts), flush=True)
        finally:
            for host in lab.hosts():
                lab.down(host.name, erase=True)
    return _report(hosts, chosen.seed)


def _said(host: Soak) -> str:
    return (
        f"{host.rig.host.name}: {host.count.total()} operations, {host.faults.total()} faults, "
        f"{len(host.wrong)} wrong"
    )


def _report(hosts: list[Soak], seed: int) -> int:
    wrong = [line for host in hosts for line in host.wrong]
    grown = max(host.growth_kib for host in hosts)
    for line in wrong:
        print(line)
    operations, faults = sum((h.count for h in hosts), Counter()), sum((h.faults for h in hosts), Counter())
    print("operations: " + ", ".join(f"{name} {n}" for name, n in sorted(operations.items())))
    print("faults survived: " + ", ".join(f"{name} {n}" for name, n in sorted(faults.items())))
    print(
        f"{operations.total()} operations, {faults.total()} faults, {len(wrong)} leaks, "
        f"memory of an agent {grown:+d} KiB over {max(len(h.memory_kib) for h in hosts)} operations, seed {seed}"
    )
    return 1 if wrong or grown > GROWTH_KIB else 0


if __name__ == "__main__":
    sys.exit(main())
