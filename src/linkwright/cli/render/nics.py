"""The screen of ``linkwright nics``: what is in this host, the four readings of each port's mode, who uses what.

Signs mark the first reading that differs from the one on its left, and each sign that occurs is explained
under the table, with the command to type next.
"""

from __future__ import annotations

from collections.abc import Sequence

from linkwright.model.documents import Allow
from linkwright.model.inventory import Adapter, Function, Inventory, Port
from linkwright.model.plan import PortDecision
from linkwright.model.values import LinkMode, port_label

from ..views import NicsView
from .table import Column, lay_out
from .text import Line, Span, both_ends, line, paragraph, printable

COLUMNS = (
    Column("PORT", 0),
    Column("MODEL", 9, 10),
    Column("DESIRED", 3),
    Column("NEXT", 4),
    Column("CURRENT", 2),
    Column("OBSERVED", 5),
    Column("FABRIC", 7, 6),
    Column("LINK", 6, 6),
    Column("FUNCTIONS", 8, 9),
    Column("USED BY", 1, 14),
)
WRITE, ACTIVATE, FAULT = "●", "◆", "✖"


def nics_lines(view: NicsView, width: int | None, *, source: str = "", hint: str = "") -> list[Line]:
    """``source``: who looked ("agent runs", "no agent"). ``hint``: what could not be read and why."""
    decisions = {decision.port: decision for decision in view.decisions}
    rows: list[Sequence[Sequence[Span]]] = []
    signs: set[str] = set()
    for adapter in view.inventory.adapters:
        for port in adapter.ports:
            row, sign = _row(adapter, port, decisions.get(port.id))
            rows.append(row)
            signs |= sign
    lines = _header(view, width, source)
    if rows:
        table = lay_out(COLUMNS, rows, width)
        lines += table.lines
        if table.dropped:
            lines += paragraph(
                f"Too narrow for {', '.join(table.dropped)}: -o json shows everything.", width, style="dim"
            )
    else:
        lines.append(line("No RDMA NIC here: no PCI device of a supported vendor was found."))
    lines += _below(view, signs, width, hint)
    return lines


def _header(view: NicsView, width: int | None, source: str) -> list[Line]:
    left = [(printable(view.inventory.host), "bold"), (f" · {allowed(view.allow)}", "")]
    if source:
        left.append((f" · {source}", "dim"))
    facts = [
        f"mstflint {view.inventory.mstflint}" if view.inventory.mstflint else "no mstflint",
        f"kernel {view.inventory.kernel}" if view.inventory.kernel else "",
        f"RDMA {view.inventory.rdma_netns}" if view.inventory.rdma_netns else "no RDMA",
    ]
    return both_ends(left, [(printable(" · ".join(each for each in facts if each)), "dim")], width)


def allowed(allow: Allow | None) -> str:
    """What the host's file allows, in words."""
    if allow is None:
        return "observing only (no /etc/linkwright/host.yaml)"
    names = [name for name in ("firmware", "functions", "reset", "restart") if getattr(allow, name)]
    return f"allowed: {', '.join(names)}" if names else "observing only (host.yaml allows nothing)"


def _row(adapter: Adapter, port: Port, decision: PortDecision | None) -> tuple[list[Sequence[Span]], set[str]]:
    desired = decision.desired if decision else None
    readings, signs = _readings(port, desired)
    fixed = port.can_change is False
    model = adapter.identity.model or adapter.identity.device_type or "unknown"
    number = f" p{port.number}"
    return [
        [(port.id.split("/")[0] + number, "dim" if port.secondary_of else "")],
        [(printable(model), "dim" if model == "unknown" else "")],
        [_desired(desired)],
        [("fixed", "dim")] if fixed and port.next_mode is None else [readings[0]],
        [readings[1]],
        [readings[2]],
        [(port.fabric or "–", "" if port.fabric else "dim")],
        [_link(port.link)],
        [(_functions(port), "")],
        used_by(port),
    ], signs


def _desired(mode: LinkMode | None) -> Span:
    return ("–", "dim") if mode is None else (mode.value, "")


def _readings(port: Port, desired: LinkMode | None) -> tuple[list[Span], set[str]]:
    """Next, current and observed with their signs. Unknown is no difference: it causes nothing."""
    following, current, observed = port.next_mode, port.current_mode, port.observed_mode
    out = [_mode(each) for each in (following, current, observed)]
    signs: set[str] = set()
    if following and desired and following is not desired:
        out[0] = (f"{following.value} {WRITE}", "wait")
        signs.add(WRITE)
    if current and following and current is not following:
        out[1] = (f"{current.value} {ACTIVATE}", "wait")
        signs.add(ACTIVATE)
    if observed and current and observed is not current:
        out[2] = (f"{observed.value} {FAULT}", "bad")
        signs.add(FAULT)
    elif desired and not signs and desired is following and desired is current and desired is observed:
        out = [(text, "good") for text, _ in out]
    return out, signs


def _mode(mode: LinkMode | None) -> Span:
    return ("unknown", "dim") if mode is None else (mode.value, "")


def _link(text: str) -> Span:
    if not text:
        return ("unknown", "dim")
    style = "good" if text.startswith(("up", "active")) else "wait"
    return (printable(text), "dim" if text.startswith("down") else style)


def _functions(port: Port) -> str:
    if port.secondary_of:
        return f"like {port_label(port.secondary_of)}"
    return f"PF, {port.num_vfs} of {port.total_vfs} VFs" if port.num_vfs else "PF"


def used_by(port: Port) -> list[Span]:
    """Targets first, then other holders with the function they hold; one word each where it is possible."""
    targets: list[str] = []
    foreign: list[str] = []
    host: list[str] = []
    for function in port.functions:
        for holder in function.holders:
            if holder.ours and holder.target:
                targets.append(holder.target)
            elif holder.kind in ("route", "address", "upper", "rdma", "protected"):
                host.append(holder.detail)
            else:
                foreign.append(_held(function, holder.detail))
    parts: list[Span] = []
    if targets:
        parts.append((printable(", ".join(dict.fromkeys(targets))), ""))
    if foreign:
        parts.append((printable(", ".join(dict.fromkeys(foreign))), "wait"))
    if host:
        parts.append((printable("this host: " + ", ".join(dict.fromkeys(host))), "dim"))
    if not parts:
        return [("–", "dim")]
    out = [parts[0]]
    for part in parts[1:]:
        out += [("; ", ""), part]
    return out


def _held(function: Function, detail: str) -> str:
    return f"{function.label}: {detail}" if function.vf_index is not None else detail


def _below(view: NicsView, signs: set[str], width: int | None, hint: str) -> list[Line]:
    lines: list[Line] = []
    meanings = {
        WRITE: ("wait", "next differs from desired: a write is needed."),
        ACTIVATE: ("wait", "current differs from next: written, and waits for a restart of this host."),
        FAULT: ("bad", "observed differs from current: the driver shows another mode than the firmware has."),
    }
    for sign, (style, meaning) in meanings.items():
        if sign in signs:
            lines.append(line((sign, style), f" {meaning}"))
    for adapter in view.inventory.adapters:
        for fault in adapter.faults:
            where = adapter.ports[0].pf.address if adapter.ports else adapter.id
            text = fault if where in fault else f"{where}: {fault}"
            lines += paragraph(f"{FAULT} {text}", width, style="bad")
    for text in cards_said(view.inventory):
        lines += paragraph(text, width, style="wait")
    for note in view.inventory.notes:
        lines += paragraph(f"Note: {note}", width, style="dim")
    if hint:
        lines += paragraph(hint, width, style="dim")
    if WRITE in signs:
        lines.append(line("Next: linkwright plan"))
    elif ACTIVATE in signs or FAULT in signs:
        lines.append(line("Next: linkwright status"))
    return lines


def cards_said(inventory: Inventory) -> list[str]:
    """What sets a card apart from the others: swapped, merged, run by its own processors, or another tool's."""
    out = []
    for adapter in inventory.adapters:
        where = adapter.ports[0].pf.address if adapter.ports else adapter.id
        if adapter.replaced:
            out.append(
                f"{where}: another card than the one that was known here ({adapter.replaced}); nothing is done on "
                f"it. If that is meant: linkwright adapter replace {where}"
            )
        if adapter.merged:
            out.append(f"{where}: its ports are merged into one RDMA device ({adapter.merged}).")
        if adapter.dpu:
            out.append(f"{where}: a BlueField in DPU mode; a restart of this host does not reset it.")
        if adapter.roce_off:
            out.append(f"{where}: RoCE is switched off in its firmware (ROCE_CONTROL): Ethernet without RDMA.")
    for owner in inventory.owners:
        whose = ", ".join(owner.pfs) or "every card"
        out.append(f"{whose}: {owner.name} manages {owner.what} ({owner.evidence}).")
    return out
