"""A machine of three cards with netdevs in memory, and a way to run the vendor's tools on its served /sys."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from memory_netdevs import MemoryNetdevs

from hostlab.build import build_machine
from hostlab.fuse import FuseMount, start_server
from hostlab.machine import FunctionState, Machine
from hostlab.nodes import Attribute, Raw
from hostlab.sysfs import SysfsTree

SPEC: dict[str, Any] = {
    "name": "gpu-01",
    "fabrics": {
        "rail-0": {"linkModes": ["InfiniBand", "RoCE"], "subnetManager": True},
        "rail-1": {"linkModes": ["InfiniBand"]},
        "office": {"linkModes": ["RoCE"]},
    },
    "adapters": [
        {
            "persona": "cx6-vpi-dual",
            "address": "0000:3b:00",
            "ports": [{"fabric": "rail-0"}, {"fabric": "rail-1"}],
        },
        {"persona": "cx7-vpi-single", "address": "0000:5e:00", "ports": [{"fabric": "rail-0"}]},
        {"persona": "cx6lx-eth", "address": "0000:81:00", "ports": [{"fabric": "office"}]},
    ],
}
# mstfwreset refuses to work where lscpu says "Hypervisor vendor".
LSCPU = "#!/bin/sh\necho 'Architecture: x86_64'\n"


class Rig:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machine, self.netdevs = self._start()
        self.tree = SysfsTree(self.machine)
        self._mount: FuseMount | None = None

    def _start(self) -> tuple[Machine, MemoryNetdevs]:
        machine = build_machine(SPEC, self.folder / "state")
        netdevs = MemoryNetdevs(machine)
        machine.netdevs = netdevs
        machine.boot()
        return machine, netdevs

    def fn(self, address: str) -> FunctionState:
        found = self.machine.function(address)
        assert found is not None, address
        return found

    # --- without FUSE

    def node(self, path: str) -> Attribute | Raw:
        node = self.tree.lookup(self._resolve(path))
        assert isinstance(node, Attribute | Raw)
        return node

    def read(self, path: str) -> str:
        return self.node(path).open().read(0, 4096).decode().rstrip("\n")

    def write(self, path: str, text: str) -> None:
        self.node(path).open().write(0, text.encode())

    def names(self, path: str) -> set[str]:
        node = self.tree.lookup(self._resolve(path))
        return set(node.entries())  # type: ignore[union-attr]

    def _resolve(self, path: str) -> str:
        """Follow links as the kernel would, so that a wrong relative target shows."""
        done: list[str] = []
        todo = path.strip("/").split("/")
        while todo:
            name = todo.pop(0)
            if name in ("", "."):
                continue
            if name == "..":
                done.pop()
                continue
            node = self.tree.lookup("/" + "/".join([*done, name]))
            target = getattr(node, "target", None)
            if target is not None:
                todo[:0] = target.split("/")
            else:
                done.append(name)
        return "/" + "/".join(done)

    # --- with FUSE

    @property
    def sys(self) -> Path:
        if self._mount is None:
            self._mount = start_server(self.tree, self.folder / "sys")
            shim = self.folder / "lscpu"
            shim.write_text(LSCPU)
            shim.chmod(0o755)
        return self.folder / "sys"

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """A command that sees the emulated /sys, on the server's CPU."""
        prepare = 'mount --rbind "$1" /sys && mount --bind "$2" /usr/bin/lscpu && shift 2 && exec "$@"'
        command = ["unshare", "-m", "--propagation", "private", "sh", "-c", prepare, "sh", str(self.sys)]
        return subprocess.run(
            [*command, str(self.folder / "lscpu"), *argv],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )

    def close(self) -> None:
        self.machine.power_off()
        if self._mount is not None:
            self._mount.close()


def pin_to_one_cpu() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
