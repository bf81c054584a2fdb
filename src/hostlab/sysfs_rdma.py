"""infiniband/<device>: an RDMA device and its one port (drivers/infiniband/core/sysfs.c, mlx5's own attributes).

Shown while the device is in the host's RDMA namespace; in shared mode every namespace sees every device.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from hostlab import naming, nodes
from hostlab.devicepath import to_sys
from hostlab.machine import FunctionState, Machine
from hostlab.nodes import Attribute, Folder, Link, Node
from linkwright.model.values import LinkMode

STATES = {1: "1: DOWN", 2: "2: INIT", 3: "3: ARMED", 4: "4: ACTIVE"}
PHYSICAL_STATES = {2: "2: Polling", 3: "3: Disabled", 5: "5: LinkUp"}
ACTIVE = 4
GIDS = 16
PKEYS = 8
COUNTERS = (
    *("port_rcv_data", "port_rcv_packets", "port_xmit_data", "port_xmit_packets", "port_rcv_errors"),
    *("port_xmit_wait", "port_xmit_discards", "link_downed", "link_error_recovery", "symbol_error"),
)
HW_COUNTERS = (
    *("out_of_buffer", "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err"),
    *("np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled", "lifespan"),
)
# Link speed of a port in Mb/s: what ``rate`` says (ib_port_attr.active_speed x width).
RATES = {
    10_000: "10 Gb/sec (4X SDR)",
    25_000: "25 Gb/sec (1X EDR)",
    40_000: "40 Gb/sec (4X QDR)",
    100_000: "100 Gb/sec (4X EDR)",
    200_000: "200 Gb/sec (4X HDR)",
    400_000: "400 Gb/sec (4X NDR)",
}


def rdma_visible(machine: Machine, fn: FunctionState) -> bool:
    return not machine.rdma_exclusive or fn.rdma_netns is None


def sysfs_guid(guid: str) -> str:
    """``b83f:d203:00ab:cdee`` for ``b8:3f:d2:03:00:ab:cd:ee``."""
    digits = guid.replace(":", "")
    return ":".join(digits[at : at + 4] for at in range(0, 16, 4))


def rdma_folder(machine: Machine, fn: FunctionState) -> Folder:
    adapter, persona = fn.adapter, fn.adapter.persona
    return Folder(
        {
            "node_guid": nodes.shown(lambda: sysfs_guid(fn.node_guid)),
            "sys_image_guid": nodes.text(sysfs_guid(adapter.system_image_guid)),
            "board_id": nodes.text(persona.psid),
            "fw_ver": nodes.text(persona.firmware),
            "hca_type": nodes.text(f"MT{machine.device_id(fn)}"),
            "hw_rev": nodes.text(0),
            "node_type": nodes.text("1: CA"),
            "node_desc": nodes.text(f"{machine.name} {fn.rdma_name}"),
            "device": Link(f"../../../{fn.address}"),
            "subsystem": Link(f"../../{to_sys(fn)}class/infiniband"),
            "uevent": nodes.shown(lambda: f"NAME={fn.rdma_name}"),
            "ports": Folder({"1": _port(machine, fn)}),
        }
    )


def _port(machine: Machine, fn: FunctionState) -> Folder:
    infiniband = fn.port.mode is LinkMode.INFINIBAND

    def gid_attribute(value: Callable[[int], str | None]) -> Folder:
        """EINVAL for an empty slot, as the kernel answers."""

        def slot(index: int) -> Attribute:
            def show() -> str:
                found = value(index)
                if found is None:
                    raise nodes.error(errno.EINVAL)
                return f"{found}\n"

            return Attribute(show)

        return Folder({str(index): slot(index) for index in range(GIDS)})

    def gid_type(index: int) -> str | None:
        if _gid(fn, index) is None:
            return None
        return "IB/RoCE v1" if infiniband or index % 2 == 0 else "RoCE v2"

    def gid_netdev(index: int) -> str | None:
        return None if infiniband or _gid(fn, index) is None else machine.netdevs.host_name(fn)

    def rate() -> str:
        if machine.rdma_port(fn).state != ACTIVE:
            return RATES[10_000 if infiniband else 40_000]
        speed = fn.adapter.persona.speed_mbps
        return RATES.get(speed, f"{speed // 1000} Gb/sec (4X HDR)")

    pkeys: dict[str, Node] = {"0": nodes.text("0xffff")}
    if infiniband:
        pkeys |= {str(index): nodes.text("0x0000") for index in range(1, PKEYS)}

    def gid(index: int) -> Attribute:
        return nodes.shown(lambda: _gid(fn, index) or _NO_GID)

    return Folder(
        {
            "link_layer": nodes.text("InfiniBand" if infiniband else "Ethernet"),
            "state": nodes.shown(lambda: STATES[machine.rdma_port(fn).state]),
            "phys_state": nodes.shown(lambda: PHYSICAL_STATES[machine.rdma_port(fn).phys_state]),
            "rate": nodes.shown(rate),
            "lid": nodes.shown(lambda: f"{machine.rdma_port(fn).lid:#x}"),
            "sm_lid": nodes.shown(lambda: f"{machine.rdma_port(fn).sm_lid:#x}"),
            "lid_mask_count": nodes.text(0),
            "sm_sl": nodes.text(0),
            "cap_mask": nodes.text("0xa651e848" if infiniband else "0x00010000"),
            "has_smi": nodes.text(int(infiniband)),
            "gids": Folder({str(index): gid(index) for index in range(GIDS)}),
            "gid_attrs": Folder({"types": gid_attribute(gid_type), "ndevs": gid_attribute(gid_netdev)}),
            "pkeys": Folder(pkeys),
            "counters": Folder({name: nodes.text(0) for name in COUNTERS}),
            "hw_counters": Folder({name: nodes.text(0) for name in HW_COUNTERS}),
        }
    )


_NO_GID = ":".join(["0000"] * 8)


def _gid(fn: FunctionState, index: int) -> str | None:
    """IB: GID 0 is the default prefix and the port GUID. RoCE: the link-local address of the MAC, as v1 and
    v2."""
    if fn.port.mode is LinkMode.INFINIBAND:
        return f"fe80:0000:0000:0000:{sysfs_guid(fn.port_guid)}" if index == 0 else None
    return f"fe80:0000:0000:0000:{sysfs_guid(naming.eui64(fn.mac))}" if index < 2 else None
