"""Where the emulated netdevs are: the namespaces that the lab holds, and who has which index in them.

A part of ``wire.Wire``, used under its lock only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from hostlab import veth
from hostlab.namespaces import Namespace, Watcher
from hostlab.nl_kernel import KernelSocket, inode_of
from hostlab.nl_link import Device

_REMEMBERED = 2048


class Places:
    """``sock``: in the wire's namespace. ``when_gone``: called in the watcher's thread when the last user of a
    held namespace is gone."""

    def __init__(
        self, sock: KernelSocket, host: Namespace, watcher: Watcher, when_gone: Callable[[Namespace], None]
    ) -> None:
        self._sock = sock
        self._watcher = watcher
        self._when_gone = when_gone
        self.host = host
        self.spaces: dict[int, Namespace] = {host.inode: host}  # by inode
        self._by_nsid: dict[int, Namespace] = {host.nsid: host}
        self._at: dict[tuple[int, int], Device] = {}  # (inode, ifindex): who is there now
        self._seen: dict[tuple[int, int], Device] = {}  # and who was, for events that are read late
        self._pins: dict[int, int] = {}

    # --- devices

    def at(self, inode: int, ifindex: int) -> Device | None:
        return self._at.get((inode, ifindex))

    def seen(self, inode: int, ifindex: int) -> Device | None:
        return self._seen.get((inode, ifindex))

    def put(self, device: Device, space: Namespace | None, ifindex: int = 0) -> None:
        """The device is there now; ``space`` None: nowhere, or where the lab cannot see."""
        if device.space is not None and self.at(device.space.inode, device.ifindex) is device:
            del self._at[device.space.inode, device.ifindex]
        device.space = space
        if space is not None:
            device.ifindex = ifindex
            self._at[space.inode, ifindex] = self._seen[space.inode, ifindex] = device
            while len(self._seen) > _REMEMBERED:
                del self._seen[next(iter(self._seen))]

    def taken_by_another(self, space: Namespace, ifindex: int) -> None:
        """A link that is none of ours has this index now."""
        self._seen.pop((space.inode, ifindex), None)

    def locate(self, device: Device) -> bool:
        """Ask the wire end where the other end is; False: in a namespace never heard of. Of a pair that is gone
        nothing is said: its own event comes."""
        far = veth.far_end(self._sock, device.peer)
        if far is None:
            return True
        self.put(device, self._by_nsid.get(far[0]), far[1])
        return device.space is not None

    # --- namespaces

    def by_nsid(self, nsid: int) -> Namespace | None:
        return self._by_nsid.get(nsid)

    def hold(self, netns: int) -> Namespace:
        """Hold the namespace of this descriptor (which stays the caller's) from now on."""
        inode = inode_of(netns)
        space = self.spaces.get(inode)
        if space is None:
            space = Namespace(netns, veth.give_nsid(self._sock, netns))
            self.spaces[inode] = self._by_nsid[space.nsid] = space
            self._watch(space)
        return space

    def _watch(self, space: Namespace) -> None:
        self._watcher.watch(space.inode, lambda: self._when_gone(space))

    def pin(self, space: Namespace) -> None:
        """Keep it although nothing is in it yet."""
        self._pins[space.inode] = self._pins.get(space.inode, 0) + 1

    def unpin(self, space: Namespace) -> None:
        self._pins[space.inode] -= 1

    def let_go(self, space: Namespace) -> None:
        """It is dead and empty; if something is about to move into it, it is watched on."""
        if self._pins.get(space.inode):
            self._watch(space)
        else:
            self._release(space)

    def tidy(self, devices: Iterable[Device], rdma: Collection[int | None]) -> None:
        """Let go of namespaces in which nothing of ours is any more. ``rdma``: inodes of those with RDMA devices
        (None stands for the host's)."""
        used = {device.space.inode for device in devices if device.space is not None}
        for inode, space in list(self.spaces.items()):
            if space is not self.host and inode not in used and inode not in rdma and not self._pins.get(inode):
                self._watcher.forget(inode)
                self._release(space)

    def _release(self, space: Namespace) -> None:
        del self.spaces[space.inode], self._by_nsid[space.nsid]
        self._pins.pop(space.inode, None)
        for key in [key for key in self._seen if key[0] == space.inode]:
            del self._seen[key]
        space.close()

    def close(self) -> None:
        for space in self.spaces.values():
            space.close()
