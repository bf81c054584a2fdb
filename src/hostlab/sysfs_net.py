"""class/net/<name>: attributes of a link of the host's namespace (net/core/net-sysfs.c).

The kernel's own numbers come with ``LinkInfo`` from the wire; what only a real card would know (port name,
speed) from the machine.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from hostlab import naming, nodes
from hostlab.devicepath import to_sys
from hostlab.machine import FunctionState, LinkInfo, Machine
from hostlab.nodes import Attribute, Folder, Link, Node
from linkwright.model.values import LinkMode

IFF_UP = 1
STATISTICS = (
    *("rx_bytes", "rx_packets", "rx_errors", "rx_dropped", "tx_bytes", "tx_packets", "tx_errors", "tx_dropped"),
    *("multicast", "collisions", "rx_crc_errors", "tx_carrier_errors"),
)


def netdev_folder(machine: Machine, name: str, fn: FunctionState | None) -> Folder:
    """``fn`` None: a link that no emulated function has (lo, a bridge)."""

    def link() -> LinkInfo:
        for found in machine.netdevs.host_links():
            if found.name == name:
                return found
        raise nodes.error(errno.ENODEV)  # it left while the file was open

    def of(value: Callable[[LinkInfo], object]) -> Attribute:
        return nodes.shown(lambda: value(link()))

    def running(value: Callable[[LinkInfo], object]) -> Attribute:
        """EINVAL while the link is administratively down."""

        def show() -> object:
            found = link()
            if not found.flags & IFF_UP:
                raise nodes.error(errno.EINVAL)
            return value(found)

        return nodes.shown(show)

    def statistic(key: str) -> Attribute:
        return of(lambda found: found.statistics.get(key, 0))

    fixed: dict[str, Node] = {
        "address": of(lambda found: found.address),
        "broadcast": of(lambda found: found.broadcast),
        "addr_len": of(lambda found: len(found.address.split(":"))),
        "mtu": of(lambda found: found.mtu),
        "type": of(lambda found: found.link_type),
        "ifindex": of(lambda found: found.ifindex),
        "iflink": of(lambda found: found.ifindex),
        "operstate": of(lambda found: found.operstate),
        "carrier": running(lambda found: int(found.carrier)),
        "flags": of(lambda found: f"{found.flags:#x}"),
        "dev_id": nodes.text("0x0"),
        "dev_port": nodes.text(0),
        "ifalias": of(lambda found: found.alias),
        "tx_queue_len": of(lambda found: found.tx_queue_len),
        "speed": running(lambda found: _speed(fn) if found.carrier else -1),
        "duplex": running(lambda found: "full" if found.carrier else "unknown"),
        "name_assign_type": nodes.text(4),
        "netdev_group": nodes.text(0),
        "link_mode": nodes.text(0),
        "phys_port_name": _port_name(fn),
        "phys_switch_id": nodes.refused(errno.EOPNOTSUPP),
        "subsystem": Link(f"../../{to_sys(fn)}class/net" if fn is not None else "../../../../class/net"),
        "uevent": Attribute(lambda: f"INTERFACE={name}\nIFINDEX={link().ifindex}\n", lambda text: None),
        "statistics": Folder({key: statistic(key) for key in STATISTICS}),
    }
    if fn is not None:
        fixed["device"] = Link(f"../../../{fn.address}")
        if fn.port.mode is LinkMode.INFINIBAND:
            fixed |= {"mode": nodes.text("datagram"), "pkey": nodes.text("0xffff"), "umcast": nodes.text(0)}
    return Folder(fixed)


def _speed(fn: FunctionState | None) -> int:
    return fn.adapter.persona.speed_mbps if fn is not None else 10_000


def _port_name(fn: FunctionState | None) -> Attribute:
    name = naming.phys_port_name(fn) if fn is not None else None
    return nodes.text(name) if name is not None else nodes.refused(errno.EOPNOTSUPP)
