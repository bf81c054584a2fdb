"""RDMA netlink (NETLINK_RDMA, client NLDEV) answered from the emulated machine.

Attributes and their order, error numbers and what is left out follow drivers/infiniband/core/{nldev,device}.c as
of Linux 6.1 to 6.12; numbers from include/uapi/rdma/rdma_netlink.h. In exclusive mode a device is seen only in the
namespace it is in; in shared mode everywhere.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping

from hostlab.machine import Machine
from hostlab.nl_kernel import inode_of
from hostlab.parts import FunctionState
from hostlab.wire import Wire
from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import Message, attr, string, u8, u32, u64
from linkwright.model.values import LinkMode

NLDEV = 5
GET, SET, PORT_GET, SYS_GET, SYS_SET = 1, 2, 5, 6, 7
RES_GET, RES_QP_GET, RES_CM_ID_GET = 9, 10, 11

DEV_INDEX, DEV_NAME, PORT_INDEX, CAP_FLAGS, FW_VERSION, NODE_GUID, SYS_IMAGE_GUID = range(1, 8)
SUBNET_PREFIX, LID, SM_LID, LMC, PORT_STATE, PORT_PHYS_STATE, DEV_NODE_TYPE = range(8, 15)
RES_SUMMARY, RES_SUMMARY_ENTRY, RES_SUMMARY_ENTRY_NAME, RES_SUMMARY_ENTRY_CURR = range(15, 19)
RES_QP, RES_QP_ENTRY, RES_LQPN, RES_RQPN, RES_RQ_PSN, RES_SQ_PSN = range(19, 25)
RES_PATH_MIG_STATE, RES_TYPE, RES_STATE, RES_PID, RES_KERN_NAME = range(25, 30)
NDEV_INDEX, NDEV_NAME = 50, 51
NETNS_MODE, DEV_PROTOCOL, NET_NS_FD = 66, 67, 68
DEV_DIM, COPY_ON_FORK = 84, 93

_NODE_IB_CA = 1
_NAME_MAX = 63  # IB_DEVICE_NAME_MAX - 1
_SUBNET = 0xFE80 << 48
# IB_DEVICE_* that mlx5 reports: bad P_Key and Q_Key counters, path migration, port events, RNR, memory windows,
# XRC and so on; VFs have IB_DEVICE_VIRTUAL_FUNCTION as well.
_DEVICE_CAPS, _CAP_VIRTUAL = 0x25761C36, 1 << 33
_PORT_CAPS = 0x2651E848  # an ACTIVE ConnectX port, as ibstat prints it
_RESOURCES = ("pd", "cq", "qp", "cm_id", "mr", "ctx", "srq")
_QPT_GSI, _QPT_RC, _QPT_UD, _QPS_RTS, _MIG_MIGRATED = 1, 2, 4, 3, 0


class RdmaError(Exception):
    """An answer of NLMSG_ERROR; ``number`` is its errno."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class RdmaNetlink:
    """``kernel_users``: {PCI address: names of kernel clients with a queue pair, like ``nvme_rdma``}. The ones
    that every device has (``ib_core`` with the GSI queue pair, ``ib_ipoib`` on InfiniBand) come by themselves."""

    def __init__(self, machine: Machine, wire: Wire) -> None:
        self._machine = machine
        self._wire = wire
        self.kernel_users: dict[str, tuple[str, ...]] = {}

    def answer(self, message: Message, netns: int, passed_fd: int | None) -> Iterator[Message]:
        """The kernel's whole answer, its acknowledgement or end included. ``netns``: the asking namespace."""
        dump = message.flags & codec.NLM_F_DUMP == codec.NLM_F_DUMP
        try:
            if message.type >> 10 != NLDEV:
                raise RdmaError(errno.EINVAL)
            yield from self._dispatch(message, inode_of(netns), passed_fd, dump)
        except RdmaError as refused:
            yield codec.error_message(message, refused.number)
            return
        except OSError as refused:
            yield codec.error_message(message, refused.errno or errno.EIO)
            return
        if dump:
            yield Message(codec.NLMSG_DONE, codec.NLM_F_MULTI, b"\0\0\0\0", message.seq, message.pid)
        elif message.flags & codec.NLM_F_ACK:
            yield codec.error_message(message, 0)

    def _dispatch(self, message: Message, inode: int, passed_fd: int | None, dump: bool) -> Iterator[Message]:
        operation = message.type & 0x3FF
        given = codec.attr_map(message.body)
        if operation == SYS_GET and not dump:
            mode = attr(NETNS_MODE, u8(0 if self._machine.rdma_exclusive else 1))
            yield self._reply(message, SYS_GET, mode + attr(COPY_ON_FORK, u8(1)))
        elif operation == SYS_SET and not dump:
            self._set_system(given)
        elif operation == SET and not dump:
            self._set(self._device(given, inode), given, passed_fd)
        elif operation in (GET, RES_GET):
            devices = self._visible(inode) if dump else [self._device(given, inode)]
            fill = self._device_info if operation == GET else self._resource_summary
            yield from (self._reply(message, operation, fill(fn), dump) for fn in devices)
        elif operation == PORT_GET:
            fn = self._device(given, inode)
            if not dump and codec.read_u32(given.get(PORT_INDEX, b"\0\0\0\0")) != 1:
                raise RdmaError(errno.EINVAL)
            # nldev_port_get_doit names its reply GET, not PORT_GET; a dump names it right.
            yield self._reply(message, PORT_GET if dump else GET, self._port_info(fn, inode), dump)
        elif operation in (RES_QP_GET, RES_CM_ID_GET) and dump:
            fn = self._device(given, inode)
            if given.get(PORT_INDEX, u32(1)) != u32(1):
                raise RdmaError(errno.EINVAL)
            entries = self._queue_pairs(fn) if operation == RES_QP_GET else b""
            if entries:
                yield self._reply(message, operation, self._handle(fn) + attr(RES_QP, entries), True)
        else:
            raise RdmaError(errno.EOPNOTSUPP if operation < 64 else errno.EINVAL)

    @staticmethod
    def _reply(request: Message, operation: int, body: bytes, multi: bool = False) -> Message:
        return Message(NLDEV << 10 | operation, codec.NLM_F_MULTI if multi else 0, body, request.seq, request.pid)

    # --- devices

    def _visible(self, inode: int) -> list[FunctionState]:
        """rdma_dev_access_netns, in the order of device indexes."""
        found = [fn for fn in self._machine.functions() if fn.rdma_name]
        if self._machine.rdma_exclusive:
            host = self._wire.host.inode
            found = [fn for fn in found if (host if fn.rdma_netns is None else fn.rdma_netns) == inode]
        return sorted(found, key=lambda fn: fn.rdma_index)

    def _device(self, given: Mapping[int, bytes], inode: int) -> FunctionState:
        if DEV_INDEX not in given:
            raise RdmaError(errno.EINVAL)
        index = codec.read_u32(given[DEV_INDEX])
        fn = next((fn for fn in self._visible(inode) if fn.rdma_index == index), None)
        if fn is None:
            raise RdmaError(errno.EINVAL)
        return fn

    def _set(self, fn: FunctionState, given: Mapping[int, bytes], passed_fd: int | None) -> None:
        """nldev_set_doit does one thing: a name wins over a namespace."""
        if DEV_NAME in given:
            name = codec.read_string(given[DEV_NAME])
            if not name or len(name) > _NAME_MAX:
                raise RdmaError(errno.EINVAL)
            self._machine.rename_rdma(fn, name)
        elif NET_NS_FD in given:
            if passed_fd is None:
                raise RdmaError(errno.EBADF)
            if not self._machine.rdma_exclusive:
                raise RdmaError(errno.EOPNOTSUPP)
            target = inode_of(passed_fd)
            with self._wire.holding(passed_fd):
                self._machine.move_rdma(fn, None if target == self._wire.host.inode else target)

    def _set_system(self, given: Mapping[int, bytes]) -> None:
        """rdma_compatdev_set: refused while the host has any namespace but its own."""
        if NETNS_MODE not in given:
            raise RdmaError(errno.EINVAL)
        exclusive = codec.read_u8(given[NETNS_MODE]) == 0
        if exclusive != self._machine.rdma_exclusive:
            if self._wire.other_namespaces():
                raise RdmaError(errno.EBUSY)
            self._machine.rdma_exclusive = exclusive

    # --- what is said of a device

    @staticmethod
    def _handle(fn: FunctionState) -> bytes:
        return attr(DEV_INDEX, u32(fn.rdma_index)) + attr(DEV_NAME, string(fn.rdma_name or ""))

    def _device_info(self, fn: FunctionState) -> bytes:
        caps = _DEVICE_CAPS | (0 if fn.is_pf else _CAP_VIRTUAL)
        return b"".join((
            self._handle(fn),
            attr(PORT_INDEX, u32(1)),
            attr(CAP_FLAGS, u64(caps)),
            attr(FW_VERSION, string(fn.adapter.persona.firmware)),
            attr(NODE_GUID, u64(_number(fn.node_guid))),
            attr(SYS_IMAGE_GUID, u64(_number(fn.adapter.system_image_guid))),
            attr(DEV_NODE_TYPE, u8(_NODE_IB_CA)),
            attr(DEV_DIM, u8(1)),
            attr(DEV_PROTOCOL, string("ib" if fn.port.mode is LinkMode.INFINIBAND else "roce")),
        ))  # fmt: skip

    def _port_info(self, fn: FunctionState, inode: int) -> bytes:
        port = self._machine.rdma_port(fn)
        pieces = [self._handle(fn), attr(PORT_INDEX, u32(1))]
        if fn.port.mode is LinkMode.INFINIBAND:
            pieces += [
                attr(CAP_FLAGS, u64(_PORT_CAPS)),
                attr(SUBNET_PREFIX, u64(_SUBNET)),
                attr(LID, u32(port.lid)),
                attr(SM_LID, u32(port.sm_lid)),
                attr(LMC, u8(0)),
            ]
        pieces += [attr(PORT_STATE, u8(port.state)), attr(PORT_PHYS_STATE, u8(port.phys_state))]
        if fn.port.mode is LinkMode.ROCE:  # IPoIB is a client on top: no netdev belongs to an InfiniBand port
            device = self._wire.device_of(fn)
            if device is not None and device.space is not None and device.space.inode == inode:
                pieces += [attr(NDEV_INDEX, u32(device.ifindex)), attr(NDEV_NAME, string(device.name))]
        return b"".join(pieces)

    def _resource_summary(self, fn: FunctionState) -> bytes:
        users = len(self._users(fn))
        entries = b"".join(
            attr(
                RES_SUMMARY_ENTRY,
                attr(RES_SUMMARY_ENTRY_NAME, string(name))
                + attr(RES_SUMMARY_ENTRY_CURR, u64(users if name in ("pd", "cq", "qp") else 0)),
            )
            for name in _RESOURCES
        )
        return self._handle(fn) + attr(RES_SUMMARY, entries)

    def _users(self, fn: FunctionState) -> list[tuple[str, int, int]]:
        """(module, type of its queue pair, number of it)"""
        always = [("ib_core", _QPT_GSI, 1)]
        if fn.port.mode is LinkMode.INFINIBAND:
            always.append(("ib_ipoib", _QPT_UD, 0x1F0))
        others = self.kernel_users.get(fn.address, ())
        return always + [(name, _QPT_RC, 0x200 + number) for number, name in enumerate(others)]

    def _queue_pairs(self, fn: FunctionState) -> bytes:
        """One queue pair for each kernel user (fill_res_qp_entry)."""
        entries = []
        for name, kind, number in self._users(fn):
            pieces = [attr(PORT_INDEX, u32(1)), attr(RES_LQPN, u32(number)), attr(RES_KERN_NAME, string(name))]
            if kind == _QPT_RC:
                pieces += [attr(RES_RQPN, u32(number + 0x100)), attr(RES_RQ_PSN, u32(0))]
            pieces.append(attr(RES_SQ_PSN, u32(0)))
            if kind == _QPT_RC:
                pieces.append(attr(RES_PATH_MIG_STATE, u8(_MIG_MIGRATED)))
            pieces += [attr(RES_TYPE, u8(kind)), attr(RES_STATE, u8(_QPS_RTS))]
            entries.append(attr(RES_QP_ENTRY, b"".join(pieces)))
        return b"".join(entries)


def _number(guid: str) -> int:
    """GUIDs go out in host byte order: the text's first byte is the most significant."""
    return int(guid.replace(":", "") or "0", 16)
