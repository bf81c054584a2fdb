"""A host on which the agent runs, and short ways to ask it. One host for each module; modules end independent."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hostlab import disk
from hostlab.lab import Host, Lab

HOST_YAML = """
apiVersion: linkwright.dev/v1alpha1
kind: HostConfig
spec:
  allow: {firmware: true, functions: true, reset: true, restart: true}
  fabrics:
    rail-0: {linkModes: [InfiniBand, RoCE], ports: ["0000:3b:00.0/1", "0000:5e:00.0/1"]}
    rail-1: {linkModes: [InfiniBand, RoCE], ports: ["0000:3b:00.1/2"]}
    office: {linkModes: [RoCE], ports: ["0000:81:00.0/1"]}
"""
PF = "0000:3b:00.0"
PORT = f"{PF}/1"


class Managed:
    """An emulated host with the daemon, and what a person would type."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def run(self, *command: str, code: int | None = 0, stdin: str | None = None) -> str:
        """Run a command; its stdout and stderr. ``code`` None takes any exit code."""
        done = self.host.exec(list(command), check=False, stdin=stdin)
        said = done.stdout + done.stderr
        assert code is None or done.returncode == code, f"{' '.join(command)}: exit {done.returncode}\n{said}"
        return said

    def ask(self, *command: str) -> Any:
        """The JSON answer of a linkwright command."""
        return json.loads(self.host.exec(["linkwright", *command, "-o", "json"]).stdout)

    def apply(self, *documents: str, yes: bool = True, code: int | None = 0, why: str = "test") -> str:
        for index, text in enumerate(documents):
            self.host.write(f"/run/documents/{index}.yaml", text)
        files = [word for index in range(len(documents)) for word in ("-f", f"/run/documents/{index}.yaml")]
        return self.run("linkwright", "apply", *files, "--why", why, *(["--yes"] if yes else []), code=code)

    def container(self, name: str, *options: str) -> None:
        self.run(
            "podman", "run", "--detach", "--name", name, "--restart", "always", *options,
            "--rootfs", "/srv/rootfs", "sleep", "1000000",
        )  # fmt: skip

    def inside(self, name: str, *command: str, code: int | None = 0) -> str:
        return self.run("podman", "exec", name, *command, code=code)

    def status(self) -> Any:
        return self.ask("status")

    def port(self, port: str = PORT) -> Any:
        inventory = self.ask("nics")["inventory"]
        return next(p for a in inventory["adapters"] for p in a["ports"] if p["id"] == port)

    def slots(self) -> dict[str, tuple[str, int | None]]:
        """Target → (port, VF index) of each attached interface."""
        return {
            f"{target['name']} {each['name']}": (each["port"], each["vf_index"])
            for target in self.status()["targets"]
            for each in target["interfaces"]
            if each["state"] == "attached"
        }

    def until(self, what: str, look: Any, limit_s: float = 90.0) -> Any:
        """Ask again, at each progress event or second, until ``look(status)`` is true."""
        end = time.monotonic() + limit_s
        said: Any = None
        while time.monotonic() < end:
            done = self.host.exec(["linkwright", "status", "-o", "json"], check=False)
            if done.returncode == 0:
                said = json.loads(done.stdout)
                if look(said):
                    return said
            time.sleep(0.3)
        raise AssertionError(f"not in {limit_s:.0f} s: {what}\n{json.dumps(said, indent=1)[:6000]}")

    def change(self, policy: str = "training") -> Any:
        return next((c for c in self.status()["changes"] if c["policy"] == policy), None)

    def phase_reached(self, *phases: str, policy: str = "training") -> Any:
        def look(status: Any) -> bool:
            return any(c["policy"] == policy and c["phase"] in phases for c in status["changes"])

        return self.until(f"change of {policy} in {phases}", look)

    def all_attached(self) -> Any:
        return self.until("all attached", lambda s: all(t["state"] == "attached" for t in s["targets"]))

    def nothing_planned(self) -> None:
        """A second pass plans nothing (interlock rule 10)."""
        assert [s for s in self.ask("plan")["steps"] if not s.get("needs")] == []


def policy(mode: str, *, name: str = "training", pf: str = PF, extra: str = "") -> str:
    return f"""
apiVersion: linkwright.dev/v1alpha1
kind: LinkPolicy
metadata: {{name: {name}}}
spec:
  nicSelector: {{pciAddresses: ["{pf}"]}}
  linkMode: {mode}
{extra}"""


def target(name: str, address: str, *, policy: str = "training", interface: str = "net1", extra: str = "") -> str:
    return f"""
apiVersion: linkwright.dev/v1alpha1
kind: Target
metadata: {{name: {name}}}
spec:
  container: {{runtime: podman, name: {name}}}
  policy: {policy}
  interfaces:
  - {{name: {interface}, addresses: ["{address}"]{extra}}}
"""


def managed(lab: Lab, spec: dict[str, Any], name: str, **fields: Any) -> Managed:
    """Start a host with its host.yaml in place and the agent at work."""
    host = lab.host(name)
    disk.prepare(host.dirs.disk, name)
    host.dirs.etc.mkdir(exist_ok=True)
    (host.dirs.etc / "host.yaml").write_text(HOST_YAML)
    return Managed(lab.up(copy.deepcopy(spec) | {"name": name, "agent": True} | fields))


@pytest.fixture(scope="module")
def job(lab: Lab, lab_spec: dict[str, Any], request: pytest.FixtureRequest) -> Iterator[Managed]:
    """The module's own host, with the agent."""
    name = f"job-{request.module.__name__.rpartition('_')[2]}"[:40]
    yield managed(lab, lab_spec, name)
    lab.down(name, erase=True)
