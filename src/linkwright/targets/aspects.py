"""The steps of an attachment, each one aspect of the function: ``do`` towards the target, ``undo`` towards before.

Their order differs by direction and link layer (``order.py``).
Values from before are put back only onto the same kind of link (InfiniBand or Ethernet): a function that came
back in the other mode has new ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from linkwright.kernel.links import Link
from linkwright.model.errors import HardwareFault, Vanished
from linkwright.model.records import Before

from .scene import Netdev, Scene, spare_name


@dataclass(frozen=True)
class Wish:
    """What the interface shall be in the target. ``mac``: 6 bytes, Ethernet only. ``rdma_name``: None keeps it."""

    name: str
    alias: str
    mtu: int | None = None
    mac: str | None = None
    addresses: tuple[str, ...] = ()
    routes: tuple[dict[str, str], ...] = ()
    rdma_name: str | None = None


@dataclass(frozen=True)
class Aspect:
    """One function's aspect: where it is (``scene``), what is wanted, what was before."""

    scene: Scene
    wish: Wish
    before: Before

    def _netdev(self) -> Netdev:
        found = self.scene.netdev()
        if found is None:
            raise Vanished(
                "its netdev is in neither the host's nor the target's network namespace.",
                code="netdev-vanished",
                where=self.scene.address,
                next_step="Look: linkwright nics",
            )
        return found

    def _inside(self) -> Link:
        found = self._netdev()
        if found.place != "target":
            raise Vanished("its netdev left the target.", code="netdev-vanished", where=self.scene.address)
        return found.link

    def _home(self) -> Link:
        found = self._netdev()
        if found.place != "host":
            raise HardwareFault(
                "its netdev is still in the target's namespace.", code="netdev-not-back", where=self.scene.address
            )
        return found.link

    def _same_kind(self, link: Link) -> bool:
        return len(link.address) == len(self.before.address)


class Alias(Aspect):
    """Marks the netdev as ours, wherever it comes up."""

    name = "alias"

    def is_done(self) -> bool:
        return self._netdev().link.alias == self.wish.alias

    def do(self) -> None:
        found = self._netdev()
        self.scene.ctx.links.change(found.link.ifindex, self.scene.fd(found.place), alias=self.wish.alias)

    def is_undone(self) -> bool:
        return self._home().alias == self.before.alias

    def undo(self) -> None:
        self.scene.ctx.links.change(self._home().ifindex, alias=self.before.alias)


class Altnames(Aspect):
    """Alternative names that would clash: with the wanted name (the kernel would move the netdev and then fail to
    rename it), or with a name in the target's namespace (dev_change_net_namespace: EEXIST)."""

    name = "altnames"

    def _clashing(self, found: Netdev) -> list[str]:
        links = self.scene.ctx.links
        clashing = [name for name in found.link.altnames if name == self.wish.name]
        if found.place == "host" and self.scene.target is not None:
            inside = self.scene.target.fd
            clashing += [
                n for n in found.link.altnames if n not in clashing and links.get(name=n, netns=inside) is not None
            ]
        return clashing

    def is_done(self) -> bool:
        return not self._clashing(self._netdev())

    def do(self) -> None:
        found = self._netdev()
        self.scene.ctx.links.change(
            found.link.ifindex, self.scene.fd(found.place), del_altnames=self._clashing(found)
        )

    def is_undone(self) -> bool:
        link = self._home()
        return not self._missing(link) and not self._left(link)

    def undo(self) -> None:
        link = self._home()
        self.scene.ctx.links.change(link.ifindex, del_altnames=self._left(link), add_altnames=self._missing(link))

    def _missing(self, link: Link) -> list[str]:
        if not self._same_kind(link):
            return []
        return [n for n in self.before.altnames if n not in link.altnames and n != link.name]

    def _left(self, link: Link) -> list[str]:
        """Newer kernels keep the name given up in a rename as an alternative one."""
        return [n for n in link.altnames if n == self.wish.name and n not in self.before.altnames]


class Place(Aspect):
    """The netdev in the target's namespace, moved and renamed in one request."""

    name = "netdev"

    def is_done(self) -> bool:
        return self._netdev().place == "target"

    def do(self) -> None:
        assert self.scene.target is not None
        link = self._home()
        self._move(link, None, self.wish.name, self.scene.target.fd)

    def is_undone(self) -> bool:
        found = self.scene.netdev()
        return found is not None and found.place == "host"

    def undo(self) -> None:
        found = self.scene.netdev() or self.scene.wait_netdev()
        if found is None:
            self.scene.reprobe()
            found = self.scene.wait_netdev()
        if found is None:
            raise Vanished(
                f"its netdev did not come back within {self.scene.ctx.wait_s:.0f} s, "
                "nor after its driver was bound anew.",
                code="netdev-not-back",
                where=self.scene.address,
                next_step="Look at the driver's messages (dmesg), then: linkwright audit --repair",
            )
        if found.place == "host":
            return
        inside = self.scene.fd("target")
        name = self.before.name if self._same_kind(found.link) else None
        if name is None or self.scene.ctx.links.get(name=name) is not None:
            name = spare_name(self.scene.address)  # its name is taken in the host: come home under another first
        self._move(found.link, inside, name, self.scene.host_fd)

    def _move(self, link: Link, source: int | None, name: str, to: int) -> None:
        place: Literal["host", "target"] = "target" if source is None else "host"
        try:
            moved = self.scene.ctx.links.change(link.ifindex, source, name=name, move_to=to)
            self.scene.hint(place, moved.ifindex)
        except OSError:
            # The kernel may refuse the name after the point of no return: what counts is where the netdev is.
            found = self.scene.netdev()
            if found is None or found.place != place:
                raise


class Name(Aspect):
    """The netdev's name, for what a move did not name: a netdev made anew, or moved under its old name."""

    name = "name"

    def is_done(self) -> bool:
        return self._inside().name == self.wish.name

    def do(self) -> None:
        self._rename(self._netdev(), self.wish.name)

    def is_undone(self) -> bool:
        link = self._home()
        return not self._same_kind(link) or link.name == self.before.name

    def undo(self) -> None:
        link = self._home()
        if link.name == self.before.name:
            return
        other = self.scene.ctx.links.get(name=self.before.name)
        if other is not None and other.ifindex != link.ifindex:
            raise HardwareFault(
                f"its name from before, {self.before.name}, is used by another device (index {other.ifindex}); "
                f"it is {link.name} now.",
                code="name-taken",
                where=self.scene.address,
                next_step=f"Rename that device (ip link set {self.before.name} name NEW), then: "
                "linkwright audit --repair",
            )
        self._rename(Netdev("host", link), self.before.name)

    def _rename(self, found: Netdev, name: str) -> None:
        links, fd = self.scene.ctx.links, self.scene.fd(found.place)
        if found.link.up:
            links.change(found.link.ifindex, fd, up=False)  # Linux before 6.2 renames only links that are down
        own = [n for n in found.link.altnames if n == name]
        links.change(found.link.ifindex, fd, name=name, del_altnames=own)


class Mtu(Aspect):
    name = "mtu"

    def is_done(self) -> bool:
        return self.wish.mtu is None or self._inside().mtu == self.wish.mtu

    def do(self) -> None:
        self.scene.ctx.links.change(self._inside().ifindex, self.scene.fd("target"), mtu=self.wish.mtu)

    def is_undone(self) -> bool:
        link = self._home()
        return not self._same_kind(link) or link.mtu == self.before.mtu

    def undo(self) -> None:
        self.scene.ctx.links.change(self._home().ifindex, mtu=self.before.mtu)


class Mac(Aspect):
    """Ethernet only: an IPoIB address is the port's GUID and a queue pair number, and cannot be set."""

    name = "mac"

    def is_done(self) -> bool:
        found = self._netdev()
        return self.wish.mac is None or found.infiniband or self._inside().address == self.wish.mac

    def do(self) -> None:
        self.scene.ctx.links.change(self._inside().ifindex, self.scene.fd("target"), address=self.wish.mac)

    def is_undone(self) -> bool:
        found = Netdev("host", self._home())
        return found.infiniband or not self._same_kind(found.link) or found.link.address == self.before.address

    def undo(self) -> None:
        self.scene.ctx.links.change(self._home().ifindex, address=self.before.address)


class Up(Aspect):
    name = "up"

    def is_done(self) -> bool:
        return self._inside().up

    def do(self) -> None:
        self.scene.ctx.links.change(self._inside().ifindex, self.scene.fd("target"), up=True)

    def is_undone(self) -> bool:
        return self._home().up == self.before.up

    def undo(self) -> None:
        self.scene.ctx.links.change(self._home().ifindex, up=self.before.up)
