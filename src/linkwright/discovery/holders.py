"""Who holds each function, from the kernel; our own records only put a name to what the kernel shows.

A function whose netdev is in the host's namespace is free, unless the host uses it (addresses, routes, uppers,
RDMA). One whose netdev is elsewhere is held by whoever is in that namespace. One bound to vfio is kept for a guest
even while none runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from linkwright.kernel import netns, sysfs
from linkwright.kernel.links import Link, Links
from linkwright.kernel.rdma import Rdma, RdmaLink
from linkwright.kernel.system import System
from linkwright.model.errors import LinkwrightError
from linkwright.model.inventory import Holder
from linkwright.model.records import Attachment, AttachmentState

from . import processes
from .functions import RawFunction
from .netdevs import HostNetdevs
from .processes import Namespace

_IN_USE = (
    AttachmentState.ATTACHING,
    AttachmentState.ATTACHED,
    AttachmentState.DETACHING,
    AttachmentState.QUARANTINED,
)


@dataclass
class Held:
    """Holders and, for functions out of sight, the link that was found; by PCI address."""

    holders: dict[str, tuple[Holder, ...]] = field(default_factory=dict)
    elsewhere: dict[str, Link] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def out_of_sight(function: RawFunction) -> bool:
    """Bound to a net driver, and the netdev is not in our namespace."""
    return function.driver is not None and function.net == ()


def find(
    system: System,
    functions: list[RawFunction],
    netdevs: HostNetdevs,
    records: dict[str, Attachment],
    kept: Collection[str] = (),
) -> Held:
    """``records``: the attachment of each function that has one, by PCI address. ``kept``: functions that are a
    target's even while their netdev is on the host, between two containers or before the first."""
    held = Held()
    found: dict[str, list[Holder]] = {f.address: [] for f in functions}
    for function in functions:
        for name in function.net or ():
            found[function.address] += netdevs.holders(name, between=function.address in kept)
    if system.captured:
        for function in filter(out_of_sight, functions):
            detail = "a network namespace (in the capture nobody can tell which)"
            found[function.address].append(Holder(kind="netns", detail=detail))
    else:
        _namespaces(system, functions, records, held, found)
        _vfio(system, functions, found)
        _rdma(system, functions, records, held, found)
    held.holders = {address: tuple(each) for address, each in found.items()}
    return held


def _namespaces(
    system: System,
    functions: list[RawFunction],
    records: dict[str, Attachment],
    held: Held,
    found: dict[str, list[Holder]],
) -> None:
    missing = {f.address: f for f in functions if out_of_sight(f)}
    if not missing:
        return
    known = {r.netns_inode for r in records.values() if r.netns_inode is not None}
    places: dict[str, Namespace] = {}
    for namespace in processes.foreign_namespaces(system, known):
        if len(places) == len(missing):
            break
        for link in _links_in(system, namespace, held):
            if link.parent in missing and link.parent not in places:
                places[link.parent] = namespace
                held.elsewhere[link.parent] = link
    for address in missing:
        found[address].append(_holder(system, records.get(address), places.get(address)))


def _links_in(system: System, namespace: Namespace, held: Held) -> list[Link]:
    try:
        with netns.open_path(namespace.path) as fd:
            return Links(system.netlink).dump(fd)
    except (LinkwrightError, OSError) as problem:
        # A name in /run/netns without its mount, a process that ended: nothing is there to look into.
        if not isinstance(problem, LinkwrightError) or problem.code not in ("netns-gone", "netns-invalid"):
            held.notes.append(f"{namespace.path} could not be looked into: {problem}")
        return []


def _holder(system: System, record: Attachment | None, place: Namespace | None) -> Holder:
    used = record is not None and record.state in _IN_USE
    if record is not None and used and (place is None or record.netns_inode in (None, place.inode)):
        return Holder(
            kind="target",
            detail=f"{record.target} {record.interface}",
            ours=True,
            target=record.target,
            pid=place.pid if place else None,
        )
    if place is None:
        return Holder(kind="netns", detail="a network namespace that no process leads to")
    return Holder(kind="netns", detail=place.describe(system.proc), pid=place.pid)


def _vfio(system: System, functions: list[RawFunction], found: dict[str, list[Holder]]) -> None:
    bound = [f for f in functions if f.driver is not None and "vfio" in f.driver]
    if not bound:
        return
    files: dict[str, list[str]] = {}
    for function in bound:
        names = [f"devices/{n}" for n in sysfs.names(f"{function.path}/vfio-dev") or ()]
        names += [function.iommu_group] if function.iommu_group else []
        files[function.address] = [f"{system.dev}/vfio/{name}" for name in names]
    users = processes.users_of(system.proc, {path for paths in files.values() for path in paths})
    for function in bound:
        pids = sorted({pid for path in files[function.address] for pid in users.get(path, ())})
        for pid in pids:
            found[function.address].append(
                Holder(kind="vfio", detail=processes.process(system.proc, pid), pid=pid)
            )
        if not pids:
            detail = f"{function.driver} (kept for a guest; no process that we can see has it open)"
            found[function.address].append(Holder(kind="vfio", detail=detail))


def _rdma(
    system: System,
    functions: list[RawFunction],
    records: dict[str, Attachment],
    held: Held,
    found: dict[str, list[Holder]],
) -> None:
    visible = {f.rdma.name: f for f in functions if f.rdma is not None}
    if not visible:
        return
    rdma = Rdma(system.netlink)
    try:
        devices: Iterable[RdmaLink] = [d for d in rdma.devices() if d.name in visible]
        for device in devices:
            function = visible[device.name]
            record = records.get(function.address)
            for user in rdma.users(device.index):
                if user.kernel is not None:
                    detail = f"kernel module {user.kernel}"
                    found[function.address].append(Holder(kind="rdma", detail=detail))
                elif user.pid is not None:
                    found[function.address] += _rdma_process(system, user.pid, record)
    except OSError as problem:
        held.notes.append(f"the users of RDMA devices could not be asked for: {problem.strerror or problem}")


def _rdma_process(system: System, pid: int, record: Attachment | None) -> list[Holder]:
    """A process with queue pairs: the host's own, or, in shared mode, one of a container, maybe of our target."""
    place = processes.netns_of(system.proc, pid)
    if place is not None and record is not None and record.netns_inode == place and record.state in _IN_USE:
        return []  # the target, which holds the function anyway
    own = place is None or place == processes.netns_of(system.proc, 1)
    detail = processes.process(system.proc, pid)
    return [Holder(kind="rdma" if own else "netns", detail=detail, pid=pid)]
