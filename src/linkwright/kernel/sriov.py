"""VFs and driver binding through sysfs (drivers/pci/iov.c, drivers/pci/pci-driver.c, drivers/base/bus.c).

Here is only the mechanism. Whether a function may lose its driver or its VFs is decided before, by those who
know its holders: the kernel asks nobody, and destroys a netdev silently inside the container that uses it.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from linkwright.model.errors import HardwareFault, InvalidInput, Vanished
from linkwright.model.values import PciAddress, pci_address

from . import sysfs
from .links import Links
from .netlink.transport import Subscription
from .system import System

WRITE_LIMIT_S = 120.0  # 125 VFs of a ConnectX-6 Lx took 65 s
_PROBE_LIMIT_S = 15.0
_PROBE_PER_VF_S = 1.0
_LOOK_AGAIN_S = 0.5  # a driver without a netdev tells no link event


def device(system: System, address: str) -> Path:
    """The sysfs directory of a PCI function."""
    return system.sys / "bus/pci/devices" / address


def num_vfs(system: System, pf: str) -> int:
    """VFs that exist now. Raises Vanished when the PF is gone or has no SR-IOV."""
    found = sysfs.number(device(system, pf) / "sriov_numvfs")
    if found is None:
        raise Vanished("it is gone, or has no SR-IOV (no sriov_numvfs).", code="no-sriov", where=pf)
    return found


def vf_addresses(system: System, pf: str) -> tuple[PciAddress, ...]:
    """The VFs of a PF by index. The kernel chooses their addresses, which change with the firmware's settings."""
    found: dict[int, PciAddress] = {}
    for name in sysfs.names(device(system, pf)) or ():
        index = name.removeprefix("virtfn")
        if index != name and index.isdigit() and (target := sysfs.link_name(device(system, pf) / name)):
            found[int(index)] = pci_address(target)
    return tuple(found[index] for index in sorted(found))


def set_num_vfs(
    system: System, pf: str, count: int, *, write_limit_s: float = WRITE_LIMIT_S
) -> tuple[PciAddress, ...]:
    """Make a PF have ``count`` VFs, over 0 where the kernel wants it, and wait until they can be used.

    Returns the VFs by index, each bound to its driver with its netdev there (unless drivers are not probed
    automatically, or not even the PF has a netdev). Nothing is written when the count is right already.
    Raises InvalidInput when the kernel offers fewer, Busy when a user of a VF blocks the write, Vanished,
    HardwareFault when the count does not hold or a VF gets no driver.
    """
    path = device(system, pf)
    before = num_vfs(system, pf)
    total = sysfs.number(path / "sriov_totalvfs") or 0
    if count > total:
        raise InvalidInput(
            f"{count} VFs are wanted; the kernel offers {total} (firmware: SRIOV_EN, NUM_OF_VFS).",
            code="too-many-vfs",
            where=pf,
            next_step="Plan again: the firmware's number of VFs has to be raised first, which takes a restart.",
        )
    with _events(system) as events:
        if before != count:
            if before and count:
                _write_count(system, pf, 0, write_limit_s)
            _write_count(system, pf, count, write_limit_s)
        vfs = vf_addresses(system, pf)
        if len(vfs) != count:
            raise HardwareFault(
                f"sriov_numvfs says {count}, but {len(vfs)} VFs are there.",
                code="vf-count-not-kept",
                where=pf,
                next_step="Look at the kernel log: journalctl -k -b.",
            )
        if sysfs.text(path / "sriov_drivers_autoprobe") != "0":
            _wait_bound(system, vfs, events, want_net=bool(sysfs.names(path / "net")))
    return vfs


def _write_count(system: System, pf: str, count: int, limit_s: float) -> None:
    path = device(system, pf) / "sriov_numvfs"
    sysfs.write(path, str(count), limit_s=limit_s, where=pf, doing=f"setting the number of VFs to {count}")
    if (now := num_vfs(system, pf)) != count:
        raise HardwareFault(
            f"the kernel took {count} as the number of VFs, but has {now}.",
            code="vf-count-not-kept",
            where=pf,
            next_step="Look at the kernel log: journalctl -k -b.",
        )


def driver(system: System, address: str) -> str | None:
    """The driver a function is bound to; None when to none (or the function is gone)."""
    return sysfs.link_name(device(system, address) / "driver")


def unbind(system: System, address: str, *, limit_s: float = WRITE_LIMIT_S) -> None:
    """Take the function from its driver; nothing when it has none. Blocks while a guest holds it (Busy)."""
    path = device(system, address)
    name = driver(system, address)
    if name is None:
        _require(path, address)
        return
    doing = f"unbinding {name}"
    try:
        sysfs.write(path / "driver/unbind", address, limit_s=limit_s, where=address, doing=doing)
    except Vanished:  # somebody else unbound it meanwhile, or the function is gone
        _require(path, address)
    if (now := driver(system, address)) is not None:
        raise HardwareFault(f"{doing}: it is still bound to {now}.", code="not-unbound", where=address)


def set_driver_override(system: System, address: str, name: str | None) -> None:
    """Name the only driver that may bind the function (``vfio-pci``), or lift that (None)."""
    path = device(system, address) / "driver_override"
    wanted = name or "(null)"
    if sysfs.text(path) != wanted:
        doing = f"setting driver_override to {wanted}"
        sysfs.write(path, f"{name or ''}\n", limit_s=10, where=address, doing=doing)


def bind(system: System, address: str, name: str, *, limit_s: float = WRITE_LIMIT_S) -> None:
    """Bind the function to the driver ``name``; nothing when it is bound to it already. Unbind it first."""
    if driver(system, address) == name:
        return
    path = system.sys / "bus/pci/drivers" / name / "bind"
    with _events(system) as events:
        sysfs.write(path, address, limit_s=limit_s, where=address, doing=f"binding {name}")
        _wait_bound(system, (PciAddress(address),), events, want_net=False)


def probe(system: System, address: str, *, want_net: bool = True, limit_s: float = WRITE_LIMIT_S) -> None:
    """Let the kernel choose a driver (driver_override counts) and wait for it and, if asked, for its netdev."""
    with _events(system) as events:
        if driver(system, address) is None:
            path = system.sys / "bus/pci/drivers_probe"
            try:
                sysfs.write(path, address, limit_s=limit_s, where=address, doing="probing for a driver")
            except HardwareFault as problem:
                raise _unbound(address, problem.said) from problem
        _wait_bound(system, (PciAddress(address),), events, want_net=want_net)


def rebind(system: System, address: str, *, limit_s: float = WRITE_LIMIT_S) -> None:
    """Unbind and bind the same driver: how a VF takes the MAC or GUID that its PF was told. Netdev and RDMA device
    are new afterwards, also by name and index."""
    before = driver(system, address)
    want_net = bool(sysfs.names(device(system, address) / "net"))
    unbind(system, address, limit_s=limit_s)
    if before is None:
        probe(system, address, want_net=want_net, limit_s=limit_s)
        return
    with _events(system) as events:
        path = system.sys / "bus/pci/drivers" / before / "bind"
        sysfs.write(path, address, limit_s=limit_s, where=address, doing=f"binding {before} again")
        _wait_bound(system, (PciAddress(address),), events, want_net=want_net)


def _require(path: Path, address: str) -> None:
    if not path.exists():
        raise Vanished("there is no such PCI function (any more).", code="function-gone", where=address)


def _unbound(address: str, said: str = "") -> HardwareFault:
    return HardwareFault(
        "no driver took the function" + (f": {said}." if said else "."),
        code="no-driver",
        where=address,
        said=said,
        next_step="Look at the kernel log: journalctl -k -b.",
    )


@contextlib.contextmanager
def _events(system: System) -> Iterator[Subscription | None]:
    """Link events, joined before the act so that none is missed; None where there is no netlink."""
    subscription = None
    with contextlib.suppress(OSError):
        subscription = Links(system.netlink).events()
    try:
        yield subscription
    finally:
        if subscription is not None:
            subscription.close()


def _wait_bound(
    system: System, addresses: tuple[PciAddress, ...], events: Subscription | None, *, want_net: bool
) -> None:
    """Until each function has a driver and, if wanted, a netdev. A netdev that does not come within the limit is
    accepted (InfiniBand without ib_ipoib has none); a missing driver is not."""

    def bound(address: PciAddress) -> bool:
        return driver(system, address) is not None

    def ready() -> bool:
        return all(
            bound(a) and (not want_net or bool(sysfs.names(device(system, a) / "net"))) for a in addresses
        )

    _wait(events, ready, _PROBE_LIMIT_S + _PROBE_PER_VF_S * len(addresses))
    for address in addresses:
        if not bound(address):
            _require(device(system, address), address)
            raise _unbound(address)


def _wait(events: Subscription | None, done: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    poller = select.poll()
    if events is not None:
        poller.register(events.fileno(), select.POLLIN)
    while not done():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if poller.poll(min(left, _LOOK_AGAIN_S) * 1000) and events is not None:
            try:
                events.read()
            except OSError:  # the other end is gone: go on by looking
                poller.unregister(events.fileno())
                events = None
    return True
