"""The steps of repairs, each one function's netdev brought to where and what it would be after a start."""

from __future__ import annotations

from dataclasses import dataclass

from ..kernel import sriov
from ..kernel.netns import open_path
from ..model.errors import Refused, Vanished
from ..model.inventory import Function
from ..model.plan import Question
from ..model.values import PciAddress
from ..targets.context import Context
from ..targets.recovery import REBIND
from ..targets.scene import Scene, host_fd, spare_name
from .look import Marked, Seen, marked


@dataclass(frozen=True)
class Look:
    """What the steps know: how to act, and the look in which the findings were made."""

    ctx: Context
    question: Question
    seen: Seen

    @property
    def names(self) -> set[str]:
        """Of every declared interface."""
        return {i.name for t in self.question.desired.targets for i in t.spec.interfaces}

    def function(self, address: str) -> Function:
        for adapter in self.question.inventory.adapters:
            for port in adapter.ports:
                for function in port.functions:
                    if function.address == address:
                        return function
        raise Vanished("is not on this host any more", code="function-vanished", where=address)


def unheld(*functions: Function) -> None:
    """Raises Refused ``function-in-use`` when somebody uses one of them."""
    holder = next((h for f in functions for h in f.holders), None)
    if holder is not None:
        raise Refused(
            f"{holder.detail} uses it",
            rule=2,
            code="function-in-use",
            where=functions[0].address,
            holder=holder.detail,
            next_step="Stop it or detach it first.",
        )


@dataclass(frozen=True)
class _Repair:
    look: Look
    function: str

    @property
    def links(self) -> tuple[Marked, ...]:
        """Where its netdev is now; the audit's look says in which namespaces to look."""
        ctx, found = self.look.ctx, []
        for place in (None, *(m for m in self.look.seen.links if m.function == self.function and m.netns)):
            if place is None:
                links = ctx.links.dump()
            else:
                try:
                    with open_path(place.netns) as fd:
                        links = ctx.links.dump(fd)
                except Vanished:
                    continue
            inode, path = (place.inode, place.netns) if place else (None, "")
            found += [marked(link, inode, path) for link in links if link.parent == self.function]
        return tuple(found)

    def is_undone(self) -> bool:
        return True

    def undo(self) -> None:
        pass


class Home(_Repair):
    """The netdev back in the host's namespace, under a name that cannot be taken."""

    name = "netdev home"

    def is_done(self) -> bool:
        return all(link.inode is None for link in self.links)

    def do(self) -> None:
        ctx = self.look.ctx
        for link in self.links:
            if link.inode is not None:
                with host_fd(ctx) as home, open_path(link.netns) as fd:
                    ctx.links.change(link.ifindex, fd, name=spare_name(self.function), move_to=home)


class Renewed(_Repair):
    """Its driver bound anew: the kernel makes netdev and RDMA device as after a start, with nothing of ours."""

    @property
    def name(self) -> str:
        return f"{REBIND}{self.function}"

    def is_done(self) -> bool:
        link = next((m for m in self.links if m.inode is None), None)
        if link is None or link.mark or link.name in {spare_name(self.function), *self.look.names}:
            return False
        ctx = self.look.ctx
        with host_fd(ctx) as home:
            scene = Scene(ctx, PciAddress(self.function), home, None)
            return scene.rdma_name_in_sysfs() is not None or not self.look.seen.rdma_elsewhere

    def do(self) -> None:
        ctx = self.look.ctx
        function = self.look.function(self.function)
        if function.netdev is not None:  # what was elsewhere had a mark of ours, and was brought home
            unheld(function)
        sriov.rebind(ctx.system, self.function)
        with host_fd(ctx) as home:
            if Scene(ctx, PciAddress(self.function), home, None).wait_netdev() is None:
                raise Vanished(
                    "its netdev did not come back after its driver was bound anew.",
                    code="netdev-not-back",
                    where=self.function,
                    next_step="Look at the driver's messages (dmesg).",
                )


@dataclass(frozen=True)
class OneValue(_Repair):
    """One value of a link on the host."""

    code: str

    @property
    def name(self) -> str:
        return self.code.replace("-left", "")

    def _found(self) -> Marked:
        link = next((m for m in self.links if m.inode is None), None)
        if link is None:
            raise Vanished("its netdev is not on the host", code="netdev-vanished", where=self.function)
        return link

    def _altnames(self) -> list[str]:
        return [name for name in self._found().altnames if name in self.look.names]

    def is_done(self) -> bool:
        link = self._found()
        match self.code:
            case "altname-left":
                return not self._altnames()
            case "mac-left":
                return link.address == link.permanent_address
        return link.mtu <= 1500

    def do(self) -> None:
        link, links = self._found(), self.look.ctx.links
        match self.code:
            case "altname-left":
                links.change(link.ifindex, del_altnames=self._altnames())
            case "mac-left":
                links.change(link.ifindex, address=link.permanent_address)
            case "mtu-left":
                links.change(link.ifindex, mtu=1500)
