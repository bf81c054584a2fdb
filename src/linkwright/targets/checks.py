"""What is looked at before the first effect: refusals that leave everything as it was, and the before-values."""

from __future__ import annotations

import ipaddress

from linkwright.model.errors import HardwareFault, InvalidInput, Refused, Vanished
from linkwright.model.inventory import Function
from linkwright.model.records import Attachment, Before
from linkwright.model.values import LinkMode, guid, guid_is_set

from .aspects import Wish
from .scene import Netdev, RdmaAt, Scene

OURS = "linkwright:"


def present(scene: Scene, function: Function, current: Attachment) -> Netdev:
    """The function's netdev. With no before-values on record it has to be in the host's namespace."""
    if function.netdev is not None:
        scene.hint("host", function.netdev.ifindex)
    found = scene.netdev()
    if found is None and not function.net_elsewhere:
        found = scene.wait_netdev()  # its driver was bound a moment ago
    if found is None:
        if function.net_elsewhere:
            raise _elsewhere(scene, "in another network namespace")
        raise Vanished(
            f"has no netdev (driver: {function.driver or 'none'}).",
            code="netdev-vanished",
            where=scene.address,
            next_step="Look: linkwright nics. In InfiniBand mode ib_ipoib has to be loaded.",
        )
    if found.place == "target" and current.before is None:
        raise _elsewhere(scene, f"already in this target's namespace as {found.link.name}, and not by us")
    return found


def _elsewhere(scene: Scene, where: str) -> Refused:
    return Refused(
        f"its netdev is {where}: somebody else uses this function.",
        rule=2,
        code="held-elsewhere",
        where=scene.address,
        holder=where,
        next_step="Look who has it: linkwright nics",
    )


def free(scene: Scene, netdev: Netdev, current: Attachment) -> None:
    """Looked at again at the last moment: nobody in the host uses it. Raises Refused ``in-use``.

    A VF, or a PF that this attachment had before in this boot, is the target's and on the host for a moment only:
    an address on it is some network manager's work, and goes with it. Whether a server listens on it, or a route
    needs it, discovery has looked.
    """
    ctx = scene.ctx
    reason = ""
    if netdev.link.master is not None:
        upper = ctx.links.get(ifindex=netdev.link.master)
        reason = f"{netdev.link.name} is part of {upper.name if upper else 'another device'}"
    else:
        addresses = [a.text for a in ctx.links.addresses(netdev.link.ifindex)]
        routed = [text for text in addresses if not ipaddress.ip_interface(text).is_link_local]
        if routed and current.vf_index is None and current.boot_id != ctx.boot_id:
            reason = f"this host has the address {routed[0]} on {netdev.link.name}"
    rdma = _rdma(scene)
    if not reason and rdma is not None and (users := ctx.rdma.kernel_users(rdma.device.index)):
        reason = f"the kernel's {', '.join(users)} uses {rdma.device.name}"
    if reason:
        raise Refused(
            f"{reason}: it is not taken away from its user.",
            rule=2,
            code="in-use",
            where=scene.address,
            holder=reason,
            next_step="Free it first, or choose another port for this target.",
        )


def possible(scene: Scene, netdev: Netdev, wish: Wish, mode: LinkMode | None) -> None:
    """Can the wish come true here? Raises without any change."""
    link = netdev.link
    if mode is not None and (mode is LinkMode.INFINIBAND) != netdev.infiniband:
        kind = LinkMode.INFINIBAND if netdev.infiniband else LinkMode.ROCE
        raise HardwareFault(
            f"the kernel shows {link.name} as {kind.value}, not {mode.value}.",
            code="mode-mismatch",
            where=scene.address,
            next_step="Look at the four readings: linkwright nics",
        )
    if wish.mtu is not None and not (link.min_mtu <= wish.mtu <= (link.max_mtu or wish.mtu)):
        raise InvalidInput(
            f"MTU {wish.mtu} is outside of what {link.name} takes: {link.min_mtu} to {link.max_mtu}.",
            code="mtu-out-of-range",
            where=scene.address,
            field="spec.interfaces[].mtu",
            next_step="Correct the interface's mtu in the target's document.",
        )
    assert scene.target is not None
    other = scene.ctx.links.get(name=wish.name, netns=scene.target.fd)
    if other is not None and not (netdev.place == "target" and other.ifindex == link.ifindex):
        raise Refused(
            f"the target has an interface {wish.name} already (index {other.ifindex}"
            + (f", {other.kind}" if other.kind else "")
            + "). Nothing was changed.",
            rule=1,
            code="name-taken",
            where=scene.target.path,
            holder=wish.name,
            next_step="Choose another name in the target's document (spec.interfaces[].name), "
            "or remove that interface.",
        )
    _rdma_name_free(scene, wish)


def _rdma_name_free(scene: Scene, wish: Wish) -> None:
    if wish.rdma_name is None:
        return
    assert scene.target is not None
    devices = scene.ctx.rdma.devices() + scene.ctx.rdma.devices(scene.target.fd)
    taken = next((d for d in devices if d.name == wish.rdma_name), None)
    if taken is None:
        return
    own = scene.rdma(None, (wish.rdma_name,))
    if own is None or own.device.index != taken.index:
        raise Refused(
            f"the RDMA name {wish.rdma_name} is used by another device of this host; RDMA names are unique over "
            "all namespaces. Nothing was changed.",
            rule=1,
            code="rdma-name-taken",
            where=scene.address,
            holder=wish.rdma_name,
            next_step="Choose another rdmaName in the target's document.",
        )


def before_values(scene: Scene, netdev: Netdev) -> Before:
    """The function as it is now, in the host's namespace; an alias of ours that was left behind is not kept."""
    link = netdev.link
    rdma = _rdma(scene)
    node_guid = (rdma.device.node_guid or scene.node_guid_in_sysfs()) if rdma else None
    return Before(
        name=link.name,
        mtu=link.mtu,
        address=link.address,
        up=link.up,
        alias="" if link.alias.startswith(OURS) else link.alias,
        altnames=link.altnames,
        rdma_name=rdma.device.name if rdma else None,
        rdma_guid=guid(node_guid) if node_guid and guid_is_set(node_guid) else None,
    )


def _rdma(scene: Scene) -> RdmaAt | None:
    return scene.rdma(None, ()) if scene.rdma_name_in_sysfs() is not None else None
