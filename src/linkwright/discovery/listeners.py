"""Servers of this host that listen on one address: whoever takes the address away cuts them off.

From /proc/net/{tcp,udp}[6] of the host's namespace (Documentation/networking/proc_net_tcp.rst). A server that
listens on every address loses nothing with one of them, so only sockets bound to an address of their own count.
"""

from __future__ import annotations

import ipaddress
import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import processes

_LISTEN, _UNCONNECTED = "0A", "07"
_MOST_UDP = 20_000  # lines read; TCP shows its listening sockets first


@dataclass
class Listeners:
    """``sockets``: address → [(port, protocol, inode)]."""

    proc: Path
    sockets: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)

    def on(self, address: str) -> str:
        """``pid 812 (sshd) listens on port 22``; empty when nobody listens on this very address. Processes are
        looked for only when somebody does."""
        found = self.sockets.get(str(ipaddress.ip_address(address.partition("%")[0])))
        if not found:
            return ""
        port, protocol, inode = found[0]
        pids = processes.users_of(self.proc, {f"socket:[{inode}]"}).get(f"socket:[{inode}]", ())
        who = processes.process(self.proc, min(pids)) if pids else "a process"
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        return f"{who} listens on {'' if protocol == 'tcp' else 'UDP '}port {port}{more}"


def read(proc: Path) -> Listeners:
    """What listens now. Nothing when /proc cannot be read."""
    found = Listeners(proc)
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for address, port, inode in _sockets(proc / "self/net" / name, name.rstrip("6")):
            found.sockets.setdefault(address, []).append((port, name.rstrip("6"), inode))
    return found


def _sockets(path: Path, protocol: str) -> Iterator[tuple[str, int, str]]:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            for line in itertools.islice(file, 1, _MOST_UDP):
                words = line.split()
                if len(words) < 10 or words[3] != (_LISTEN if protocol == "tcp" else _UNCONNECTED):
                    if protocol == "tcp":
                        return
                    continue
                host, _, port = words[1].partition(":")
                address = _address(host)
                if not address.is_unspecified and not address.is_loopback and not address.is_multicast:
                    yield str(address), int(port, 16), words[9]
    except (OSError, ValueError):
        return


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Words of 32 bits in the host's order: little-endian on the machines that there are."""
    raw = bytes.fromhex(text)
    words = struct.unpack(f">{len(raw) // 4}I", raw)
    packed = struct.pack(f"<{len(words)}I", *words)
    if len(packed) == 4:
        return ipaddress.IPv4Address(packed)
    found = ipaddress.IPv6Address(packed)
    return found.ipv4_mapped or found
