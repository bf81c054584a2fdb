"""PCI network functions as sysfs shows them: each file read once, nothing raised, nothing concluded.

``net`` tells three things apart: None (no directory: no net driver, or none yet), empty (bound, but the netdev
is in another network namespace), names.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from linkwright.kernel import sysfs
from linkwright.kernel.system import System
from linkwright.model.inventory import RdmaDevice
from linkwright.model.values import Guid, LinkMode, PciAddress, guid, guid_is_set, pci_address

MELLANOX = "15b3"
_NETWORK_CLASS = "0x02"
_LAYERS = {"InfiniBand": LinkMode.INFINIBAND, "Ethernet": LinkMode.ROCE}


@dataclass(frozen=True)
class RdmaCard:
    """What an RDMA device tells of its card, and the rate of its port as the kernel words it."""

    system_image_guid: Guid | None = None
    board_id: str | None = None
    firmware: str | None = None
    rate: str = ""


@dataclass(frozen=True)
class RawFunction:
    """One PF or VF. ``vfs`` by index; ``port_name`` is phys_port_name (``p0``) of a PF's netdev."""

    address: PciAddress
    path: str
    vendor: str = ""
    device: str = ""
    vf_index: int | None = None
    driver: str | None = None
    driver_override: str | None = None
    net: tuple[str, ...] | None = None
    rdma: RdmaDevice | None = None
    card: RdmaCard = RdmaCard()
    iommu_group: str | None = None
    numa_node: int | None = None
    port_name: str | None = None
    num_vfs: int = 0
    total_vfs: int = 0
    vfs: tuple[RawFunction, ...] = ()

    @property
    def all(self) -> tuple[RawFunction, ...]:
        return (self, *self.vfs)


def scan(system: System) -> list[RawFunction]:
    """The PFs of the host in the order of their addresses, with their VFs: every network function of the vendor
    whose link mode can change, and of other vendors those with SR-IOV or RDMA."""
    root = os.fspath(system.sys / "bus/pci/devices")
    shown = {
        name: sysfs.names(f"{root}/{name}") or []
        for name in sysfs.names(root) or ()
        if (sysfs.text(f"{root}/{name}/class") or "").startswith(_NETWORK_CLASS)
    }
    pfs = (_pf(root, name, shown) for name, entries in shown.items() if "physfn" not in entries)
    return [pf for pf in pfs if pf is not None]


def _pf(root: str, name: str, shown: dict[str, list[str]]) -> RawFunction | None:
    """``shown``: what each function's directory holds."""
    path, entries = f"{root}/{name}", shown[name]
    vendor = (sysfs.text(f"{path}/vendor") or "").removeprefix("0x").lower()
    total = (sysfs.number(f"{path}/sriov_totalvfs") or 0) if "sriov_totalvfs" in entries else 0
    if vendor != MELLANOX and not total and "infiniband" not in entries:
        return None
    pf = _function(root, name, entries)
    indexes = sorted((int(e.removeprefix("virtfn")), e) for e in entries if re.fullmatch(r"virtfn\d+", e))
    vfs = []
    for index, entry in indexes:
        target = sysfs.link_name(f"{path}/{entry}")
        if target is not None:
            vf = _function(root, target, shown.get(target, []), with_card=pf.rdma is None)
            vfs.append(replace(vf, vf_index=index, vendor=vendor))
    names = pf.net or ()
    port_names = {n: sysfs.text(f"{path}/net/{n}/phys_port_name") for n in names}
    # In switchdev mode the VFs' representors hang on the PF's device too; the uplink's port name is p<N>.
    uplinks = [n for n in names if re.fullmatch(r"p\d+", port_names[n] or "")]
    return replace(
        pf,
        vendor=vendor,
        device=(sysfs.text(f"{path}/device") or "").removeprefix("0x").lower(),
        net=pf.net if not uplinks else tuple(uplinks[:1]),
        port_name=port_names[uplinks[0]] if uplinks else None,
        total_vfs=total,
        num_vfs=(sysfs.number(f"{path}/sriov_numvfs") or 0) if "sriov_numvfs" in entries else 0,
        vfs=tuple(vfs),
    )


def _function(root: str, name: str, entries: list[str], *, with_card: bool = True) -> RawFunction:
    """``with_card``: read what the RDMA device tells of the card too; needed from one function of a PF only."""
    path = f"{root}/{name}"
    override = sysfs.text(f"{path}/driver_override") if "driver_override" in entries else None
    net = sysfs.names(f"{path}/net") if "net" in entries else None
    numa = sysfs.number(f"{path}/numa_node") if "numa_node" in entries else None
    rdma, card = _rdma(path, with_card) if "infiniband" in entries else (None, RdmaCard())
    return RawFunction(
        address=pci_address(name),
        path=path,
        driver=sysfs.link_name(f"{path}/driver") if "driver" in entries else None,
        driver_override=override if override not in (None, "", "(null)") else None,
        net=None if net is None else tuple(net),
        rdma=rdma,
        card=card,
        numa_node=None if numa is None or numa < 0 else numa,  # -1: one node only, or not told
        iommu_group=sysfs.link_name(f"{path}/iommu_group") if "iommu_group" in entries else None,
    )


def _rdma(path: str, with_card: bool) -> tuple[RdmaDevice | None, RdmaCard]:
    names = sysfs.names(f"{path}/infiniband")
    if not names:
        return None, RdmaCard()  # the device is in another namespace
    base = f"{path}/infiniband/{names[0]}"
    port = f"{base}/ports/1"
    gid = sysfs.text(f"{port}/gids/0") or ""
    card = RdmaCard()
    if with_card:
        card = RdmaCard(
            system_image_guid=_guid(sysfs.text(f"{base}/sys_image_guid")),
            board_id=sysfs.text(f"{base}/board_id") or None,
            firmware=sysfs.text(f"{base}/fw_ver") or None,
            rate=sysfs.text(f"{port}/rate") or "",
        )
    device = RdmaDevice(
        name=names[0],
        link_layer=_LAYERS.get(sysfs.text(f"{port}/link_layer") or ""),
        state=_word(sysfs.text(f"{port}/state")),
        phys_state=_word(sysfs.text(f"{port}/phys_state")),
        lid=sysfs.number(f"{port}/lid"),
        sm_lid=sysfs.number(f"{port}/sm_lid"),
        node_guid=_guid(sysfs.text(f"{base}/node_guid")),
        port_guid=_guid(":".join(gid.split(":")[4:])),
    )
    return device, card


def _word(state: str | None) -> str | None:
    """``4: ACTIVE`` → ``ACTIVE``."""
    return state.partition(": ")[2] or None if state else None


def _guid(text: str | None) -> Guid | None:
    try:
        value = guid(text or "")
    except ValueError:
        return None
    return value if guid_is_set(value) else None
