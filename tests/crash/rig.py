"""Interrupt a real agent at a chosen point of an operation, let it recover, and compare with the undisturbed run.

One host with one card and two containers serves all runs. Operations lead in circles (attach, detach, attach …),
so a run begins where the one before ended and nothing has to be set up anew. The agent counts its points in a
folder of the lab (``linkwright.agent.crashpoints``); a run names the ones at which it ends: by SIGKILL, or by a
power loss of the host that drops what was not synced.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import managed
from looking import Look, agent_of, containers, differences
from managed import policy, target

from hostlab.lab import Lab
from linkwright.cli.api import Agent, AgentAway
from linkwright.model import load
from linkwright.model.errors import InvalidInput, LinkwrightError, Refused

PF = "0000:5e:00.0"
CRASH = "/run/hostlab/crash"  # in the host; <run>/inside/crash outside
POWER = "/run/hostlab/request"
SPEC: dict[str, Any] = {
    "fabrics": {"rail-0": {"linkModes": ["InfiniBand", "RoCE"], "subnetManager": True}},
    "adapters": [{"persona": "cx7-vpi-single", "address": "0000:5e:00", "ports": [{"fabric": "rail-0"}]}],
    # PYTHONPATH: a copy of the sources, so that edits do not meddle with a long run
    "environ": {"LINKWRIGHT_CRASH": CRASH} | {k: v for k, v in os.environ.items() if k == "PYTHONPATH"},
}
SETTLE_LIMIT_S = 90.0
LEAST_BETWEEN_KILLS_S = 2.2  # the host's init gives up on an agent that fails more than 5 times in 10 s

Ask = Callable[["Rig"], None]


@dataclass(frozen=True)
class Operation:
    """What a person does; each request is repeated when the agent was gone, as a person would."""

    name: str
    ask: Ask
    before: Ask | None = None  # done undisturbed


@dataclass
class Run:
    """``points`` reached; ``differences`` from the undisturbed run; ``at`` the interruptions with their names."""

    operation: str
    at: dict[int, str] = field(default_factory=dict)
    points: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    boots: int = 0
    seconds: float = 0.0

    @property
    def missed(self) -> bool:
        return bool(self.at) and len(self.points) < max(self.at)

    def title(self) -> str:
        names = dict(enumerate(self.points, 1))
        cuts = [
            f"{how if how == 'kill' else 'power loss'} at {n} ({names.get(n, '-')})" for n, how in self.at.items()
        ]
        return f"{self.operation}: " + (", ".join(cuts) or "undisturbed")


class Rig:
    def __init__(self, lab: Lab, name: str = "crash") -> None:
        self.names = tuple(f"{name}-{os.getpid()}-t{number}" for number in range(2))
        self.managed = managed.managed(lab, SPEC, name)
        self.host = self.managed.host
        self.folder = self.host.dirs.inside / "crash"
        self.look = Look(self.host, self.names)
        self.wanted: dict[str, Run] = {}
        self.rebooted: dict[str, dict[str, Any]] = {}
        self._last_kill = 0.0
        for container in self.names:
            self.managed.container(container, "--hostname", container)
        self.apply(policy("InfiniBand", pf=PF))
        self.settle()

    # -- asking --------------------------------------------------------------------------------------------

    def agent(self) -> Agent:
        """The running agent; waits for it (a crash ended it, or the whole host)."""
        end = time.monotonic() + SETTLE_LIMIT_S
        while True:
            try:
                agent = agent_of(self.host)
                agent.get("/v1/history?limit=1")
                return agent
            except LinkwrightError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def apply(self, *documents: str) -> None:
        """Plan, agree to all it asks for, apply; again if the agent went away or the plan changed."""
        bodies = [body for text in documents for body in _json(text)]
        for _ in self._tries():
            agent = self.agent()
            try:
                made = agent.post("/v1/plan", {"documents": bodies})
                keys = [a["key"] for a in made["approvals"]]
                agent.post("/v1/apply", {"documents": bodies, "approvals": keys, "why": "crash test"})
                return
            except (AgentAway, Refused):
                continue

    def delete(self, target: str) -> None:
        for _ in self._tries():
            try:
                self.agent().delete(f"/v1/targets/{target}?why=crash")
                return
            except InvalidInput:
                return  # the request before was stored, its answer lost
            except AgentAway:
                continue

    def post(self, path: str, body: Any) -> Any:
        for _ in self._tries():
            try:
                return self.agent().post(path, body)
            except AgentAway:
                continue
        return None

    def _tries(self) -> Iterator[int]:
        end = time.monotonic() + SETTLE_LIMIT_S
        for number in itertools.count():
            if time.monotonic() > end:
                raise AssertionError("the request did not get through")
            yield number

    def target(self, number: int, extra: str = "") -> str:
        """The document of container ``number``."""
        extra = extra or f", rdmaName: crash{number}, routes: [{{to: 10.8.{number}.0/24, via: 10.9.0.254}}]"
        return target(self.names[number], f"10.9.0.{number + 1}/24", extra=extra)

    # -- running -------------------------------------------------------------------------------------------

    def run(self, operation: Operation, at: dict[int, str] | None = None) -> Run:
        """One run. The first of an operation is the undisturbed one; others are compared with it."""
        began, boots = time.monotonic(), int(self.host.status()["boots"])
        result = Run(operation.name, at or {})
        pause = self._last_kill + LEAST_BETWEEN_KILLS_S - began
        if result.at and pause > 0:
            time.sleep(pause)
        if operation.before is not None:
            operation.before(self)
        self._arm(result.at)
        operation.ask(self)
        wanted = self.wanted.get(operation.name)
        losses = sum(how != "kill" for how in result.at.values())
        try:
            goals = [wanted.state] if wanted else []
            goals += [self.rebooted[operation.name]] if losses and operation.name in self.rebooted else []
            result.state = self.settle(goals)
        finally:
            result.points = (self.folder / "points").read_text().splitlines()
            self._arm({})
        if result.at:
            self._last_kill = time.monotonic()
        result.boots = int(self.host.status()["boots"]) - boots
        result.seconds = time.monotonic() - began
        if wanted is None:
            self.wanted[operation.name] = result
            wanted = result
        result.differences = differences(wanted.state, result.state)
        if losses and operation.name in self.rebooted:
            # A restart has effects of its own (VFs that nobody uses are not made again): one of both has to fit.
            other = differences(self.rebooted[operation.name], result.state)
            result.differences = min(result.differences, other, key=len)
        if not wanted.boots <= result.boots <= wanted.boots + losses and not (losses and result.boots == losses):
            result.differences.append(f"restarts: {wanted.boots} → {result.boots}, {losses} of them power losses")
        result.differences += self._left()
        return result

    def reboot(self, operation: Operation) -> None:
        """A power loss after the operation, with nothing under way: what a restart alone does to its result."""
        self.host.crash()
        self.rebooted[operation.name] = self.settle()

    def raise_pf(self) -> dict[str, Any]:
        """Bring the PF's netdev up, as making VFs does (and leaves it); the state then."""
        netns = os.open(f"/proc/{self.host.status()['init_pid']}/ns/net", os.O_RDONLY)
        try:
            link = next(link for link in self.look.links.dump(netns) if link.parent == PF)
            self.look.links.change(link.ifindex, netns, up=True)
        finally:
            os.close(netns)
        return self.settle()

    def back_to_start(self) -> None:
        """From any state: no targets, and the PF as a whole (VFs go only for somebody who gets the PF)."""
        for number in (1, 0):
            self.delete(self.names[number])
        self.settle()
        self.apply(policy("InfiniBand", pf=PF, extra="  functions: {assign: PF}"), self.target(0))
        self.settle()
        self.delete(self.names[0])
        self.settle()
        self.apply(policy("InfiniBand", pf=PF))

    def _arm(self, at: dict[int, str]) -> None:
        (self.folder / "at").write_text("".join(f"{n} {how}\n" for n, how in at.items()))
        (self.folder / "points").write_bytes(b"")

    def settle(self, goals: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        """Wait until the agent has nothing to do; with ``goals``, until it looks like one of them, or a limit."""
        end = time.monotonic() + SETTLE_LIMIT_S
        since = 0.0
        agreed: set[str] = set()
        state: dict[str, Any] = {}
        while time.monotonic() < end:
            agent = self.agent()
            try:
                status = agent.get("/v1/status")
                if not status["settled"] or any(c["phase"] not in ("done", "failed") for c in status["changes"]):
                    since = 0.0
                else:
                    for key in {a["key"] for a in status["approvals"]} - agreed:
                        agreed.add(key)  # as a person who gave a yes before the host went down
                        agent.post("/v1/approve", {"keys": [key], "why": "crash test"})
                    state = self.look.state(agent)
                    if (not goals and self._running()) or any(not differences(goal, state) for goal in goals):
                        return state
                    since = since or time.monotonic()
                    if time.monotonic() - since > 25:
                        break  # it has come to rest, and is not as wanted
            except (LinkwrightError, OSError):
                since = 0.0
            time.sleep(0.1)
        assert state, "the agent did not settle"
        return state

    def _running(self) -> bool:
        return len(containers(self.names)) == len(self.names)

    def _left(self) -> list[str]:
        """What a second pass would do, and what an audit finds."""
        answer = self.agent().get("/v1/audit")
        left = [f"planned again: {step['step']} {step.get('reason')}" for step in answer["planned"]]
        return left + [f"audit: {found['text']}" for found in answer["findings"]]


def _json(text: str) -> list[Any]:
    return [load.to_builtins(found.document) for found in load.load_documents(text, "test")]


def _pf_form(rig: Rig) -> None:
    rig.apply(policy("InfiniBand", pf=PF, extra="  functions: {assign: PF}"))


def _damage(rig: Rig) -> None:
    """The PF's netdev as a crash of another tool might leave it: our mark, a name of ours, another MTU."""
    netns = os.open(f"/proc/{rig.host.status()['init_pid']}/ns/net", os.O_RDONLY)
    try:
        link = next(link for link in rig.look.links.dump(netns) if link.parent == PF)
        rig.look.links.change(link.ifindex, netns, up=False)
        rig.look.links.change(link.ifindex, netns, name="net1", alias="linkwright:ghost/net1", mtu=1280)
    finally:
        os.close(netns)
    rig.settle()


def _repair(rig: Rig) -> None:
    rig.post("/v1/audit", {"why": "crash test"})


ATTACH = Operation("attach", lambda rig: rig.apply(rig.target(0)))
DETACH = Operation("detach", lambda rig: rig.delete(rig.names[0]))
SECOND = Operation("1 to 2 targets", lambda rig: rig.apply(rig.target(1)))
ONE = Operation("2 to 1 targets", lambda rig: rig.delete(rig.names[1]))
TO_PF = Operation("policy: VFs to PF", _pf_form)
AUTO = Operation("policy: Auto again", lambda rig: rig.apply(policy("InfiniBand", pf=PF)))
TO_ROCE = Operation("mode to RoCE", lambda rig: rig.apply(policy("RoCE", pf=PF)))
TO_IB = Operation("mode to InfiniBand", lambda rig: rig.apply(policy("InfiniBand", pf=PF)))
RESET = "  activation: {method: FirmwareReset}"
RESET_ROCE = Operation("reset to RoCE", lambda rig: rig.apply(policy("RoCE", pf=PF, extra=RESET)))
RESET_IB = Operation("reset to InfiniBand", lambda rig: rig.apply(policy("InfiniBand", pf=PF, extra=RESET)))
REPAIR = Operation("audit --repair", _repair, before=_damage)

CIRCLES: dict[str, tuple[tuple[Operation, ...], tuple[Operation, ...], tuple[Operation, ...]]] = {
    # name: (to get there, the circle, to get back)
    "attach": ((), (ATTACH, DETACH), ()),
    "targets": ((ATTACH,), (SECOND, ONE, TO_PF, AUTO), (DETACH,)),
    "repair": ((), (REPAIR,), ()),
    "mode": ((ATTACH, SECOND), (TO_ROCE, TO_IB), (ONE, TO_PF, AUTO, DETACH)),
    "reset": ((ATTACH, SECOND), (RESET_ROCE, RESET_IB), (ONE, TO_PF, AUTO, DETACH)),
}
