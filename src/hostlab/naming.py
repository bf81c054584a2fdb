"""Names and numbers that a kernel and udev would give: netdevs, RDMA devices, VF addresses, MACs, GUIDs.

One scheme, following systemd's predictable names and rdma-core's ``rdma_rename`` with NAME_FALLBACK (technology
prefix + PCI path), so that names follow the link mode as on real hosts::

                      PF of a dual-port card   PF of a single-port card   VF 0 of either
    RoCE netdev       enp59s0f0np0             enp94s0np0                 enp59s0f0v0, enp94s0v0
    InfiniBand netdev ibp59s0f0                ibp94s0                    ibp59s0f0v0, ibp94s0v0
    RoCE RDMA         rocep59s0f0              rocep94s0                  rocep59s0f0v0, rocep94s0v0
    InfiniBand RDMA   ibp59s0f0                ibp94s0                    ibp59s0f0v0, ibp94s0v0

A PCI domain other than 0 adds ``P1`` before ``p``. ``np0`` is the firmware's port name (phys_port_name) of a
RoCE PF.
"""

from __future__ import annotations

import zlib

from hostlab.parts import AdapterState, FunctionState, PortState
from linkwright.model.values import LinkMode

VF_LINK_DISABLE = 2  # IFLA_VF_LINK_STATE_DISABLE, include/uapi/linux/if_link.h


def _path(fn: FunctionState) -> str:
    domain, bus, rest = fn.port.pf.address.split(":")
    device, function = rest.split(".")
    several = fn.port.neighbours > 1
    return (
        (f"P{int(domain, 16)}" if int(domain, 16) else "")
        + f"p{int(bus, 16)}s{int(device, 16)}"
        + (f"f{int(function, 16)}" if several else "")
        + ("" if fn.vf_index is None else f"v{fn.vf_index}")
    )


def phys_port_name(fn: FunctionState) -> str | None:
    """``p0`` for port 1, as mlx5 numbers them; VFs and IPoIB devices have none."""
    return f"p{fn.port.number - 1}" if fn.is_pf and fn.port.mode is LinkMode.ROCE else None


def netdev_name(fn: FunctionState) -> str:
    if fn.port.mode is LinkMode.INFINIBAND:
        return "ib" + _path(fn)
    return "en" + _path(fn) + (f"n{phys_port_name(fn)}" if fn.is_pf else "")


def rdma_name(fn: FunctionState) -> str:
    return ("ib" if fn.port.mode is LinkMode.INFINIBAND else "roce") + _path(fn)


def vf_offset(port: PortState) -> int:
    """First VF Offset of the SR-IOV capability, as ConnectX cards lay VFs out: behind all PFs of the slot, port
    after port."""
    function = int(port.pf.address[-1])
    return port.neighbours - function + function * port.total_vfs


def vf_address(port: PortState, index: int) -> str:
    """PCI address of a VF: routing id of the PF + offset + index x stride, stride 1 (pci_iov_virtfn_devfn)."""
    domain, bus, rest = port.pf.address.split(":")
    device, function = rest.split(".")
    rid = (int(bus, 16) << 8) + (int(device, 16) << 3) + int(function, 16) + vf_offset(port) + index
    return f"{domain}:{rid >> 8 & 0xFF:02x}:{rid >> 3 & 0x1F:02x}.{rid & 7:x}"


def seed_of(host: str, adapter: str) -> int:
    """24 bits that make the identities of this card on this host, the same after every start."""
    return zlib.crc32(f"{host} {adapter}".encode()) & 0xFFFF00


def card_mac(seed: int, port: int) -> str:
    """NVIDIA's OUI b8:3f:d2; ports count up from the card's base address."""
    number = 0xB83FD2 << 24 | (seed + port - 1)
    return ":".join(f"{number >> shift & 0xFF:02x}" for shift in range(40, -8, -8))


def card_guid(seed: int, port: int) -> str:
    """The card's GUID is its base MAC with 03:00 in the middle; that of port 1 is also the system image GUID."""
    octets = card_mac(seed, port).split(":")
    return ":".join([*octets[:3], "03", "00", *octets[3:]])


def random_vf_mac(adapter: AdapterState, port: PortState, index: int, boots: int) -> str:
    """What a VF without admin MAC has after it was bound: locally administered, another one after each boot."""
    number = zlib.crc32(f"{adapter.serial} {port.number} {index} {boots}".encode())
    return ":".join(["02", f"{boots & 0xFF:02x}", *(f"{number >> shift & 0xFF:02x}" for shift in (24, 16, 8, 0))])


def eui64(mac: str) -> str:
    """GUID of an Ethernet port: EUI-64 of its MAC, local bit flipped."""
    octets = mac.split(":")
    return ":".join([f"{int(octets[0], 16) ^ 2:02x}", *octets[1:3], "ff", "fe", *octets[3:]])
