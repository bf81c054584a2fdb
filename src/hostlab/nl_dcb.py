"""Data center bridging of a RoCE port: priority flow control, ETS and the app table (RTM_GETDCB, RTM_SETDCB).

What ``dcb pfc`` and ``dcb app`` use: the IEEE commands of net/dcb/dcbnl.c, on a PF in Ethernet mode (mlx5 gives
dcbnl_ops to no other netdev). The settings live with the netdev, as in the driver: a reload forgets them.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass, field

from hostlab.nl_link import Device
from linkwright.kernel.netlink import codec
from linkwright.kernel.netlink.codec import Message, attr, nest, string, u8

RTM_GETDCB, RTM_SETDCB = 78, 79
TYPES = (RTM_GETDCB, RTM_SETDCB)
_IEEE_SET, _IEEE_GET, _GET_DCBX, _SET_DCBX, _IEEE_DEL = 20, 21, 22, 23, 27
_IFNAME, _IEEE, _DCBX = 1, 13, 14
_ETS, _PFC, _APP_TABLE = 1, 2, 3
_APP = 1
_DCBMSG = struct.Struct("=BBH")
_ETS_SIZE = 59  # struct ieee_ets
_PFC_HEAD = struct.Struct("=BBBxH2x")  # pfc_cap, pfc_en, mbc, delay; then 8 requests and 8 indications of 8 bytes
_PFC_SIZE = _PFC_HEAD.size + 128
_APP_ENTRY = struct.Struct("=BBH")  # selector, priority, protocol
_MODE_HOST_IEEE = 0x01 | 0x08  # DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_IEEE


@dataclass
class DcbState:
    """``pfc``: bit mask of priorities; ``apps``: (selector, priority, protocol), selector 5 is DSCP."""

    pfc: int = 0
    ets: bytes = bytes([0, 8, 0]) + bytes(_ETS_SIZE - 3)
    apps: set[tuple[int, int, int]] = field(default_factory=set)
    mode: int = _MODE_HOST_IEEE


def device_name(message: Message) -> str:
    return codec.read_string(codec.attr_map(message.body, _DCBMSG.size).get(_IFNAME, b""))


class DcbNetlink:
    """State of all ports, by the netdev it belongs to."""

    def __init__(self) -> None:
        self._states: dict[Device, DcbState] = {}

    def state(self, device: Device) -> DcbState:
        """Of this netdev; states of netdevs that are gone are dropped on the way."""
        if device not in self._states:
            self._states = {
                known: state for known, state in self._states.items() if known.fn.address != device.fn.address
            }
        return self._states.setdefault(device, DcbState())

    def answer(self, message: Message, device: Device) -> list[Message]:
        """dcb_doit for an emulated netdev."""
        if device.infiniband or not device.fn.is_pf:
            return [codec.error_message(message, errno.EOPNOTSUPP)]
        _, command, _ = _DCBMSG.unpack_from(message.body)
        fields = codec.attr_map(message.body, _DCBMSG.size)
        state = self.state(device)
        if command == _IEEE_GET:
            body = attr(_IFNAME, string(device.name)) + nest(_IEEE, *self._shown(state))
            body += attr(_DCBX, u8(state.mode))
        elif command == _GET_DCBX:
            body = attr(_DCBX, u8(state.mode))
        elif message.type != RTM_SETDCB:
            return [codec.error_message(message, errno.EOPNOTSUPP)]
        elif command in (_IEEE_SET, _IEEE_DEL):
            if _IEEE not in fields:
                return [codec.error_message(message, errno.EINVAL)]
            body = attr(_IEEE, u8(self._change(state, fields[_IEEE], command == _IEEE_DEL) & 0xFF))
        elif command == _SET_DCBX and _DCBX in fields:
            state.mode = codec.read_u8(fields[_DCBX])
            body = attr(_DCBX, u8(0))
        else:
            return [codec.error_message(message, errno.EOPNOTSUPP)]
        reply = Message(message.type, 0, _DCBMSG.pack(0, command, 0) + body, message.seq, message.pid)
        return [reply, *([codec.error_message(message, 0)] if message.flags & codec.NLM_F_ACK else [])]

    @staticmethod
    def _shown(state: DcbState) -> tuple[bytes, ...]:
        table = b"".join(attr(_APP, _APP_ENTRY.pack(*app)) for app in sorted(state.apps))
        pfc = _PFC_HEAD.pack(8, state.pfc, 0, 0) + bytes(128)
        return attr(_ETS, state.ets), attr(_PFC, pfc), nest(_APP_TABLE, table)

    @staticmethod
    def _change(state: DcbState, ieee: bytes, delete: bool) -> int:
        """0, or minus the errno: the reply carries it in the IEEE attribute, not as an error message."""
        given = codec.attr_map(ieee)
        apps = [
            _APP_ENTRY.unpack_from(value)
            for kind, value in codec.attrs(given.get(_APP_TABLE, b""))
            if kind == _APP and len(value) >= _APP_ENTRY.size
        ]
        if delete:
            if any(app not in state.apps for app in apps):
                return -errno.ENOENT
            state.apps -= set(apps)
            return 0
        for kind, size in ((_ETS, _ETS_SIZE), (_PFC, _PFC_SIZE)):
            if kind in given and len(given[kind]) < size:
                return -errno.EINVAL
        if _ETS in given:
            state.ets = bytes([given[_ETS][0], 8]) + given[_ETS][2:_ETS_SIZE]
        if _PFC in given:
            state.pfc = _PFC_HEAD.unpack_from(given[_PFC])[1]
        if any(selector == 5 and protocol > 63 for selector, _, protocol in apps):
            return -errno.EINVAL  # mlx5e_dcbnl_ieee_setapp: not a DSCP
        state.apps |= set(apps)
        return 0
