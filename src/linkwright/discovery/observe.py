"""One reading of the host, as the model's Inventory. Changes nothing, and no adapter's fault stops another's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from linkwright.firmware.base import FirmwareDriver, number
from linkwright.kernel import boot, sysfs
from linkwright.kernel.rdma import Rdma
from linkwright.kernel.system import System
from linkwright.model.documents import HostConfig
from linkwright.model.inventory import Adapter, Function, Inventory, Netdev, Port
from linkwright.model.records import Attachment

from . import adapters, cards, functions, holders, netdevs
from .adapters import RawAdapter, RawPort
from .cards import Card
from .functions import RawFunction
from .holders import Held
from .netdevs import HostNetdevs


def observe(
    system: System,
    firmware: FirmwareDriver | None,
    host: HostConfig,
    attachments: Iterable[Attachment] = (),
    *,
    with_firmware: bool = True,
) -> Inventory:
    """What is there now.

    ``attachments`` (our records) only name holders that the kernel shows. Without ``with_firmware`` (or with
    ``firmware`` None) next and current modes, VF settings and the possibility of a change are unknown, and no
    other program is started. A card that cannot be read has the reason in its ``faults``; what could not be
    asked of the kernel is in ``notes``. Raises nothing for what a host can be like.
    """
    boot_id = boot.boot_id(system)
    every = list(attachments)
    current = [record for record in every if record.boot_id in (None, boot_id)]
    found = adapters.group(functions.scan(system), {record.port: record.adapter for record in current})
    host_netdevs = netdevs.read(system)
    asked = firmware if with_firmware else None
    read = cards.read_all(found, asked)
    found = [adapters.one_port(a) if c.single_port else a for a, c in zip(found, read, strict=True)]
    everything = [f for adapter in found for port in adapter.ports for f in port.pf.all]
    records = _records(found, current)
    held = holders.find(system, everything, host_netdevs, records, kept(_records(found, every), boot_id))
    rdma_netns, notes = _rdma_netns(system)
    return Inventory(
        host=boot.host_name(system),
        boot_id=boot_id,
        kernel=boot.kernel_release(system),
        mstflint=asked.version() if asked is not None else None,
        rdma_netns=rdma_netns,
        adapters=tuple(_adapter(a, c, host, host_netdevs, held) for a, c in zip(found, read, strict=True)),
        notes=(*host_netdevs.notes, *dict.fromkeys(held.notes), *notes),
    )


def _records(found: list[RawAdapter], attachments: Iterable[Attachment]) -> dict[str, Attachment]:
    """Our records by the address at which their slot (port, VF index) is now."""
    slots = {
        (port.id, f.vf_index): f.address for adapter in found for port in adapter.ports for f in port.pf.all
    }
    by_address: dict[str, Attachment] = {}
    for record in attachments:
        address = slots.get((record.port, record.vf_index))
        if address is not None:
            by_address[address] = record
    return by_address


def kept(slots: Mapping[str, Attachment], boot_id: str) -> set[str]:
    """Functions that are a target's by our records, or its PF, although they may be on the host now.

    A VF is assigned only when nobody has it, so it is kept from then on. A PF may serve the host again after a
    restart; in a boot in which its port served targets, it does not.
    """
    vfs = {address for address, record in slots.items() if record.vf_index is not None}
    return vfs | {record.port.partition("/")[0] for record in slots.values() if record.boot_id == boot_id}


def _rdma_netns(system: System) -> tuple[str | None, tuple[str, ...]]:
    if system.captured:
        return None, ()
    try:
        return Rdma(system.netlink).netns_mode(), ()
    except OSError as problem:
        return None, (f"the mode of RDMA namespaces could not be asked for: {problem.strerror or problem}",)


def _adapter(adapter: RawAdapter, card: Card, host: HostConfig, netdevs: HostNetdevs, held: Held) -> Adapter:
    sriov, vfs = card.setting("SRIOV_EN"), card.setting("NUM_OF_VFS")
    bond = netdevs.bond_of(name for port in adapter.ports for name in port.pf.net or ())
    return Adapter(
        id=adapter.id,
        identity=card.identity(adapter),
        ports=tuple(_port(port, card, host, netdevs, held) for port in adapter.ports),
        sriov_enabled_next=_flag(sriov.next),
        sriov_enabled_current=_flag(sriov.current),
        num_vfs_next=number(vfs.next),
        num_vfs_current=number(vfs.current),
        uptime_s=card.uptime_s,
        dpu=card.dpu,
        roce_off=card.roce_off,
        merged=adapters.merged(adapter, bond),
        faults=card.faults,
    )


def _flag(value: str | None) -> bool | None:
    found = number(value)
    return None if found is None else bool(found)


def _port(port: RawPort, card: Card, host: HostConfig, netdevs: HostNetdevs, held: Held) -> Port:
    pf = port.pf
    netdev = _netdev(pf, netdevs)
    elsewhere = held.elsewhere.get(pf.address)
    link_type = netdev.link_type if netdev else elsewhere.link_type if elsewhere else None
    observed = adapters.observed_mode(link_type, pf.rdma)
    following, current, can_change = card.modes(port.number)
    if can_change is False and following is None and current is None:
        following = current = observed  # a card of one mode has no setting to read: what it shows is what it has
    fabric, carried = adapters.fabric_of(host, port)
    speed = sysfs.number(f"{pf.path}/net/{netdev.name}/speed") if netdev and netdev.carrier else None
    return Port(
        id=port.id,
        number=port.number,
        pf=_function(pf, netdev, held),
        vfs=tuple(_function(vf, _netdev(vf, netdevs), held) for vf in pf.vfs),
        num_vfs=pf.num_vfs,
        total_vfs=pf.total_vfs,
        next_mode=following,
        current_mode=current,
        observed_mode=observed,
        can_change=can_change,
        link=adapters.link_text(pf, netdev, elsewhere.carrier if elsewhere else None, speed),
        fabric=fabric,
        fabric_modes=carried,
        secondary_of=port.secondary_of,
    )


def _netdev(function: RawFunction, netdevs: HostNetdevs) -> Netdev | None:
    return next((netdevs.links[name] for name in function.net or () if name in netdevs.links), None)


def _function(function: RawFunction, netdev: Netdev | None, held: Held) -> Function:
    return Function(
        address=function.address,
        vf_index=function.vf_index,
        driver=function.driver,
        driver_override=function.driver_override,
        netdev=netdev,
        net_elsewhere=holders.out_of_sight(function),
        rdma=function.rdma,
        iommu_group=function.iommu_group,
        numa_node=function.numa_node,
        holders=held.holders.get(function.address, ()),
    )
