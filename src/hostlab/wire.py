"""The real network devices behind emulated functions, and where they are now.

Each bound function is a veth pair. One end is in the host, with the function's name and MAC; the other in the
supervisor's own network namespace (the "wire"), on the bridge of the port's fabric, and up only while the fabric
carries the port's mode, so that the kernel itself makes carrier, operstate and traffic. Where the host's end is
is never assumed: the wire end's IFLA_LINK and IFLA_LINK_NETNSID tell, whoever moved it. One socket
(NETLINK_LISTEN_ALL_NSID) hears of changes in the host and in every held namespace.

Locks: ``_lock`` guards everything here and is never held while the machine's is taken (the machine calls
``create`` under its own). Nothing done under it can need the sysfs server.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from hostlab import veth
from hostlab.linkview import HostLinks
from hostlab.machine import Machine
from hostlab.meddler import Meddler
from hostlab.namespaces import Namespace, Watcher, namespaces_of_host, search
from hostlab.nl_kernel import EventSocket, KernelSocket
from hostlab.nl_link import MTU_DEFAULT, Device, octets
from hostlab.parts import NO_MAC, FunctionState, LinkInfo
from hostlab.places import Places
from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import Message
from linkwright.model.values import LinkMode

_NAME_MAX = 15  # IFNAMSIZ - 1


class Wire:
    """``machine.Netdevs``. ``fabrics``: their names, one bridge each. ``linger_s``: see ``namespaces.Watcher``.

    ``start`` after the host's network namespace exists and before ``Machine.boot``; ``stop`` after its processes
    are gone, without the machine's lock. It can be started again for the host's next life.
    """

    def __init__(self, machine: Machine, fabrics: Iterable[str], *, linger_s: float = 0.05) -> None:
        self._machine = machine
        self._fabrics = list(fabrics)
        self._linger_s = linger_s
        self._lock = threading.RLock()
        self._running = False
        self._meddler: Meddler | None = None
        self._serial = itertools.count(1)
        self._qpns = itertools.count(0x1029, 0x13)
        self._clear()

    def _clear(self) -> None:
        self._devices: dict[str, Device] = {}  # by PCI address
        self._by_peer: dict[int, Device] = {}
        self._links = HostLinks(self._ask_host)
        self._bridges: dict[str, int] = {}

    # --- life

    def start(self, host_netns: int, host_pid1: int) -> None:
        """``host_netns``: descriptor of the host's namespace (it stays the caller's); ``host_pid1``: its init as
        the supervisor sees it. The calling thread must be in the wire's namespace."""
        with self._lock:
            self._clear()
            self._host_pid1 = host_pid1
            self._sock = KernelSocket()
            self._events = EventSocket()
            self._watcher = Watcher(host_pid1, self._linger_s)
            self._watcher.on_readable(self._events.fileno(), self.sync)
            self.host = Namespace(host_netns, veth.give_nsid(self._sock, host_netns))
            self._places = Places(self._sock, self.host, self._watcher, self._bring_home)
            self._host_sock = KernelSocket(netns=host_netns)
            for number, fabric in enumerate(self._fabrics):
                self._bridges[fabric] = veth.make_bridge(self._sock, f"fabric{number}")
            self._running = True
            self._resync()
            self._watcher.start()

    def stop(self) -> None:
        """Every netdev and bridge of this life goes, wherever it is. Nothing if it does not run."""
        with self._lock:
            if not self._running:
                return
            self._running = False
        self.meddle(0.0, on=False)
        self._watcher.stop()
        with self._lock:
            for peer in self._by_peer:
                veth.delete(self._sock, peer)
            for bridge in self._bridges.values():
                veth.delete(self._sock, bridge)
            self._places.close()
            for sock in (self._sock, self._host_sock, self._events):
                sock.close()
            self._clear()

    # --- Netdevs: for the machine, under its lock

    def create(self, fn: FunctionState) -> None:
        """See ``parts.Netdevs``. A taken or too long name leaves it with the kernel's (``ib0``, ``eth0``), as a
        failed rename by udev does."""
        with self._lock:
            if self._running:
                mode = fn.port.mode
                fallback = "ib%d" if mode is LinkMode.INFINIBAND else "eth%d"
                self._make(fn, mode, next(self._qpns), [fn.netdev_name or fallback, fallback])

    def destroy(self, fn: FunctionState) -> None:
        with self._lock:
            device = self._devices.pop(fn.address, None)
            if device is None:
                return
            del self._by_peer[device.peer]
            self._places.put(device, None)
            veth.delete(self._sock, device.peer)
            self._tidy()

    def rehome(self, fn: FunctionState) -> None:
        with self._lock:
            if fn.address in self._devices:
                self.destroy(fn)
                self.create(fn)

    # --- Netdevs: for readers, without the machine's lock

    def host_name(self, fn: FunctionState) -> str | None:
        with self._lock:
            self.sync()
            device = self._devices.get(fn.address)
            return device.name if device is not None and device.space is self.host else None

    def host_links(self) -> list[LinkInfo]:
        with self._lock:
            self.sync()
            return self._links.all()

    def carrier(self, fn: FunctionState) -> bool:
        """Asked from the wire end: a veth's ends have carrier when both are up, wherever the other one is."""
        with self._lock:
            device = self._devices.get(fn.address)
            found = veth.get(self._sock, ifindex=device.peer) if device is not None else None
            return found is not None and veth.link_attrs(found).get(veth.IFLA_CARRIER) == b"\1"

    # --- for the netlink server and the supervisor

    def refresh(self, fn: FunctionState | None = None) -> None:
        """Plug fn's wire end (None: everyone's) as fabric, mode, faults and VF link state want it now."""
        with self._lock:
            for device in [d for d in self._devices.values() if fn is None or d.fn is fn]:
                self._plug(device)

    def look_again(self, inode: int, ifindex: int) -> None:
        """The kernel sends no event for a new alias while a link is down (netdev_state_change)."""
        with self._lock:
            if self._running and inode == self.host.inode:
                self.sync()
                found = self._ask_host(ifindex)
                if found is not None:
                    self._take_in(found, self.host, self._places.at(inode, ifindex))

    def meddle(self, delay_s: float, *, on: bool) -> None:
        """Fault: see ``meddler.Meddler``. For this life of the host."""
        with self._lock:
            if self._meddler is not None:
                self._meddler.stop()
                self._meddler = None
            if on and self._running:
                self._meddler = Meddler(self.host.fd, delay_s)

    def device_of(self, fn: FunctionState) -> Device | None:
        with self._lock:
            self.sync()
            return self._devices.get(fn.address)

    def device_at(self, inode: int, ifindex: int) -> Device | None:
        """The emulated netdev that has this index in this namespace now."""
        with self._lock:
            self.sync()
            return self._places.at(inode, ifindex)

    def device_seen(self, inode: int, ifindex: int) -> Device | None:
        """The same for a message that may be older: also one that has left or is gone."""
        with self._lock:
            self.sync()
            return self._places.seen(inode, ifindex)

    @contextmanager
    def holding(self, netns: int) -> Iterator[Namespace]:
        """Hold the namespace while something moves into it; afterwards it stays held if something did."""
        with self._lock:
            space = self._places.hold(netns)
            self._places.pin(space)
        try:
            yield space
        finally:
            with self._lock:
                self._places.unpin(space)
                if self._running:
                    self.sync()
                    self._tidy()

    def other_namespaces(self) -> bool:
        """Has the host any network namespace beside its own?"""
        return bool((namespaces_of_host(self._host_pid1) | self._places.spaces.keys()) - {self.host.inode})

    # --- devices

    def _make(self, fn: FunctionState, mode: LinkMode, qpn: int, names: list[str]) -> None:
        mac = octets(fn.mac) if mode is LinkMode.ROCE and fn.mac != NO_MAC else None
        pair = None
        for name in names:
            if len(name) > _NAME_MAX:  # udev's rename fails on a name that is too long
                continue
            with suppress(FileExistsError):
                wire_name = f"wire{next(self._serial)}"
                pair = veth.make_pair(self._sock, wire_name, self.host.fd, name, MTU_DEFAULT[mode], mac)
                break
        if pair is None:
            raise FileExistsError(errno.EEXIST, f"no free name for the netdev of {fn.address} among {names}")
        device = Device(fn, mode, pair[0], None, 0, "", qpn, octets(fn.port_guid))
        made = veth.get(self._host_sock, ifindex=pair[1])
        device.name = codec.read_string(veth.link_attrs(made)[veth.IFLA_IFNAME]) if made else names[0]
        self._devices[fn.address] = self._by_peer[device.peer] = device
        self._places.put(device, self.host, pair[1])
        self._plug(device)
        self._appeared(device.name)

    def _appeared(self, name: str) -> None:
        if self._meddler is not None:
            self._meddler.appeared(name)

    def _plug(self, device: Device) -> None:
        fn = device.fn
        connected = fn.port.mode is device.mode and self._machine.carries(fn.port)
        up = connected
        if not fn.is_pf and fn.admin.link_state:
            up = fn.admin.link_state == 1  # IFLA_VF_LINK_STATE_ENABLE; 2 is DISABLE
        bridge = self._bridges.get(fn.port.fabric or "", 0) if connected else 0
        with suppress(OSError):  # gone: the event of that is on its way
            veth.connect(self._sock, device.peer, bridge, up)

    def _locate(self, device: Device) -> None:
        if not self._places.locate(device):
            self._watcher.soon(self._search)

    def _revive(self, device: Device) -> None:
        """Somebody deleted the veth, or its namespace died before the lab held it. A NIC does not vanish like
        that: it comes back as after the end of a namespace."""
        del self._by_peer[device.peer]
        self._places.put(device, None)
        names = [device.name, f"dev{device.ifindex}", "dev%d"]
        self._make(device.fn, device.mode, device.qpn, names)

    # --- namespaces

    def _tidy(self) -> None:
        rdma = {fn.rdma_netns for fn in self._machine.functions()}
        self._places.tidy(self._devices.values(), rdma)

    def _search(self) -> None:
        """Find the namespace into which somebody else moved a device. In the watcher's thread."""
        with self._lock:
            if not any(device.space is None for device in self._devices.values()):
                return
            known = set(self._places.spaces)
        for netns in search(self._host_pid1, known):
            with self._lock:
                lost = [device for device in self._devices.values() if device.space is None]
                wanted = {far[0] for device in lost if (far := veth.far_end(self._sock, device.peer))}
                if veth.nsid_of(self._sock, netns) in wanted:
                    self._places.hold(netns)
                    for device in lost:
                        self._places.locate(device)
            os.close(netns)

    def _bring_home(self, space: Namespace) -> None:
        """The last user of a namespace is gone: what the kernel's exit of it would do. RDMA devices return first
        (rdma_dev_exit_net runs before default_device_exit_net), and in IB mode take their netdevs along."""
        for fn in self._machine.functions():
            if fn.rdma_netns == space.inode:
                with suppress(OSError):
                    self._machine.move_rdma(fn, None)
        with self._lock:
            if self._places.spaces.get(space.inode) is not space or not self._running:
                return
            self.sync()
            with KernelSocket(netns=space.fd) as inside:
                for device in [d for d in self._devices.values() if d.space is space]:
                    veth.leave_namespace(inside, self._host_sock, device.ifindex, self.host.fd)
                    self._locate(device)
            self.sync()
            self._places.let_go(space)

    # --- events

    def sync(self) -> None:
        """Take in what the kernel has told so far; after it, every finished change is known."""
        with self._lock:
            for nsid, message in self._events.read() if self._running else ():
                if message.type == codec.NLMSG_OVERRUN:
                    self._resync()
                elif message.type in (veth.RTM_NEWLINK, veth.RTM_DELLINK) and message.body[0] == 0:
                    self._heard(message, nsid)

    def _heard(self, message: Message, nsid: int | None) -> None:
        ifindex = veth.index_of(message)
        gone = message.type == veth.RTM_DELLINK
        if nsid is None:
            if gone and ifindex in self._by_peer:
                self._revive(self._by_peer[ifindex])
            return
        space = self._places.by_nsid(nsid)
        if space is None:
            return
        device = self._places.at(space.inode, ifindex)
        if gone:
            if space is self.host:
                self._links.gone(ifindex)
            if device is not None:
                self._locate(device)
            return
        self._take_in(message, space, device)

    def _take_in(self, message: Message, space: Namespace, device: Device | None) -> None:
        """One RTM_NEWLINK of a namespace: a change, or somebody's arrival."""
        ifindex, fields = veth.index_of(message), veth.link_attrs(message)
        if device is None and veth.IFLA_LINK_NETNSID in fields:
            arrived = self._by_peer.get(codec.read_u32(fields.get(veth.IFLA_LINK, b"\0\0\0\0")))
            if arrived is not None:
                self._locate(arrived)
                device = self._places.at(space.inode, ifindex)
                if space is self.host:
                    self._appeared(codec.read_string(fields[veth.IFLA_IFNAME]))
        if device is None:
            self._places.taken_by_another(space, ifindex)
        else:
            device.name = codec.read_string(fields[veth.IFLA_IFNAME])
            device.up = bool(veth.IFINFO.unpack_from(message.body)[3] & veth.IFF_UP)
        if space is self.host:
            self._links.told(message, device)

    def _ask_host(self, ifindex: int) -> Message | None:
        with self._lock:
            return veth.get(self._host_sock, ifindex=ifindex) if self._running else None

    def _resync(self) -> None:
        """Events were lost (or none came yet): look at everything."""
        self._links.clear()
        for device in list(self._devices.values()):
            self._locate(device)
        for message in veth.dump(self._host_sock):
            self._take_in(message, self.host, self._places.at(self.host.inode, veth.index_of(message)))
