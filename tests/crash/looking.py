"""Everything of an emulated host that must be the same after an interruption, read from outside.

Links and RDMA devices of the host's and each container's namespace come from the netlink server; what the agent
remembers and reads from the cards comes from its API. Nothing is run inside the host, so a look takes some
milliseconds and changes nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hostlab.lab import Host
from linkwright.cli.api import Agent
from linkwright.kernel.links import Link, Links
from linkwright.kernel.netlink.transport import SocketTransport
from linkwright.kernel.rdma import Rdma

KERNEL = 2  # RTPROT_KERNEL: routes that an address brings


def agent_of(host: Host) -> Agent:
    """The agent's API, reached from outside the host."""
    pid = host.status()["init_pid"]
    return Agent(Path(f"/proc/{pid}/root/run/linkwright/agent.sock"), timeout_s=120.0)


def containers(names: tuple[str, ...]) -> dict[str, int]:
    """Name → the pid (on this machine) of each container's own process; its host name tells which it is."""
    wanted = {f"HOSTNAME={name}".encode(): name for name in names}
    found: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for word in words:
            if word in wanted:
                found[wanted[word]] = min(int(entry.name), found.get(wanted[word], 1 << 30))
    return found


class Look:
    """Reads one host. ``names``: the host names of its containers."""

    def __init__(self, host: Host, names: tuple[str, ...]) -> None:
        self.host = host
        self.names = names
        transport = SocketTransport(str(host.dirs.inside / "netlink.sock"))
        self.links, self.rdma = Links(transport), Rdma(transport)

    def state(self, agent: Agent) -> dict[str, Any]:
        """A flat dictionary, comparable between runs: without what differs by chance (indexes, queue pairs)."""
        seen: dict[str, Any] = {}
        places = {"host": int(self.host.status()["init_pid"])} | containers(self.names)
        for place, pid in places.items():
            seen |= {f"{place}: {what}": value for what, value in self._namespace(pid).items()}
        status, inventory = agent.get("/v1/status"), agent.get("/v1/nics")["inventory"]
        for target in status["targets"]:
            for each in target["interfaces"]:
                name = f"{target['name']} {each['name']}"
                seen[f"record: {name}"] = (
                    each["state"],
                    each["port"],
                    each["vf_index"],
                    each["mode"],
                    each["reason"],
                )
        for change in status["changes"]:
            seen[f"change: {change['policy']}"] = (
                change["wanted"], change["phase"], change["activations"], change["reason_code"],
            )  # fmt: skip
        for adapter in inventory["adapters"]:
            seen[f"card: {adapter['id']}"] = (
                adapter["sriov_enabled_next"],
                adapter["num_vfs_next"],
                adapter["faults"],
            )
            for port in adapter["ports"]:
                seen[f"port: {port['id']}"] = tuple(
                    port[f] for f in ("next_mode", "current_mode", "observed_mode", "num_vfs", "total_vfs", "link")
                )
                for function in (port["pf"], *port["vfs"]):
                    held = [(h["kind"], h["target"], h["ours"]) for h in function["holders"]]
                    seen[f"function: {function['address']}"] = (function["vf_index"], function["driver"], held)
        seen["problems"] = sorted((p["code"], p["subject"]) for p in status["problems"] if p["severity"] != "note")
        seen["journal"] = sorted(f"{o['kind']} {o['subject']}" for o in status["journal"])
        seen["approvals asked"] = len(status["approvals"])
        return seen

    def _namespace(self, pid: int) -> dict[str, Any]:
        netns = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        try:
            links = self.links.dump(netns)
            addresses, routes = self.links.addresses(netns=netns), self.links.routes(netns)
            names = {link.ifindex: link.name for link in links}
            found: dict[str, Any] = {f"link {link.name}": _link(link) for link in links}
            found["addresses"] = sorted(f"{names[a.ifindex]} {a.text}" for a in addresses if not a.link_local)
            found["routes"] = sorted(
                f"{r.to} {r.via} {names.get(r.ifindex)}" for r in routes if r.protocol != KERNEL
            )
            found["rdma"] = sorted((d.name, d.node_guid) for d in self.rdma.devices(netns))
            return found
        finally:
            os.close(netns)


def _link(link: Link) -> tuple[Any, ...]:
    # The first 4 of an IPoIB address's 20 bytes are flags and the queue pair, new with each netdev (RFC 4391).
    address = link.address[12:] if len(link.address) > 17 else link.address
    return (link.parent, link.link_type, address, link.mtu, link.up, link.alias, sorted(link.altnames))


def differences(wanted: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """What is not as in the undisturbed run, a line each."""
    return [
        f"{key}: {wanted.get(key, 'absent')} → {got.get(key, 'absent')}"
        for key in sorted(wanted.keys() | got.keys())
        if wanted.get(key, "absent") != got.get(key, "absent")
    ]


def interlock(look: Look) -> list[str]:
    """Rule 1 as the kernel shows it at any moment: a port gives its PF or VFs, a function is in one place.

    Namespaces are looked into one after the other, so a move in between shows twice: what counts shows again.
    """
    broken = set(_interlock(look))
    for _ in range(2):
        broken &= set(_interlock(look)) if broken else broken
    return sorted(broken)


def _interlock(look: Look) -> list[str]:
    places = {"host": int(look.host.status()["init_pid"])} | containers(look.names)
    found: dict[str, list[str]] = {}
    for place, pid in places.items():
        try:
            netns = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        except FileNotFoundError:
            continue  # it ended in between
        try:
            for link in look.links.dump(netns):
                if link.parent:
                    found.setdefault(link.parent, []).append(place)
        finally:
            os.close(netns)
    broken = [f"{function} is in {' and '.join(where)}" for function, where in found.items() if len(where) > 1]
    given = {function for function, where in found.items() if where != ["host"]}
    pfs = {function for function in given if function.endswith(".0")}
    if pfs and given - pfs:
        broken.append(f"PF and VFs are given: {sorted(given)}")
    return broken
