"""Did a change take? Pure judgements over what was observed after a restart; the engine acts on them.

The order is the evidence's: first whether the host restarted at all (boot id), then whether the card did
(the firmware's own uptime), then the mode, then the fabric. Each verdict names what was wanted and what was
seen, because that is what a person needs who was not there.
"""

from __future__ import annotations

from msgspec import Struct

from ..model.inventory import Adapter, Inventory, Port
from ..model.records import ModeChange
from ..model.values import LinkMode, port_label


class Verdict(Struct, frozen=True, kw_only=True):
    """``ok``; or ``wait`` for what may still come; or neither: a failure with its reason code."""

    ok: bool = False
    wait: bool = False
    code: str = ""
    text: str = ""
    next_step: str = ""
    awaited: str = ""


OK = Verdict(ok=True)


def readings(port: Port, wanted: LinkMode, adapter: Adapter, boot_changed: bool) -> str:
    """One line of evidence: wanted, next, current, observed, and whether host and card started again."""

    def name(mode: LinkMode | None) -> str:
        return mode.value if mode else "unknown"

    boot = "boot id changed" if boot_changed else "same boot id"
    uptime = f"firmware uptime {'unknown' if adapter.uptime_s is None else _span(adapter.uptime_s)}"
    return (
        f"wanted {wanted.value} · next {name(port.next_mode)} · current {name(port.current_mode)} · "
        f"observed {name(port.observed_mode)} · {boot}, {uptime}"
    )


def _span(seconds: int) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def mode_verdict(change: ModeChange, inventory: Inventory, now: float) -> Verdict:
    """The mode of every port of the change, after its activation."""
    for port_id in change.ports:
        verdict = _port_mode(change, inventory, port_id, now)
        if not verdict.ok:
            return verdict
    return OK


def _port_mode(change: ModeChange, inventory: Inventory, port_id: str, now: float) -> Verdict:
    port, adapter = inventory.port(port_id), inventory.adapter_of(port_id)
    label = port_label(port_id)
    if port is None or adapter is None:
        return Verdict(
            wait=True,
            code="port-vanished",
            text=f"{label} did not come back after the activation",
            awaited=f"{label} to appear",
            next_step="Look at the kernel log for the card; power-cycle the host if the card does not answer.",
        )
    seen = readings(port, change.wanted, adapter, inventory.boot_id != change.boot_id)
    retry = f'then: linkwright retry {change.policy} --reason "…"'
    if port.current_mode is not None and port.current_mode != change.wanted:
        if not card_was_reset(change, adapter, now):
            return Verdict(
                code="card-not-reset",
                text=f"{label}: the host restarted without resetting the card (kexec or a warm restart). {seen}",
                next_step=f"Power-cycle the host once, {retry}",
            )
        if any("power cycle" in line for line in change.said):
            return Verdict(
                code="power-cycle-needed",
                text=f"{label}: the card takes this setting only on a power cycle. {seen}",
                next_step=f"Power-cycle the host once, {retry}",
            )
        return Verdict(
            code="mode-not-taken",
            text=f"{label}: the card did not take the mode. {seen}",
            next_step=f"Compare with mstconfig -d {port.pf.address} -e query; power-cycle the host once, {retry}",
        )
    if port.observed_mode is None:
        return Verdict(
            wait=True,
            code="driver-not-ready",
            text=f"{label}: the driver shows no device yet. {seen}",
            awaited=f"{label}: driver to show its device",
            next_step=f"Look at the kernel log for mlx5_core {port.pf.address}, {retry}",
        )
    if port.observed_mode != change.wanted:
        return Verdict(
            code="kernel-disagrees",
            text=f"{label}: firmware and kernel disagree. {seen}",
            next_step=f"Reload the driver of {port.pf.address} or power-cycle the host, {retry}",
        )
    return OK


def card_was_reset(change: ModeChange, adapter: Adapter, now: float) -> bool:
    """Did the firmware itself start again since the intent? Unknown uptime counts as yes (no evidence against)."""
    before = change.uptime_before.get(adapter.id)
    if adapter.uptime_s is None or before is None or change.intent_at is None:
        return True
    return adapter.uptime_s < before + max(0.0, now - change.intent_at) - 1


def settings_verdict(change: ModeChange, inventory: Inventory) -> Verdict:
    """The shared settings (SRIOV_EN, NUM_OF_VFS) of the change, current after its activation."""
    for setting in change.settings:
        adapter = next((a for a in inventory.adapters for p in a.ports if p.pf.address == setting.pf), None)
        if adapter is None or not setting.name.startswith(("SRIOV_EN", "NUM_OF_VFS")):
            continue
        current = adapter.sriov_enabled_current if setting.name == "SRIOV_EN" else adapter.num_vfs_current
        if current is not None and int(current) != int(setting.value):
            return Verdict(
                code="setting-not-taken",
                text=f"{setting.pf}: {setting.name} is {int(current)}, wanted {setting.value}",
                next_step=f'Power-cycle the host once, then: linkwright retry {change.policy} --reason "…"',
            )
    return OK


def fabric_verdict(change: ModeChange, inventory: Inventory) -> Verdict:
    """Link and, in InfiniBand mode, subnet manager, for each port of the change."""
    for port_id in change.ports:
        port = inventory.port(port_id)
        if port is None:
            continue
        verdict = _port_fabric(port, change)
        if not verdict.ok:
            return verdict
    return OK


def _port_fabric(port: Port, change: ModeChange) -> Verdict:
    label = port_label(port.id)
    rdma = port.pf.rdma
    where = f"fabric {port.fabric}" if port.fabric else "its fabric"
    again = "It goes on by itself when that is mended."
    if change.wanted is LinkMode.INFINIBAND:
        if rdma is None or (rdma.state in (None, "ACTIVE") and rdma.lid not in (0, 0xFFFF) and rdma.sm_lid != 0):
            return OK
        if rdma.phys_state == "LinkUp" or rdma.state in ("INIT", "ARMED", "ACTIVE"):
            return Verdict(
                wait=True,
                code="no-subnet-manager",
                text=f"{label}: the link is up, but no subnet manager has configured the port "
                f"(state {rdma.state}, lid {rdma.lid}, sm lid {rdma.sm_lid})",
                awaited=f"{label}: subnet manager",
                next_step=f"Start a subnet manager on {where}. {again}",
            )
    elif port.pf.netdev is None or port.pf.netdev.carrier or (rdma is not None and rdma.state == "ACTIVE"):
        return OK
    return Verdict(
        wait=True,
        code="link-down",
        text=f"{label}: no link in {change.wanted.value} mode ({port.link or 'down'})",
        awaited=f"{label}: link",
        next_step=f"Check the cable and that {where} carries {change.wanted.value}. {again}",
    )
