"""devlink (a generic netlink family) of emulated PFs: devices and ports, serial number, PSID and firmware.

Answers DEVLINK_CMD_GET, PORT_GET and INFO_GET, single or as a dump, and the look-up of the family's number; other
commands get EOPNOTSUPP. Layout: net/devlink/{dev,port}.c, include/uapi/linux/devlink.h; contents as mlx5 has them
(mlx5_devlink_info_get). This kernel may have the family without devices: its answers are replaced, not mixed.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping

from hostlab.machine import Machine
from hostlab.parts import FunctionState
from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import Message, attr, nest, string, u16, u32
from linkwright.model.values import LinkMode

NETLINK_GENERIC = 16
_GENL_ID_CTRL = 0x10
_CTRL_NEWFAMILY, _CTRL_GETFAMILY = 1, 3
_CTRL_FAMILY_ID, _CTRL_FAMILY_NAME, _CTRL_VERSION, _CTRL_HDRSIZE, _CTRL_MAXATTR = range(1, 6)
_GENLMSG = struct.Struct("=BBH")
_FAMILY_ID = 0x7FFF  # above every number that the kernel gives out in practice

_GET, _NEW, _PORT_GET, _PORT_NEW, _INFO_GET = 1, 3, 5, 7, 51
_BUS_NAME, _DEV_NAME, _PORT_INDEX, _PORT_TYPE = 1, 2, 3, 4
_NETDEV_IFINDEX, _NETDEV_NAME, _IBDEV_NAME, _FLAVOUR, _PORT_NUMBER = 6, 7, 8, 77, 78
_DRIVER_NAME, _SERIAL, _FIXED, _RUNNING, _STORED, _VERSION_NAME, _VERSION_VALUE = range(98, 105)
_TYPE_ETH, _TYPE_IB = 2, 3
_FLAVOUR_PHYSICAL = 0
_UPLINK = 0xFFFF  # MLX5_VPORT_UPLINK: the port index that mlx5 gives a physical port


class DevlinkNetlink:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def answer(self, message: Message) -> list[Message] | None:
        """The whole answer; None when the message is not about devlink."""
        if len(message.body) < _GENLMSG.size:
            return None
        command = message.body[0]
        fields = codec.attr_map(message.body, _GENLMSG.size)
        if message.type == _GENL_ID_CTRL:
            wanted = codec.read_string(fields.get(_CTRL_FAMILY_NAME, b""))
            if command != _CTRL_GETFAMILY or wanted != "devlink":
                return None
            return self._end(message, [self._family(message)])
        if message.type != _FAMILY_ID:
            return None
        fill = {_GET: (_NEW, self._device), _PORT_GET: (_PORT_NEW, self._port), _INFO_GET: (_INFO_GET, self._info)}
        if command not in fill:
            return [codec.error_message(message, errno.EOPNOTSUPP)]
        reply, describe = fill[command]
        dump = message.flags & codec.NLM_F_DUMP == codec.NLM_F_DUMP
        found = self._selected(fields, everything=dump)
        if not found and not dump:
            return [codec.error_message(message, errno.ENODEV)]
        flags = codec.NLM_F_MULTI if dump else 0
        return self._end(message, [self._message(message, reply, flags, describe(fn)) for fn in found])

    def _selected(self, fields: Mapping[int, bytes], everything: bool) -> list[FunctionState]:
        bound = [fn for fn in self._machine.functions() if fn.is_pf and fn.driver == "mlx5_core"]
        name = codec.read_string(fields.get(_DEV_NAME, b""))
        return bound if everything and not name else [fn for fn in bound if fn.address == name]

    @staticmethod
    def _message(request: Message, command: int, flags: int, body: bytes) -> Message:
        return Message(_FAMILY_ID, flags, _GENLMSG.pack(command, 1, 0) + body, request.seq, request.pid)

    @staticmethod
    def _family(request: Message) -> Message:
        body = _GENLMSG.pack(_CTRL_NEWFAMILY, 2, 0) + b"".join((
            attr(_CTRL_FAMILY_NAME, string("devlink")),
            attr(_CTRL_FAMILY_ID, u16(_FAMILY_ID)),
            attr(_CTRL_VERSION, u32(1)),
            attr(_CTRL_HDRSIZE, u32(0)),
            attr(_CTRL_MAXATTR, u32(_VERSION_VALUE)),
        ))  # fmt: skip
        return Message(_GENL_ID_CTRL, 0, body, request.seq, request.pid)

    @staticmethod
    def _end(request: Message, replies: list[Message]) -> list[Message]:
        if request.flags & codec.NLM_F_DUMP == codec.NLM_F_DUMP:
            done = Message(codec.NLMSG_DONE, codec.NLM_F_MULTI, b"\0\0\0\0", request.seq, request.pid)
            return [*replies, done]
        return [*replies, *([codec.error_message(request, 0)] if request.flags & codec.NLM_F_ACK else [])]

    @staticmethod
    def _device(fn: FunctionState) -> bytes:
        return attr(_BUS_NAME, string("pci")) + attr(_DEV_NAME, string(fn.address))

    def _port(self, fn: FunctionState) -> bytes:
        pieces = [self._device(fn), attr(_PORT_INDEX, u32(_UPLINK))]
        if fn.port.mode is LinkMode.INFINIBAND:
            pieces += [attr(_PORT_TYPE, u16(_TYPE_IB)), attr(_IBDEV_NAME, string(fn.rdma_name or ""))]
        else:
            pieces.append(attr(_PORT_TYPE, u16(_TYPE_ETH)))
            link = next((link for link in self._machine.netdevs.host_links() if link.function == fn.address), None)
            if link is not None:
                pieces += [attr(_NETDEV_IFINDEX, u32(link.ifindex)), attr(_NETDEV_NAME, string(link.name))]
        pieces += [attr(_FLAVOUR, u16(_FLAVOUR_PHYSICAL)), attr(_PORT_NUMBER, u32(fn.port.number - 1))]
        return b"".join(pieces)

    def _info(self, fn: FunctionState) -> bytes:
        def version(kind: int, name: str, value: str) -> bytes:
            return nest(kind, attr(_VERSION_NAME, string(name)), attr(_VERSION_VALUE, string(value)))

        persona = fn.adapter.persona
        return b"".join((
            self._device(fn),
            attr(_DRIVER_NAME, string(fn.driver or "")),
            attr(_SERIAL, string(fn.adapter.serial)),
            version(_FIXED, "fw.psid", persona.psid),
            version(_RUNNING, "fw.version", persona.firmware),
            version(_RUNNING, "fw", persona.firmware),
            version(_STORED, "fw.version", persona.firmware),
            version(_STORED, "fw", persona.firmware),
        ))  # fmt: skip
