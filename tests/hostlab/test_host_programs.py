"""Programs in an emulated host: the vendor's tools, podman, and the agent as a service of process 1."""

from __future__ import annotations

import pytest

from hostlab.lab import Host
from lab_fixtures import StartHost

pytestmark = pytest.mark.lab


def run_container(host: Host, name: str, *options: str) -> None:
    host.exec(["podman", "run", "-d", "--name", name, *options, "--rootfs", "/srv/rootfs", "sleep", "inf"])


def running(host: Host) -> set[str]:
    return set(host.exec(["podman", "ps", "--format", "{{.Names}}"]).stdout.split())


def test_mstconfig_sets_what_the_next_restart_makes_current(start_host: StartHost) -> None:
    host = start_host("gpu-06")
    assert "ibp59s0f0" in host.exec(["ls", "/sys/class/net"]).stdout
    host.exec(["mstconfig", "-y", "-d", "0000:3b:00.0", "set", "LINK_TYPE_P1=2"])
    assert "ibp59s0f0" in host.exec(["ls", "/sys/class/net"]).stdout
    host.crash()  # the card is reset, and firmware keeps what the host's disk would not
    names = host.exec(["ls", "/sys/class/net"]).stdout.split()
    assert "enp59s0f0np0" in names
    assert "ibp59s0f0" not in names


def test_containers_with_a_restart_policy_come_back(start_host: StartHost) -> None:
    host = start_host("gpu-07", adapters=[])
    run_container(host, "always", "--restart=always")
    run_container(host, "once")
    assert running(host) == {"always", "once"}
    links = host.exec(["podman", "exec", "always", "ip", "-o", "link"]).stdout
    assert [line.split(":")[1].strip() for line in links.splitlines()] == ["lo"]
    host.crash()
    assert running(host) == {"always"}
    host.restart()
    assert running(host) == {"always"}


def test_the_agent_runs_as_a_service(start_host: StartHost) -> None:
    host = start_host("gpu-08", agent=True)
    status = host.status()
    assert status["agent_ready"]
    pid = host.exec(["cat", "/run/hostlab-agent.pid"]).stdout.strip()
    host.exec(["kill", "-KILL", pid])
    host.wait_ready(agent_starts=status["agent_starts"] + 1)
    assert host.exec(["cat", "/run/hostlab-agent.pid"]).stdout.strip() != pid
    assert host.restart()["agent_ready"]
