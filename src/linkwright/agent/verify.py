"""Did a change take? Pure judgements over what was observed after a restart; the engine acts on them.

The order is the evidence's: first whether the host restarted at all (boot id), then whether the card did
(the firmware's own uptime), then the mode, then the fabric. Each verdict names what was wanted and what was
seen, because that is what a person needs who was not there.
"""

from __future__ import annotations

from msgspec import Struct

from ..model.inventory import Adapter, Inventory, Port
from ..model.plan import Question
from ..model.records import ModeChange
from ..model.values import LinkMode, guid_is_set, port_label


class Verdict(Struct, frozen=True, kw_only=True):
    """``ok``; or ``wait`` for what may still come; or neither: a failure with its reason code."""

    ok: bool = False
    wait: bool = False
    code: str = ""
    text: str = ""
    next_step: str = ""
    awaited: str = ""


OK = Verdict(ok=True)
POWER_CYCLE = (
    "Power-cycle the host once: power off and on again, not a reset or a restart (on its BMC: ipmitool chassis "
    "power cycle, or Redfish ComputerSystem.Reset with ResetType PowerCycle)."
)
POWER_CYCLE_ONLY = "the card says that it loads this setting only on a power cycle."
POWER_CODES = frozenset({"card-not-reset", "power-cycle-needed", "mode-not-taken", "setting-not-taken"})
"""Verdicts that a power cycle may mend."""


def asks_power_cycle(change: ModeChange) -> bool:
    """Did mstconfig, when it wrote, ask for a power cycle instead of a reboot?"""
    return any("power cycle" in line for line in change.said)


def adapters(change: ModeChange, inventory: Inventory) -> list[Adapter]:
    """The cards that the change writes to, as they are seen now."""
    pfs = {s.pf for s in change.settings}
    return [a for a in inventory.adapters if any(p.pf.address in pfs for p in a.ports)]


def card(change: ModeChange, adapter: Adapter) -> str:
    """The PF through which the change reaches this adapter."""
    mine = {p.pf.address for p in adapter.ports}
    return next(s.pf for s in change.settings if s.pf in mine)


def cards(change: ModeChange) -> list[str]:
    return sorted({s.pf for s in change.settings})


def evidence(change: ModeChange, inventory: Inventory) -> str:
    """The four readings of each port of the change."""
    boot_changed = inventory.boot_id != change.boot_id
    lines = []
    for port_id in change.ports:
        port, adapter = inventory.port(port_id), inventory.adapter_of(port_id)
        if port is None or adapter is None:
            lines.append(f"{port_label(port_id)} is not there")
        else:
            lines.append(f"{port_label(port_id)}: {readings(port, change.wanted, adapter, boot_changed)}")
    return "; ".join(lines)


def taken(change: ModeChange, question: Question) -> bool:
    """Is everything that the change wants current, and seen so by the kernel?"""
    return mode_verdict(change, question.inventory, question.now).ok and settings_verdict(
        change, question.inventory
    ).ok


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
        return _not_taken(change, label, port, seen, card_was_reset(change, adapter, now), retry)
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


def _not_taken(change: ModeChange, label: str, port: Port, seen: str, was_reset: bool, retry: str) -> Verdict:
    if not was_reset:
        return Verdict(
            code="card-not-reset",
            text=f"{label}: the host restarted without resetting the card (kexec or a warm restart). {seen}",
            next_step=f"{POWER_CYCLE} Then{retry.removeprefix('then')}",
        )
    if asks_power_cycle(change):
        return Verdict(
            code="power-cycle-needed",
            text=f"{label}: the card takes this setting only on a power cycle. {seen}",
            next_step=f"{POWER_CYCLE} Then{retry.removeprefix('then')}",
        )
    after = " although it was reset" if change.method == "FirmwareReset" else ""
    return Verdict(
        code="mode-not-taken",
        text=f"{label}: the card did not take the mode{after}. {seen}",
        next_step=f"Compare with mstconfig -d {port.pf.address} -e query. {POWER_CYCLE} "
        f"Then{retry.removeprefix('then')}",
    )


def card_was_reset(change: ModeChange, adapter: Adapter, now: float) -> bool:
    """Did the firmware itself start again since the intent? Unknown uptime counts as yes (no evidence against)."""
    return was_reset(change, adapter.id, adapter.uptime_s, now)


def was_reset(change: ModeChange, adapter_id: str, uptime_s: int | None, now: float) -> bool:
    """The same for an uptime that was just measured."""
    before = change.uptime_before.get(adapter_id)
    if uptime_s is None or before is None or change.intent_at is None:
        return True
    return uptime_s < before + max(0.0, now - change.intent_at) - 1


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
                next_step=f'{POWER_CYCLE} Then: linkwright retry {change.policy} --reason "…"',
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
            if not guid_is_set(rdma.node_guid):  # readable wherever the state is; unset is read as None
                return Verdict(
                    wait=True,
                    code="guid-zero",
                    text=f"{label}: {rdma.name} has no GUID, so no subnet manager configures the port",
                    awaited=f"{label}: its GUID",
                    next_step=f"Reload the driver of {port.pf.address}; when it stays zero, look at the card's "
                    f"GUIDs (mstflint -d {port.pf.address} query). {again}",
                )
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
