"""RDMA devices over NETLINK_RDMA (drivers/infiniband/core/nldev.c): list, move, rename, who uses them.

There is no Python library for this family. A kernel without RDMA has no such family at all: then there are no
devices, the mode of namespaces is None, and nothing else is asked. An RDMA device keeps its index over moves and
renames, until its driver unbinds.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from .linkcodec import guid_text
from .netlink import codec, constants
from .netlink.codec import Message
from .netlink.constants import rdma_type
from .netlink.transport import Transport

_STATES = {0: "NOP", 1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}
_PHYS_STATES = {
    1: "Sleep",
    2: "Polling",
    3: "Disabled",
    4: "PortConfigurationTraining",
    5: "LinkUp",
    6: "LinkErrorRecovery",
    7: "Phy Test",
}
_NO_FAMILY = (errno.EPROTONOSUPPORT, errno.EOPNOTSUPP)
# Each device has queue pairs of these: management datagrams, IPoIB, the connection manager, the driver's own.
_EVERYWHERE = frozenset(
    {"ib_core", "ib_ipoib", "ib_cm", "rdma_cm", "ib_umad"}
    | {"mlx5_ib", "mlx4_ib", "bnxt_re", "irdma", "mana_ib", "hns_roce_hw_v2", "rdma_rxe", "siw"}
)


@dataclass(frozen=True)
class RdmaLink:
    """An RDMA device; from ``device()`` also its port 1. ``protocol``: ib, roce or iw. GUIDs as ``aa:bb:…``."""

    index: int
    name: str
    protocol: str = ""
    node_guid: str | None = None
    sys_image_guid: str | None = None
    firmware: str = ""
    state: str | None = None
    phys_state: str | None = None
    lid: int | None = None
    sm_lid: int | None = None
    netdev: str | None = None
    netdev_index: int | None = None


@dataclass(frozen=True)
class RdmaUser:
    """Who has queue pairs on a device: a module of the kernel (``nvme_rdma``), or a process."""

    kernel: str | None = None
    pid: int | None = None


class Rdma:
    """Typed RDMA netlink over a transport. Stateless: safe to share between threads."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def devices(self, netns: int | None = None) -> list[RdmaLink]:
        """The devices that the namespace sees, without their ports."""
        request = Message(rdma_type(constants.RDMA_NLDEV_CMD_GET), codec.NLM_F_DUMP, b"")
        try:
            return [_device(message) for message in self._request(request, netns)]
        except OSError as problem:
            if problem.errno in _NO_FAMILY:
                return []
            raise

    def device(self, which: str | int, netns: int | None = None) -> RdmaLink | None:
        """One device by name or index, with port 1; None when the namespace has none like that."""
        if isinstance(which, str):
            found = next((d for d in self.devices(netns) if d.name == which), None)
            if found is None:
                return None
            which = found.index
        index = codec.attr(constants.RDMA_NLDEV_ATTR_DEV_INDEX, codec.u32(which))
        port = codec.attr(constants.RDMA_NLDEV_ATTR_PORT_INDEX, codec.u32(1))
        try:
            first = self._request(Message(rdma_type(constants.RDMA_NLDEV_CMD_GET), 0, index), netns)
            second = self._request(Message(rdma_type(constants.RDMA_NLDEV_CMD_PORT_GET), 0, index + port), netns)
        except OSError as problem:
            if problem.errno in (errno.EINVAL, errno.ENODEV, *_NO_FAMILY):  # nldev: EINVAL for an unknown index
                return None
            raise
        return _device(first[0], second[0]) if first and second else None

    def move(self, index: int, netns_fd: int, *, netns: int | None = None) -> None:
        """Move to another namespace; needs the exclusive mode (EOPNOTSUPP else). The kernel registers the device
        anew: in InfiniBand mode its IPoIB netdev is destroyed and made again. It keeps its name, so one of that
        name there makes it fail (EEXIST). ``netns``: where it is now."""
        self._set(index, codec.attr(constants.RDMA_NLDEV_NET_NS_FD, codec.u32(netns_fd)), netns, netns_fd)

    def rename(self, index: int, name: str, *, netns: int | None = None) -> None:
        """Rename; EEXIST when the name is taken. Not together with a move: the kernel would only rename."""
        self._set(index, codec.attr(constants.RDMA_NLDEV_ATTR_DEV_NAME, codec.string(name)), netns, None)

    def netns_mode(self) -> str | None:
        """``exclusive``: a device belongs to one namespace; ``shared``: all see all. None without RDMA."""
        try:
            answers = self._request(Message(rdma_type(constants.RDMA_NLDEV_CMD_SYS_GET), 0, b""), None)
        except OSError as problem:
            if problem.errno in _NO_FAMILY:
                return None
            raise
        found = codec.attr_map(answers[0].body) if answers else {}
        mode = found.get(constants.RDMA_NLDEV_SYS_ATTR_NETNS_MODE)
        return None if mode is None else ("shared" if codec.read_u8(mode) else "exclusive")

    def set_netns_mode(self, mode: str) -> None:
        """``exclusive`` or ``shared``. The kernel refuses (EBUSY) while other network namespaces exist."""
        value = codec.u8(1 if mode == "shared" else 0)
        body = codec.attr(constants.RDMA_NLDEV_SYS_ATTR_NETNS_MODE, value)
        self._request(Message(rdma_type(constants.RDMA_NLDEV_CMD_SYS_SET), 0, body), None)

    def users(self, index: int, netns: int | None = None) -> tuple[RdmaUser, ...]:
        """All who have queue pairs on the device, each once, without the modules that every device has."""
        body = codec.attr(constants.RDMA_NLDEV_ATTR_DEV_INDEX, codec.u32(index))
        request = Message(rdma_type(constants.RDMA_NLDEV_CMD_RES_QP_GET), codec.NLM_F_DUMP, body)
        found: dict[RdmaUser, None] = {}
        for message in self._request(request, netns):
            table = codec.attr_map(message.body).get(constants.RDMA_NLDEV_ATTR_RES_QP, b"")
            for _, entry in codec.attrs(table):
                inner = codec.attr_map(entry)
                if constants.RDMA_NLDEV_ATTR_RES_KERN_NAME in inner:
                    name = codec.read_string(inner[constants.RDMA_NLDEV_ATTR_RES_KERN_NAME])
                    if name not in _EVERYWHERE:
                        found[RdmaUser(kernel=name)] = None
                elif constants.RDMA_NLDEV_ATTR_RES_PID in inner:
                    found[RdmaUser(pid=codec.read_u32(inner[constants.RDMA_NLDEV_ATTR_RES_PID]))] = None
        return tuple(found)

    def kernel_users(self, index: int, netns: int | None = None) -> tuple[str, ...]:
        """Modules of the kernel that work over the device: ``nvme_rdma``, ``rpcrdma``, ``ib_srp``."""
        return tuple(user.kernel for user in self.users(index, netns) if user.kernel is not None)

    def _set(self, index: int, change: bytes, netns: int | None, passed_fd: int | None) -> None:
        body = codec.attr(constants.RDMA_NLDEV_ATTR_DEV_INDEX, codec.u32(index)) + change
        self._request(Message(rdma_type(constants.RDMA_NLDEV_CMD_SET), 0, body), netns, passed_fd)

    def _request(self, message: Message, netns: int | None, passed_fd: int | None = None) -> list[Message]:
        data = codec.pack(message)
        return self._transport.request(constants.NETLINK_RDMA, data, netns=netns, passed_fd=passed_fd)


def _device(message: Message, port: Message | None = None) -> RdmaLink:
    found = codec.attr_map(message.body)
    found |= codec.attr_map(port.body) if port else {}

    def guid(kind: int) -> str | None:
        return guid_text(codec.read_u64(found[kind])) if kind in found else None

    def number(kind: int) -> int | None:
        return codec.read_u32(found[kind]) if kind in found else None

    def word(kind: int, words: dict[int, str]) -> str | None:
        return words.get(codec.read_u8(found[kind])) if kind in found else None

    netdev = found.get(constants.RDMA_NLDEV_ATTR_NDEV_NAME)
    return RdmaLink(
        index=codec.read_u32(found[constants.RDMA_NLDEV_ATTR_DEV_INDEX]),
        name=codec.read_string(found.get(constants.RDMA_NLDEV_ATTR_DEV_NAME, b"")),
        protocol=codec.read_string(found.get(constants.RDMA_NLDEV_ATTR_DEV_PROTOCOL, b"")),
        node_guid=guid(constants.RDMA_NLDEV_ATTR_NODE_GUID),
        sys_image_guid=guid(constants.RDMA_NLDEV_ATTR_SYS_IMAGE_GUID),
        firmware=codec.read_string(found.get(constants.RDMA_NLDEV_ATTR_FW_VERSION, b"")),
        state=word(constants.RDMA_NLDEV_ATTR_PORT_STATE, _STATES),
        phys_state=word(constants.RDMA_NLDEV_ATTR_PORT_PHYS_STATE, _PHYS_STATES),
        lid=number(constants.RDMA_NLDEV_ATTR_LID),
        sm_lid=number(constants.RDMA_NLDEV_ATTR_SM_LID),
        netdev=codec.read_string(netdev) if netdev is not None else None,
        netdev_index=number(constants.RDMA_NLDEV_ATTR_NDEV_INDEX),
    )
