"""The RDMA device's two steps, and the order of all steps of an attachment.

Moving an RDMA device registers it anew. In InfiniBand mode that destroys its IPoIB netdev and makes a new one (in
the host's namespace, newer kernels: in the device's), so the RDMA device goes in first and the netdev is found
again afterwards. In RoCE mode the netdev goes in first, so that the RDMA device finds it there and builds
its GID table from its addresses. Going out, the RDMA device goes first in both modes: the netdev that counts
afterwards is the one that exists then, and a netdev that comes up triggers a scan that must see its RDMA device.
"""

from __future__ import annotations

from dataclasses import dataclass

from linkwright.kernel.links import Link
from linkwright.model.errors import Vanished
from linkwright.model.records import Before

from .addressing import Addresses, Routes
from .aspects import Alias, Altnames, Aspect, Mac, Mtu, Name, Place, Up, Wish
from .scene import RdmaAt, Scene
from .steps import Step


class _RdmaAspect(Aspect):
    def _find(self) -> RdmaAt | None:
        if self.before.rdma_name is None:
            return None
        return self.scene.rdma(self.before.rdma_guid, self._names)

    @property
    def _names(self) -> tuple[str | None, ...]:
        return (self.before.rdma_name, self.wish.rdma_name)

    def _device(self) -> RdmaAt:
        found = self._find()
        if found is None:
            raise Vanished(
                f"its RDMA device {self.before.rdma_name} is in neither the host's nor the target's namespace.",
                code="rdma-vanished",
                where=self.scene.address,
                next_step="Look: linkwright nics",
            )
        return found


class RdmaName(_RdmaAspect):
    """RDMA names are unique over all namespaces, unlike netdev names (ib_device_rename)."""

    name = "rdma name"

    def is_done(self) -> bool:
        if self.before.rdma_name is None or self.wish.rdma_name is None:
            return True
        return self._device().device.name == self.wish.rdma_name

    def do(self) -> None:
        assert self.wish.rdma_name is not None
        self._rename(self.wish.rdma_name)

    def is_undone(self) -> bool:
        return self.before.rdma_name is None or self._device().device.name == self.before.rdma_name

    def undo(self) -> None:
        assert self.before.rdma_name is not None
        self._rename(self.before.rdma_name)

    def _rename(self, name: str) -> None:
        found = self._device()
        self.scene.ctx.rdma.rename(found.device.index, name, netns=self.scene.fd(found.place))


class RdmaPlace(_RdmaAspect):
    name = "rdma device"

    def is_done(self) -> bool:
        return self.before.rdma_name is None or self._device().place == "target"

    def do(self) -> None:
        assert self.scene.target is not None
        netdev = self.scene.netdev()
        self.scene.ctx.rdma.move(self._device().device.index, self.scene.target.fd)
        if netdev is not None and netdev.infiniband and self.scene.wait_netdev() is None:
            raise Vanished(
                f"its IPoIB netdev did not come back within {self.scene.ctx.wait_s:.0f} s after its RDMA device "
                "moved.",
                code="netdev-not-back",
                where=self.scene.address,
                next_step="Check that ib_ipoib is loaded (lsmod) and look at the kernel's log (dmesg).",
            )

    def is_undone(self) -> bool:
        if self.before.rdma_name is None:
            return True
        found = self._find()
        return found is not None and found.place == "host"

    def undo(self) -> None:
        found = self._find()
        if found is not None and found.place == "target":
            assert self.scene.target is not None
            self.scene.ctx.rdma.move(found.device.index, self.scene.host_fd, netns=self.scene.target.fd)
        if self._back():
            return
        self.scene.reprobe()
        if not self._back():
            raise Vanished(
                f"its RDMA device {self.before.rdma_name} did not come back within {self.scene.ctx.wait_s:.0f} s, "
                "nor after its driver was bound anew.",
                code="rdma-not-back",
                where=self.scene.address,
                next_step="Look at the driver's messages (dmesg), then: linkwright audit --repair",
            )

    def _back(self) -> bool:
        return self.scene.wait_rdma(self.before.rdma_guid, self._names, "host") is not None


@dataclass(frozen=True)
class PfMtu:
    """A VF's MTU cannot be above its PF's. Not undone: other VFs of the port may rely on it by then."""

    scene: Scene  # the PF's
    mtu: int
    name: str = "pf mtu"

    def _pf(self) -> Link:
        found = self.scene.netdev()
        if found is None or found.place != "host":
            raise Vanished(
                "the PF's netdev is not in the host's namespace, so its MTU cannot be raised for the VF.",
                code="pf-not-here",
                where=self.scene.address,
                next_step="Look who has it: linkwright nics",
            )
        return found.link

    def is_done(self) -> bool:
        return self._pf().mtu >= self.mtu

    def do(self) -> None:
        self.scene.ctx.links.change(self._pf().ifindex, mtu=self.mtu)

    def is_undone(self) -> bool:
        return True

    def undo(self) -> None:
        pass


def order_in(scene: Scene, wish: Wish, before: Before, *, infiniband: bool, move_rdma: bool) -> list[Step]:
    """What attaching does, in order."""
    rdma: list[Step] = [RdmaName(scene, wish, before)]
    if move_rdma:
        rdma.append(RdmaPlace(scene, wish, before))
    kinds = (Alias, Altnames, Place, Name, Mac, Mtu, Up, Addresses, Routes)
    netdev: list[Step] = [kind(scene, wish, before) for kind in kinds]
    return rdma + netdev if infiniband else netdev + rdma


def order_out(scene: Scene, wish: Wish, before: Before) -> list[Step]:
    """What releasing undoes, in order; the mark that says it is ours goes when all else is back."""
    kinds = (RdmaPlace, RdmaName, Place, Name, Altnames, Mac, Mtu, Up, Alias)
    return [kind(scene, wish, before) for kind in kinds]
