"""The documents and containers of the scenarios, and what is asked of the host again and again."""

from __future__ import annotations

import json
from typing import Any

from hostlab.real.machine import RealHost, wait_until

CARD, PLAIN = "0000:01:00.0", "0000:02:00.0"  # machine.CARDS: a ConnectX by its firmware, and an igb as it is
HOST = """\
apiVersion: linkwright.dev/v1alpha1
kind: HostConfig
spec:
  allow: {firmware: true, functions: true, reset: false, restart: true}
  linkTimeout: 300s
  subnetManagerTimeout: 300s
"""
SETTLE_S = 600.0


def policy(name: str, address: str, *, mode: str = "RoCE", functions: str = "", activation: str = "") -> str:
    return f"""---
apiVersion: linkwright.dev/v1alpha1
kind: LinkPolicy
metadata: {{name: {name}}}
spec:
  nicSelector: {{pciAddresses: ["{address}"]}}
  linkMode: {mode}
  functions: {{{functions}}}
  activation: {{{activation}}}
"""


def target(name: str, policy: str, address: str) -> str:
    return f"""---
apiVersion: linkwright.dev/v1alpha1
kind: Target
metadata: {{name: {name}}}
spec:
  container: {{runtime: podman, name: {name}}}
  policy: {policy}
  interfaces:
  - {{name: net1, addresses: ["{address}/24"]}}
"""


def container(host: RealHost, name: str) -> None:
    """A container of that name, with a restart policy, made when it is not there."""
    if host.channel.exec(["podman", "container", "exists", name], check=False).returncode == 0:
        return
    host.channel.exec(
        ["podman", "run", "--detach", "--name", name, "--network", "none", "--restart", "always",
         "--volume", "/usr:/usr:ro", "--rootfs", "/srv/busybox", "sleep", "infinity"], timeout_s=300,
    )  # fmt: skip


def inside(host: RealHost, name: str, *command: str, timeout_s: float = 120) -> str:
    """What a command in the container prints; raises when it fails."""
    return host.channel.exec(["podman", "exec", name, *command], timeout_s=timeout_s).stdout


def linkwright(host: RealHost, *arguments: str) -> Any:
    """A command with ``-o json``, as a value."""
    return json.loads(host.channel.exec(["linkwright", *arguments, "-o", "json"], timeout_s=300).stdout)


def apply(host: RealHost, text: str) -> None:
    """Hand the documents over; the agent goes on by itself."""
    host.channel.put("/root/documents.yaml", text)
    host.channel.exec(["linkwright", "apply", "--yes", "-f", "/root/documents.yaml"], check=False, timeout_s=900)


def link(host: RealHost, name: str, interface: str = "net1") -> dict[str, Any] | None:
    """The interface in the container, as ``ip -json`` tells it; None when it is not there."""
    done = host.channel.exec(
        ["podman", "exec", name, "ip", "-json", "-details", "address", "show", "dev", interface], check=False
    )
    return json.loads(done.stdout)[0] if done.returncode == 0 else None


def has_link(host: RealHost, *names: str) -> bool:
    return wait_until(lambda: all(link(host, name) for name in names), SETTLE_S)


def seats(host: RealHost, *names: str) -> dict[str, tuple[str, str]]:
    """Address of the function and MAC of net1 in each container: what must be the same after a restart."""
    found = {name: link(host, name) for name in names}
    return {name: (one["parentdev"], one["address"]) for name, one in found.items() if one}
