"""The identity of a VF before anybody uses it: its MAC in RoCE mode, its node and port GUID in InfiniBand mode.

A fresh VF has a random MAC, or GUIDs of zero with which no subnet manager brings it up. Values are set through the
PF's netdev and taken by the VF when its driver binds, so the driver is bound anew, but only when the effective
value (read from the VF itself) differs, since that renames things and takes a second. The values follow from the
PF's own and the VF's number: the same after each restart, so that addresses, P_Keys and switch ports fit again.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from linkwright.kernel import sriov
from linkwright.kernel.links import Link
from linkwright.kernel.netlink.constants import ARPHRD_INFINIBAND, IFLA_VF_LINK_STATE_AUTO
from linkwright.model.documents import Interface
from linkwright.model.errors import HardwareFault, LinkwrightError, Refused, Vanished
from linkwright.model.inventory import Function, Port
from linkwright.model.records import Attachment
from linkwright.model.values import Guid, LinkMode, Mac, guid, guid_is_set, mac

from .context import Context
from .scene import Scene, host_fd
from .steps import Runner, Step, explain

_LOCAL = 0x02  # the "locally administered" bit of the first byte, in a MAC and in an EUI-64


def vf_mac(pf_mac: str, vf: int) -> Mac:
    """The MAC of VF ``vf``: local bit, unicast, VF number, and the PF's last three bytes, so that neither two VFs
    of one PF nor the VFs of two ports with neighbouring MACs can meet."""
    raw = bytes.fromhex(mac(pf_mac).replace(":", ""))
    first = _LOCAL | (vf >> 8 & 0x3F) << 2
    return mac(bytes((first, raw[0] ^ raw[1] ^ raw[2], vf & 0xFF, *raw[3:])).hex())


def vf_guid(port_guid: str, vf: int) -> Guid:
    """The node and port GUID of VF ``vf``: the port's with the local bit and the VF's number from 1 in bytes 4
    and 5 (where GUIDs made from a MAC have a constant); the last three bytes tell ports apart."""
    raw = bytearray.fromhex(guid(port_guid).replace(":", ""))
    raw[0] ^= _LOCAL
    raw[3] ^= (vf + 1) >> 8 & 0xFF
    raw[4] ^= (vf + 1) & 0xFF
    return guid(raw.hex())


def prepare_pf(ctx: Context, port: Port) -> None:
    """Bring the PF up: VFs made under a PF that is down get no link, and settings for them do nothing.

    Raises Refused ``pf-not-here`` when its netdev is not in the host's namespace.
    """
    link = _pf_link(ctx, port)
    if not link.up:
        try:
            ctx.links.change(link.ifindex, up=True)
        except OSError as error:
            raise explain(error, "bring the PF up", port.pf.address) from error


def prepare_vf(
    ctx: Context,
    port: Port,
    function: Function,
    attachment: Attachment,
    interface: Interface,
    mode: LinkMode | None,
) -> Attachment:
    """Give VF ``function`` its identity and verify it; returns the stored record, with its ``mac`` in RoCE mode.

    Nothing is done to a VF that somebody holds. Raises Refused ``pf-not-here`` or HardwareFault ``mode-mismatch``,
    ``identity-not-taken``, or what the kernel refused.
    """
    lives = attachment.before is not None and attachment.boot_id == ctx.boot_id  # else a restart has undone it
    if lives or function.net_elsewhere or function.vf_index is None:
        return attachment
    pf = _pf_link(ctx, port)
    infiniband = pf.link_type == ARPHRD_INFINIBAND
    if mode is not None and (mode is LinkMode.INFINIBAND) != infiniband:
        raise HardwareFault(
            f"the PF's netdev {pf.name} is {'InfiniBand' if infiniband else 'Ethernet'}, not {mode.value}."
            + (" Is ib_ipoib loaded?" if mode is LinkMode.INFINIBAND else ""),
            code="mode-mismatch",
            where=port.pf.address,
            next_step="Look at the four readings: linkwright nics",
        )
    wanted: Mac | Guid
    if infiniband:
        wanted = vf_guid(
            pf.address[-23:], function.vf_index
        )  # the last 8 of an IPoIB address's 20 bytes (RFC 4391)
    else:
        stored = interface.mac or attachment.mac
        wanted = mac(stored) if stored else vf_mac(pf.permanent_address or pf.address, function.vf_index)
        if attachment.mac != wanted:
            attachment = ctx.store.put_attachment(replace(attachment, mac=wanted))
    with host_fd(ctx) as home:
        scene = Scene(ctx, function.address, home, None)
        if function.netdev is not None:
            scene.hint("host", function.netdev.ifindex)
        has_rdma = infiniband or port.pf.rdma is not None
        steps: list[Step] = [
            kind(scene, pf, function.vf_index, wanted, infiniband, has_rdma) for kind in (AdminValue, Effective)
        ]
        if not steps[-1].is_done():
            subject = f"{attachment.target}/{attachment.interface}"
            operation = ctx.store.begin_operation("identity", subject, ctx.boot_id)
            try:
                Runner(operation, function.address, lambda moment, step: ctx.watch(moment, subject, step)).forward(
                    steps
                )
            except LinkwrightError:
                operation.end()  # nothing to undo: the value is right for this VF, and is set again next time
                raise
            operation.end()
    return attachment


def _pf_link(ctx: Context, port: Port) -> Link:
    with host_fd(ctx) as home:
        scene = Scene(ctx, port.pf.address, home, None)
        if port.pf.netdev is not None:
            scene.hint("host", port.pf.netdev.ifindex)
        found = scene.netdev()
    if found is None:
        raise Refused(
            "the PF's netdev is not in the host's namespace, and its VFs can only be configured through it.",
            rule=1,
            code="pf-not-here",
            where=port.pf.address,
            next_step="Look who has it: linkwright nics",
        )
    return found.link


@dataclass(frozen=True)
class _Identity:
    scene: Scene
    pf: Link
    vf: int
    wanted: Mac | Guid
    infiniband: bool
    has_rdma: bool

    def effective(self) -> bool:
        """Does the VF itself show the wanted identity?"""
        found = self.scene.netdev()
        if found is None or found.infiniband != self.infiniband:
            return False
        node = self.scene.node_guid_in_sysfs()
        if self.infiniband:
            return node == self.wanted and found.link.address.endswith(self.wanted)
        # Without an admin MAC at bind time a RoCE VF has a node GUID of zero, and RDMA-CM does not work on it.
        return found.link.address == self.wanted and (not self.has_rdma or guid_is_set(node))

    def is_undone(self) -> bool:
        return True

    def undo(self) -> None:
        pass


class AdminValue(_Identity):
    """What the PF's driver keeps for the VF; it survives a re-bind of the VF, not one of the PF."""

    name = "vf identity"

    def is_done(self) -> bool:
        return self.effective()

    def do(self) -> None:
        links = self.scene.ctx.links
        if self.infiniband:
            links.set_vf(
                self.pf.ifindex, self.vf,
                node_guid=self.wanted, port_guid=self.wanted, link_state=IFLA_VF_LINK_STATE_AUTO,
            )  # fmt: skip
        else:
            links.set_vf(self.pf.ifindex, self.vf, mac=self.wanted)


class Effective(_Identity):
    """The VF's driver bound anew, so that it takes the value; then read back from the VF."""

    name = "vf driver"

    def is_done(self) -> bool:
        return self.effective()

    def do(self) -> None:
        ctx, address = self.scene.ctx, self.scene.address
        sriov.rebind(ctx.system, address)
        if self.scene.wait_netdev() is None:
            raise Vanished(
                f"its netdev did not come up within {ctx.wait_s:.0f} s after its driver was bound anew.",
                code="netdev-not-back",
                where=address,
                next_step="Look at the driver's messages (dmesg).",
            )
        if self.has_rdma:
            self.scene.wait(lambda: self.effective() or None)
        if not self.effective():
            raise HardwareFault(
                f"the VF did not take its {'GUID' if self.infiniband else 'MAC'} {self.wanted}: "
                f"it shows {self._shown()}.",
                code="identity-not-taken",
                where=address,
                next_step="Look at the driver's messages (dmesg); is the VF in use by somebody?",
            )

    def _shown(self) -> str:
        found = self.scene.netdev()
        node = self.scene.node_guid_in_sysfs() or "unknown"
        return f"{found.link.address if found else 'no netdev'}, node GUID {node}"
