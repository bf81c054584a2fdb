"""What class/net shows of the host's links, kept fresh by the kernel's events.

Listings of /sys/class/net come by the dozen for each command, so they are answered from a table. Events of the
kernel are queued before the change that caused them returns to its caller: whoever empties the queue before
looking sees every change that is over. Counters are asked from the kernel when somebody reads one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping

from hostlab.nl_link import ARPHRD_INFINIBAND, IB_BROADCAST, IFLA_IFALIAS, Device, colons
from hostlab.parts import LinkInfo
from hostlab.veth import (
    IFINFO,
    IFLA_ADDRESS,
    IFLA_BROADCAST,
    IFLA_CARRIER,
    IFLA_IFNAME,
    IFLA_MTU,
    index_of,
    link_attrs,
)
from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import Message

_IFLA_TXQLEN, _IFLA_OPERSTATE, _IFLA_STATS64 = 13, 16, 23
_OPERSTATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")  # IF_OPER_*
_VOLATILE = 0x40 | 0x10000 | 0x20000  # IFF_RUNNING, LOWER_UP, DORMANT: netlink adds them, class/net does not
_COUNTERS = tuple(  # struct rtnl_link_stats64, by the names of class/net/*/statistics
    name
    for name in """
    rx_packets tx_packets rx_bytes tx_bytes rx_errors tx_errors rx_dropped tx_dropped multicast collisions
    rx_length_errors rx_over_errors rx_crc_errors rx_frame_errors rx_fifo_errors rx_missed_errors
    tx_aborted_errors tx_carrier_errors tx_fifo_errors tx_heartbeat_errors tx_window_errors rx_compressed
    tx_compressed rx_nohandler
""".split()  # noqa: SIM905  (a list of 24 quoted words is harder to compare with the header)
)


class Counters(Mapping[str, int]):
    """A link's counters, read from the kernel at each look; zeros when it is gone."""

    def __init__(self, ask: Callable[[], Message | None]) -> None:
        self._ask = ask

    def __getitem__(self, name: str) -> int:
        position = _COUNTERS.index(name) if name in _COUNTERS else None
        if position is None:
            raise KeyError(name)
        found = self._ask()
        raw = link_attrs(found).get(_IFLA_STATS64, b"") if found is not None else b""
        return int(struct.unpack_from("=Q", raw, position * 8)[0]) if len(raw) >= position * 8 + 8 else 0

    def __iter__(self) -> Iterator[str]:
        return iter(_COUNTERS)

    def __len__(self) -> int:
        return len(_COUNTERS)


class HostLinks:
    """The table. ``ask``: RTM_GETLINK of one link of the host, by index."""

    def __init__(self, ask: Callable[[int], Message | None]) -> None:
        self._ask = ask
        self._links: dict[int, LinkInfo] = {}

    def told(self, message: Message, device: Device | None) -> None:
        """An RTM_NEWLINK; ``device`` when it is about a function."""
        ifindex = index_of(message)
        self._links[ifindex] = link_info(message, device, Counters(lambda: self._ask(ifindex)))

    def gone(self, ifindex: int) -> None:
        self._links.pop(ifindex, None)

    def all(self) -> list[LinkInfo]:
        return list(self._links.values())

    def clear(self) -> None:
        self._links.clear()


def link_info(message: Message, device: Device | None, counters: Counters) -> LinkInfo:
    """One RTM_NEWLINK of the kernel as class/net shows it; ``device`` when it belongs to a function."""
    _, kind, ifindex, flags, _ = IFINFO.unpack_from(message.body)
    fields = link_attrs(message)
    address, broadcast = fields.get(IFLA_ADDRESS, b""), fields.get(IFLA_BROADCAST, b"")
    if device is not None and device.infiniband:
        kind, address, broadcast = ARPHRD_INFINIBAND, device.ib_address, IB_BROADCAST
    state = fields.get(_IFLA_OPERSTATE, b"\0")[0]
    return LinkInfo(
        name=codec.read_string(fields.get(IFLA_IFNAME, b"")),
        ifindex=ifindex,
        link_type=kind,
        address=colons(address),
        broadcast=colons(broadcast),
        mtu=codec.read_u32(fields[IFLA_MTU]) if IFLA_MTU in fields else 0,
        flags=flags & ~_VOLATILE,
        operstate=_OPERSTATES[state] if state < len(_OPERSTATES) else "unknown",
        carrier=fields.get(IFLA_CARRIER, b"\0")[0] == 1,
        function=device.fn.address if device is not None else None,
        alias=codec.read_string(fields.get(IFLA_IFALIAS, b"")),
        tx_queue_len=codec.read_u32(fields[_IFLA_TXQLEN]) if _IFLA_TXQLEN in fields else 0,
        statistics=counters,
    )
