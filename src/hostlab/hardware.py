"""What an emulated host's supervisor powers: the machine, its /sys, its wires and the kernel's netlink, together.

The /sys tree is served as long as the supervisor lives (an empty one while the host is off); wires and netlink
server live for one boot, because they follow the host's namespaces.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostlab import faults
from hostlab.build import build_machine
from hostlab.fuse import start_server
from hostlab.layout import HostDirs
from hostlab.netlinkd import NetlinkServer
from hostlab.sysfs import SysfsTree
from hostlab.wire import Wire
from linkwright.model.errors import LinkwrightError


class Hardware:
    """``sys``: where the emulated /sys is mounted, in the supervisor's mount namespace."""

    def __init__(self, dirs: HostDirs, spec: Mapping[str, Any]) -> None:
        self.machine = build_machine(spec, dirs.firmware)
        self.wire = Wire(self.machine, self.machine.fabrics)
        self.machine.netdevs = self.wire
        # A path of a test's temporary folder may be too long for a socket's address; by a descriptor it is short.
        self._inside = os.open(dirs.inside, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.netlink = NetlinkServer(self.machine, self.wire, Path(f"/proc/self/fd/{self._inside}/netlink.sock"))
        self.sys = dirs.mounts / "sys"
        self._mount = start_server(SysfsTree(self.machine), self.sys)
        self._on = False

    def on(self, netns: int, init_pid: int) -> None:
        """The host's namespaces are there: ``netns`` is its network, ``init_pid`` its process 1."""
        self._on = True
        self.wire.start(netns, init_pid)
        self.machine.boot()
        self.netlink.start()
        self._own_addresses(netns)

    def cut(self) -> None:
        """Power is off while the host's processes are being killed: nothing may wait in the emulated tree."""
        self.machine.power_off()

    def off(self) -> None:
        """The host's processes are gone."""
        if self._on:
            self._on = False
            self.netlink.stop()
            self.machine.power_off()
            self.wire.stop()

    def close(self) -> None:
        self.off()
        self._mount.close()
        os.close(self._inside)

    def fault(self, arguments: Mapping[str, Any]) -> None:
        faults.apply(self.machine, self.wire, arguments)

    def describe(self) -> list[dict[str, Any]]:
        """The adapters, as a person who looks at the machine sees them."""
        return [
            {
                "address": adapter.address,
                "persona": adapter.persona.name,
                "model": adapter.persona.model,
                "present": adapter.present,
                "faults": dict(adapter.firmware.faults),
                "ports": [
                    {
                        "number": port.number,
                        "fabric": port.fabric,
                        "mode": port.mode.value,
                        "vfs": len(port.vfs),
                    }
                    for port in adapter.ports
                ],
            }
            for adapter in self.machine.adapters
        ]

    def _own_addresses(self, netns: int) -> None:
        """What the host's network manager would do with the ports that the lab file gives to the host itself."""
        lines = []
        for port in (port for adapter in self.machine.adapters for port in adapter.ports if port.host):
            name = self.wire.host_name(port.pf)
            if name is None:
                continue
            lines.append(f"link set dev {name} up")
            addresses = port.host.get("addresses") or ()
            lines += [f"address add {address} dev {name}" for address in addresses]  # type: ignore[attr-defined]
            if gateway := port.host.get("defaultRoute"):
                lines.append(f"route add default via {gateway} dev {name}")
        if lines:
            done = subprocess.run(
                ["nsenter", f"--net=/proc/self/fd/{netns}", "ip", "-batch", "-"],
                input="\n".join(lines) + "\n",
                text=True,
                capture_output=True,
                pass_fds=(netns,),
                check=False,
            )
            if done.returncode != 0:
                raise LinkwrightError(
                    f"the host's own addresses cannot be set: {done.stderr.strip()}",
                    code="host-address-failed",
                    where=self.machine.name,
                    next_step="Look at `host:` of the ports in the lab's host file.",
                )
