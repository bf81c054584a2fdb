"""One function and the two network namespaces it can be in: where its netdev and RDMA device are right now.

A function is recognised by its PCI address (the netdev's parent), because name, index and, in InfiniBand mode,
the netdev itself change on the way between namespaces. Nothing is remembered but a hint where to look first; every
answer comes from the kernel.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from linkwright.kernel import netns, sriov
from linkwright.kernel.links import Link
from linkwright.kernel.netlink.constants import ARPHRD_INFINIBAND
from linkwright.kernel.rdma import RdmaLink
from linkwright.model.errors import LinkwrightError, Refused, Vanished
from linkwright.model.plan import TargetState
from linkwright.model.values import PciAddress, guid

from .context import Context

log = logging.getLogger(__name__)

_T = TypeVar("_T")
Place = Literal["host", "target"]
_LOOK_AGAIN_S = 0.25  # while waiting: RDMA devices and drivers tell nothing on older kernels


def spare_name(address: str) -> str:
    """A netdev's name for the way home when its own is taken: made of its PCI address, so nobody else has it."""
    return "lw" + "".join(c for c in address if c.isalnum())[-13:]


@dataclass(frozen=True)
class Namespace:
    """A pinned network namespace: while ``fd`` is open it lives, whatever becomes of its processes and path."""

    fd: int
    inode: int
    path: str


@dataclass(frozen=True)
class Netdev:
    place: Place
    link: Link

    @property
    def infiniband(self) -> bool:
        return self.link.link_type == ARPHRD_INFINIBAND


@dataclass(frozen=True)
class RdmaAt:
    place: Place
    device: RdmaLink


class Scene:
    """The function at ``address``, the host's namespace (ours) and the target's (None: it is gone)."""

    def __init__(self, ctx: Context, address: PciAddress, host_fd: int, target: Namespace | None) -> None:
        self.ctx = ctx
        self.address = address
        self.host_fd = host_fd
        self.target = target
        self._hint: tuple[Place, int] | None = None
        self._reprobed = False

    def fd(self, place: Place) -> int | None:
        """For the netlink layer: None is our own namespace."""
        if place == "host":
            return None
        assert self.target is not None
        return self.target.fd

    def hint(self, place: Place, ifindex: int) -> None:
        """Look there first: one request for one link instead of a list of all."""
        self._hint = (place, ifindex)

    # -- netdev

    def netdev(self) -> Netdev | None:
        """Where the function's netdev is; None: in neither namespace."""
        if self._hint is not None:
            place, ifindex = self._hint
            link = self.ctx.links.get(ifindex=ifindex, netns=self.fd(place))
            if link is not None and link.parent == self.address:
                return Netdev(place, link)
            self._hint = None
        places: tuple[Place, ...] = ("host",) if self.target is None else ("target", "host")
        for place in places:
            own = [link for link in self.ctx.links.dump(self.fd(place)) if link.parent == self.address]
            # IPoIB children (P_Keys) and representors have the same parent; the function's own came first.
            if own:
                link = min(own, key=lambda found: found.ifindex)
                self._hint = (place, link.ifindex)
                return Netdev(place, link)
        return None

    def wait_netdev(self, place: Place | None = None) -> Netdev | None:
        """Wait for the netdev (in ``place``) by link events, at most ``ctx.wait_s``; None if it does not come."""

        def there() -> Netdev | None:
            found = self.netdev()
            return found if found is not None and place in (None, found.place) else None

        return self.wait(there)

    # -- RDMA device

    def rdma(self, node_guid: str | None, names: tuple[str | None, ...]) -> RdmaAt | None:
        """The function's RDMA device: by sysfs in the host, by node GUID (else name) in the target's namespace."""
        here = self.ctx.rdma.devices()
        if (name := self.rdma_name_in_sysfs()) is not None:
            for device in here:
                if device.name == name:
                    return RdmaAt("host", device)
        if self.target is None:
            return None
        seen = {device.index for device in here}  # in the shared mode every namespace shows all
        inside = [d for d in self.ctx.rdma.devices(self.target.fd) if d.index not in seen]
        for device in inside:
            if node_guid is not None and device.node_guid == node_guid:
                return RdmaAt("target", device)
        for device in inside:
            if node_guid is None and device.name in names:
                return RdmaAt("target", device)
        return None

    def rdma_name_in_sysfs(self) -> str | None:
        """The RDMA device that sysfs shows under the function; only devices of the host's namespace are shown."""
        try:
            return next((entry.name for entry in (self._device / "infiniband").iterdir()), None)
        except OSError:
            return None

    def node_guid_in_sysfs(self) -> str | None:
        """The node GUID that the function itself shows; None if its RDMA device is not in the host's namespace."""
        try:
            text = next((self._device / "infiniband").iterdir()).joinpath("node_guid").read_text()
            return guid(text)
        except (OSError, StopIteration, ValueError):
            return None

    def wait_rdma(self, node_guid: str | None, names: tuple[str | None, ...], place: Place) -> RdmaAt | None:
        def there() -> RdmaAt | None:
            found = self.rdma(node_guid, names)
            return found if found is not None and found.place == place else None

        return self.wait(there)

    # -- the function

    @property
    def exists(self) -> bool:
        """Is the PCI function there? It goes with its VF count, with its card, with a restart."""
        return self._device.exists()

    def reprobe(self) -> None:
        """Unbind and bind the driver: the way to get back a netdev that the kernel did not return. Only once."""
        if self._reprobed or not self.exists:
            return
        self._reprobed = True
        self._hint = None
        log.warning("%s: its netdev did not come back; its driver is bound anew", self.address)
        sriov.rebind(self.ctx.system, self.address)

    @property
    def _device(self) -> Path:
        return self.ctx.system.sys / "bus/pci/devices" / self.address

    def wait(self, look: Callable[[], _T | None]) -> _T | None:
        """Call ``look`` now and after each link event until it finds something, at most ``ctx.wait_s``."""
        deadline = time.monotonic() + self.ctx.wait_s
        with contextlib.ExitStack() as stack:
            poller = select.poll()
            subscriptions = {}
            for netns_fd in [None] if self.target is None else [None, self.target.fd]:
                subscription = self.ctx.links.events(netns=netns_fd)
                stack.callback(subscription.close)
                poller.register(subscription.fileno(), select.POLLIN)
                subscriptions[subscription.fileno()] = subscription
            while (found := look()) is None and (left := deadline - time.monotonic()) > 0:
                for descriptor, _ in poller.poll(min(left, _LOOK_AGAIN_S) * 1000):
                    try:
                        subscriptions[descriptor].read()
                    except OSError:  # the other end is gone: go on without its events
                        poller.unregister(descriptor)
            return found


@contextmanager
def pinned(ctx: Context, state: TargetState) -> Iterator[Namespace]:
    """The target's namespace by descriptor, compared with the inode that was observed.

    Raises Vanished ``target-not-running``, ``netns-gone``, or ``netns-changed`` when another namespace is there by
    now; Refused ``host-network`` for the host's own.
    """
    if state.state == "host-network":
        raise _host_network(state.netns_path or state.detail)
    if state.state != "running" or (state.netns_path is None and state.pid is None):
        raise Vanished(
            f"the target does not run ({state.detail or state.state}).",
            code="target-not-running",
            next_step="Start it; it gets its interface by itself.",
        )
    path = state.netns_path or str(ctx.system.proc / str(state.pid) / "ns/net")
    with netns.open_path(path) as fd:
        inode = netns.inode(fd)
        if netns.is_own(fd):
            raise _host_network(path)
        if state.netns_inode is not None and inode != state.netns_inode:
            raise Vanished(
                "another network namespace is there than was seen a moment ago: the target was restarted.",
                code="netns-changed",
                where=path,
                next_step="It is attached to the new one by itself.",
            )
        yield Namespace(fd, inode, path)


@contextmanager
def pinned_again(ctx: Context, path: str | None, inode: int | None) -> Iterator[Namespace | None]:
    """The namespace of a stored attachment, if it still lives: by its path, else by a process that is in it."""
    fd = None if inode is None else _reopen(ctx.system.proc, path, inode)
    try:
        yield None if fd is None or inode is None else Namespace(fd, inode, path or "")
    finally:
        if fd is not None:
            os.close(fd)


def _reopen(proc: Path, path: str | None, inode: int) -> int | None:
    places: Iterator[str | Path] = (entry / "ns/net" for entry in proc.iterdir() if entry.name.isdigit())
    for place in ([path] if path else []), places:
        for candidate in place:
            if netns.inode_of_path(candidate) != inode:
                continue
            try:
                fd = netns.open_fd(candidate)
            except LinkwrightError:
                continue  # it ended in between
            if netns.inode(fd) == inode and not netns.is_own(fd):
                return fd
            os.close(fd)
    return None


@contextmanager
def host_fd(ctx: Context) -> Iterator[int]:
    """Our own namespace as a descriptor, to move things home."""
    with netns.open_path(ctx.system.proc / "thread-self/ns/net") as fd:
        yield fd


def _host_network(where: str) -> Refused:
    return Refused(
        "the target shares the host's own network namespace: there is nothing to move an interface into.",
        rule=1,
        code="host-network",
        where=where,
        next_step="Run the container with a network of its own (podman run --network none or bridge).",
    )
