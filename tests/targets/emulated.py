"""An emulated host without its processes, with /sys served: the code under test runs in the host's namespace."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "hostlab"))

from netlab import in_namespace
from wire_rig import Rig, Space, rig

from hostlab.fuse import start_server
from hostlab.sysfs import SysfsTree
from linkwright.discovery.observe import observe
from linkwright.kernel.links import Links
from linkwright.kernel.rdma import Rdma
from linkwright.kernel.system import System
from linkwright.model.documents import HostConfig, Interface
from linkwright.model.inventory import Function, Inventory, Port
from linkwright.model.plan import TargetState
from linkwright.model.records import Attachment
from linkwright.model.values import PortId
from linkwright.store import Store
from linkwright.targets import container
from linkwright.targets.context import Context


@dataclass
class Emulated:
    rig: Rig
    ctx: Context

    @property
    def store(self) -> Store:
        return self.ctx.store

    def look(self) -> Inventory:
        return observe(self.ctx.system, None, HostConfig(), self.store.attachments())

    def port(self, port: str) -> Port:
        found = self.look().port(port)
        assert found is not None
        return found

    def function(self, port: str, vf: int | None = None) -> Function:
        return next(f for f in self.port(port).functions if f.vf_index == vf)

    def record(self, port: str, vf: int | None, interface: str, target: str = "trainer-0") -> Attachment:
        made = Attachment(
            target=target, interface=interface, policy="training", generation=1, port=PortId(port), vf_index=vf
        )
        return self.store.attachment(target, interface) or self.store.put_attachment(made)

    def attach(self, port: str, vf: int | None, interface: Interface, space: Space) -> Attachment:
        return container.attach(
            self.ctx, self.record(port, vf, interface.name), interface, self.function(port, vf), None, state(space)
        )

    def watch(self, watcher: object) -> None:
        self.ctx = replace(self.ctx, watch=watcher)  # type: ignore[arg-type]


def state(space: Space) -> TargetState:
    return TargetState(state="running", netns_path=f"/proc/{space.pid}/ns/net", netns_inode=space.inode)


@contextmanager
def emulated(folder: Path) -> Iterator[Emulated]:
    with rig(folder) as found:
        mount = start_server(SysfsTree(found.machine), folder / "sys")
        try:
            with in_namespace(found.host.fd):
                assert Path("/proc/self/ns/net").stat().st_ino == found.host.inode
                system = System(sys=folder / "sys", netlink=found.transport, state=folder)
                store = Store(folder / "state.db")
                rdma = Rdma(found.transport)
                yield Emulated(
                    found,
                    Context(
                        system=system, store=store, links=Links(found.transport), rdma=rdma, boot_id="boot-1",
                        host_rdma_netns=rdma.netns_mode(), wait_s=5.0,
                    ),
                )  # fmt: skip
                store.close()
        finally:
            mount.close()
