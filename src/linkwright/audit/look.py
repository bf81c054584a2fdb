"""What an audit looks at beyond the inventory: our marks in every namespace, and links with more detail.

Each netdev of ours carries the alias ``linkwright:target/interface`` wherever it is. All namespaces that a process
or a name leads to are looked into, one dump each: an audit is asked for by a person, not made in each pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ..discovery import processes
from ..kernel import netns
from ..kernel.links import Link, Links
from ..kernel.rdma import Rdma
from ..kernel.system import System
from ..model.errors import LinkwrightError

OURS = "linkwright:"


class Marked(Struct, frozen=True, kw_only=True):
    """A PCI function's netdev, where it is now. ``inode`` None: the host's own namespace. ``mark``: its alias if
    it is one of ours, without the prefix (``trainer-0/net1``); ``netns`` can be opened now."""

    function: str
    name: str
    ifindex: int
    address: str
    permanent_address: str = ""
    mtu: int = 0
    mark: str = ""
    altnames: tuple[str, ...] = ()
    inode: int | None = None
    netns: str = ""
    pid: int | None = None


class Seen(Struct, frozen=True, kw_only=True):
    """``rdma_elsewhere``: node GUID → namespace inode, of RDMA devices out of the host's own namespace."""

    links: tuple[Marked, ...] = ()
    rdma_elsewhere: dict[str, int] = {}

    def at_home(self, function: str | None) -> Marked | None:
        return next((m for m in self.links if m.function == function and m.inode is None), None)


def look(system: System) -> Seen:
    """One dump of links and RDMA devices for each namespace. What cannot be looked into is left out."""
    links, rdma = Links(system.netlink), Rdma(system.netlink)
    own = rdma.devices()
    found = [marked(link) for link in _functions(links.dump())]
    elsewhere: dict[str, int] = {}
    for namespace in processes.foreign_namespaces(system):
        try:
            with netns.open_path(namespace.path) as fd:
                found += [
                    marked(link, namespace.inode, namespace.path, namespace.pid)
                    for link in _functions(links.dump(fd))
                ]
                seen_by_all = {device.index for device in own}  # in shared mode every namespace shows all
                for device in rdma.devices(fd):
                    if device.index not in seen_by_all and device.node_guid:
                        elsewhere[device.node_guid] = namespace.inode
        except (LinkwrightError, OSError):
            continue  # it ended in between
    return Seen(links=tuple(found), rdma_elsewhere=elsewhere)


def _functions(links: list[Link]) -> Iterator[Link]:
    return (link for link in links if link.parent)


def marked(link: Link, inode: int | None = None, path: str = "", pid: int | None = None) -> Marked:
    """``link`` in the namespace ``inode`` (None: the host's own)."""
    return Marked(
        function=link.parent,
        name=link.name,
        ifindex=link.ifindex,
        address=link.address,
        permanent_address=link.permanent_address,
        mtu=link.mtu,
        mark=link.alias.removeprefix(OURS) if link.alias.startswith(OURS) else "",
        altnames=link.altnames,
        inode=inode,
        netns=path,
        pid=pid,
    )
