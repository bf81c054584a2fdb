"""The four readings of each port compared: what a mode change would have to do, and what no change can do.

desired ≠ next: a write. next ≠ current: an activation. current ≠ observed: a fault. An unknown reading causes
none of these; where one is needed to go on safely, the port waits and says which.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..model.inventory import Adapter, Port
from ..model.plan import Problem
from ..model.values import LinkMode, PortId, port_label
from .matching import Matching
from .view import View


@dataclass(frozen=True)
class PortMode:
    """``usable``: a target may have a function of it now. ``hopeless``: no mode change can make it usable.
    ``problem``: why it is not usable. ``note``: what people should know of a port that is."""

    desired: LinkMode
    usable: bool = True
    write: bool = False
    activate: bool = False
    hopeless: bool = False
    problem: Problem | None = None
    note: Problem | None = None


def assess(view: View, matching: Matching) -> dict[PortId, PortMode]:
    """One verdict for every port that belongs to a policy."""
    out: dict[PortId, PortMode] = {}
    for port, policy in matching.policy_of.items():
        desired, adapter = view.wanted_mode(policy), view.adapters[port]
        mode = _assess(view.ports[port], policy, desired, adapter.faults)
        if mode.activate and adapter.dpu:
            mode = _dpu(view.ports[port], policy, desired)
        elif mode.usable and desired is LinkMode.ROCE and view.question.inventory.rdma_netns is not None:
            mode = replace(mode, note=_without_rdma(view.ports[port], policy, adapter))
        out[port] = mode
    return out


def _dpu(port: Port, policy: str, desired: LinkMode) -> PortMode:
    """Found out before anybody is drained: the card's own processors keep it running while the host restarts."""
    return _stuck(
        desired,
        policy,
        code="dpu-mode",
        text=f"{port_label(port.id)} is on a BlueField in DPU mode: a restart of this host does not reset it, so "
        f"its mode would stay {(port.current_mode or port.observed_mode or desired).value}.",
        next_step="Set LINK_TYPE on the BlueField itself and power-cycle the host, or put the card into NIC mode "
        f"(mstconfig -d {port.pf.address} set INTERNAL_CPU_OFFLOAD_ENGINE=1) and power-cycle it.",
    )


def _without_rdma(port: Port, policy: str, adapter: Adapter) -> Problem | None:
    """An Ethernet port without an RDMA device: the link mode is right, and nobody gets RDMA of it."""
    pf = port.pf
    if pf.netdev is None or pf.rdma is not None or pf.driver is None:
        return None
    if adapter.roce_off:
        code, why = "roce-off", "RoCE is switched off in its firmware (ROCE_CONTROL)"
        step = f"Switch it on: mstconfig -d {pf.address} set ROCE_CONTROL=2, then restart the host."
    else:
        code, why = "rdma-missing", "the kernel shows no RDMA device for it"
        step = "Is the module mlx5_ib loaded, and does devlink dev param show enable_roce true?"
    return Problem(
        severity="note",
        code=code,
        subject=f"policy {policy}",
        text=f"{port_label(port.id)} is Ethernet without RDMA: {why}.",
        next_step=step,
    )


def _assess(port: Port, policy: str, desired: LinkMode, faults: tuple[str, ...]) -> PortMode:
    where = port_label(port.id)
    if port.fabric_modes and desired not in port.fabric_modes:
        carries = " and ".join(m.value for m in port.fabric_modes)
        return _stuck(
            desired,
            policy,
            hopeless=True,
            code="fabric-lacks-mode",
            text=f"{f'fabric {port.fabric}' if port.fabric else 'the fabric'} of {where} carries {carries}, "
            f"not {desired.value}.",
            next_step=f"Cable {where} to a fabric that carries {desired.value}, or correct fabrics in "
            "/etc/linkwright/host.yaml.",
        )
    running = {m for m in (port.current_mode, port.observed_mode) if m is not None}
    if port.can_change is False:
        if running - {desired}:
            has = (port.current_mode or port.observed_mode or desired).value
            return _stuck(
                desired,
                policy,
                hopeless=True,
                code="fixed-mode",
                text=f"{where} speaks {has} only: its firmware offers no LINK_TYPE.",
                next_step=f"Name a VPI card in spec.nicSelector of {policy}, or ask for {has}.",
            )
        return PortMode(desired)
    if port.next_mode not in (None, desired):
        return _write_needed(port, policy, desired, running)
    if port.current_mode not in (None, desired):
        if port.next_mode is None:
            return _unreadable(port, policy, desired, "the mode of the next boot", faults)
        return PortMode(desired, usable=False, activate=True)
    if port.observed_mode not in (None, desired):
        if port.current_mode is None:
            return _unreadable(port, policy, desired, "the firmware's current mode", faults)
        return _fault(port, policy, desired)
    return PortMode(desired)


def _write_needed(port: Port, policy: str, desired: LinkMode, running: set[LinkMode]) -> PortMode:
    """Next Boot is known and is not what is desired."""
    if running == {desired}:  # only what the next restart would bring is wrong: put it back, restart nothing
        return PortMode(desired, write=True)
    if port.current_mode is None:
        return _unreadable(port, policy, desired, "the firmware's current mode", ())
    if port.current_mode == desired:
        return _fault(port, policy, desired)
    return PortMode(desired, usable=False, write=True, activate=True)


def _fault(port: Port, policy: str, desired: LinkMode) -> PortMode:
    observed = port.observed_mode.value if port.observed_mode else "nothing"
    return _stuck(
        desired,
        policy,
        code="mode-fault",
        severity="waiting",
        text=f"the firmware of {port_label(port.id)} says {desired.value} now, the kernel shows {observed}.",
        next_step="The driver did not follow its card: look at dmesg, and restart the host if it stays.",
    )


def _unreadable(port: Port, policy: str, desired: LinkMode, what: str, faults: tuple[str, ...]) -> PortMode:
    why = f": {faults[0]}" if faults else ""
    return _stuck(
        desired,
        policy,
        code="mode-unknown",
        severity="waiting",
        text=f"{what} of {port_label(port.id)} cannot be read now{why}; nothing is written on a guess.",
        next_step=f"Look: linkwright nics; and: mstconfig -d {port.pf.address} query",
    )


def _stuck(
    desired: LinkMode,
    policy: str,
    *,
    code: str,
    text: str,
    next_step: str,
    hopeless: bool = False,
    severity: str = "refused",
) -> PortMode:
    problem = Problem(
        severity="waiting" if severity == "waiting" else "refused",
        code=code,
        subject=f"policy {policy}",
        text=text,
        next_step=next_step,
    )
    return PortMode(desired, usable=False, hopeless=hopeless, problem=problem)
