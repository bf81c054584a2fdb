"""The screen of ``linkwright status``: targets, mode changes with their stations, and what stands in the way."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from linkwright.model.plan import Approval, Problem
from linkwright.model.records import Phase
from linkwright.model.values import LinkMode, port_label

from ..views import ChangeView, InterfaceView, PolicyView, Station, StatusView, TargetView
from .nics import allowed
from .plan import problem_lines
from .table import Column, lay_out
from .text import Line, Span, both_ends, line, paragraph, printable, wrap
from .times import clock, span

POLICY_COLUMNS = (
    Column("POLICY", 0),
    Column("GENERATION", 4),
    Column("MODE", 1),
    Column("PORTS", 2, 14),
    Column("STATE", 3, 14),
)
TARGET_COLUMNS = (
    Column("TARGET", 0, 8),
    Column("POLICY", 4, 8),
    Column("INTERFACE", 2),
    Column("FUNCTION", 3, 20),
    Column("MODE", 5),
    Column("STATE", 1, 14),
)
SIGNS = {
    "done": ("✔", "good"),
    "now": ("▶", "wait"),
    "todo": ("·", "dim"),
    "failed": ("✖", "bad"),
    "waiting": ("…", "wait"),
}
# What a station is called once it is behind us, where that is not its own name.
DONE_WORDS = {
    Phase.INTENT: "intent stored",
    Phase.DRAINING: "drained",
    Phase.RESTARTING: "restarted",
    Phase.VERIFY_MODE: "mode verified",
    Phase.VERIFY_FABRIC: "fabric verified",
    Phase.FUNCTIONS: "functions ready",
    Phase.REATTACH: "reattached",
}
OVER = (Phase.DONE, Phase.ENDED)  # nobody has to know any more
LINK_TYPES = {"1": LinkMode.INFINIBAND, "2": LinkMode.ROCE}


def status_lines(status: StatusView, now: float, width: int | None) -> list[Line]:
    """``now`` in seconds since the epoch."""
    left: list[Span] = [(printable(status.host), "bold"), (f" · {allowed(status.allow)}", "")]
    if status.frozen_by:
        left.append((f" · FROZEN by {printable(status.frozen_by)}", "bad"))
    lines = both_ends(left, [(f"linkwright {status.version}", "dim")] if status.version else [], width)
    if status.policies:
        lines += lay_out(POLICY_COLUMNS, [_policy_row(each) for each in status.policies], width).lines
    if status.targets:
        if status.policies:
            lines.append(line())
        rows = [row for target in status.targets for row in _target_rows(target, now)]
        lines += lay_out(TARGET_COLUMNS, rows, width).lines
    shown = [change for change in status.changes if change.phase not in OVER]
    shown += [change for change in status.changes if change.phase is Phase.DONE][:1] if not shown else []
    for change in shown:
        lines += [line(), *change_lines(change, now, width)]
    problems = _problems(status)
    if problems:
        lines.append(line())
        for problem in problems:
            lines += problem_lines(problem, width)
    if status.approvals:
        lines.append(line())
        for approval in status.approvals:
            lines += _yes_lines(approval, status, width)
    if not (status.policies or status.targets):
        lines.append(line("No policies and no targets yet.  Next: linkwright plan -f FILE"))
    if status.frozen_by:
        lines += [line(), line("Every change stands still. Go on with: linkwright unfreeze")]
    return lines


def _policy_row(policy: PolicyView) -> list[Sequence[Span]]:
    return [
        [(printable(policy.name), "")],
        [(str(policy.generation) if policy.generation else "–", "dim")],
        [(policy.link_mode.value if policy.link_mode else "unknown", "")],
        [(", ".join(port_label(port) for port in policy.ports) or "none", "" if policy.ports else "wait")],
        [_state(policy.state)],
    ]


def _target_rows(target: TargetView, now: float) -> list[list[Sequence[Span]]]:
    rows: list[list[Sequence[Span]]] = []
    for number, each in enumerate(target.interfaces):
        rows.append(
            [
                [(printable(target.name) if number == 0 else "", "")],
                [(printable(target.policy) if number == 0 else "", "")],
                [(printable(each.name), "")],
                [function_of(each)],
                [(each.mode.value, "") if each.mode else ("–", "dim")],
                [interface_state(each, target, now)],
            ]
        )
    if not target.interfaces:
        rows.append(
            [
                [(printable(target.name), "")],
                [(printable(target.policy), "")],
                [("–", "dim")],
                [("–", "dim")],
                [("–", "dim")],
                [_state(target.state, target.reason)],
            ]
        )
    return rows


def function_of(interface: InterfaceView) -> Span:
    if not interface.port:
        return ("–", "dim")
    label = "PF" if interface.vf_index is None else f"VF {interface.vf_index}"
    return (f"{port_label(interface.port)} {label}", "")


def interface_state(interface: InterfaceView, target: TargetView, now: float) -> Span:
    """``attached 2 h``, ``waiting: container does not run``."""
    reason = interface.reason or ("" if interface.state == "attached" else target.reason)
    text, style = _state(interface.state, reason)
    if interface.state == "attached" and interface.since:
        text = f"{text} {span(now - interface.since)}"
    return (text, style)


def _state(state: str, reason: str = "") -> Span:
    good = state in ("attached", "done", "in force")
    bad = state in ("failed", "quarantined", "refused")
    style = "good" if good else "bad" if bad else "wait" if state else "dim"
    words = state.replace("-", " ") or "unknown"
    return (printable(f"{words}: {reason}" if reason else words), style)


def change_lines(change: ChangeView, now: float, width: int | None) -> list[Line]:
    """A mode change: what it is, its stations, and when it failed or waits: evidence and the next step."""
    flip = f"{_was(change)} → {change.wanted.value}" if _was(change) else change.wanted.value
    ports = ", ".join(port_label(port) for port in change.ports)
    style = {Phase.FAILED: "bad", Phase.WAITING: "wait", Phase.DONE: "good", Phase.ENDED: "dim"}.get(
        change.phase, "bold"
    )
    word = {Phase.FAILED: "FAILED", Phase.WAITING: "WAITING", Phase.DONE: "DONE", Phase.ENDED: "ENDED"}.get(
        change.phase, "CHANGE"
    )
    head = f"{change.policy} generation {change.generation} · {flip}" + (f" on {ports}" if ports else "")
    lines = wrap([(word, style), *((each, "") for each in printable(head).split())], width, indent=2, first=0)
    if change.stations:
        lines += wrap([_station(each, change, now) for each in change.stations], width, indent=2, first=2)
    if change.phase in (Phase.FAILED, Phase.WAITING):
        if change.detail:
            lines += paragraph(change.detail, width, indent=2)
        for said in change.said[-2:]:
            lines += paragraph(said, width, indent=4, style="dim")
        if change.next_step:
            lines += paragraph(change.next_step, width, indent=2)
    return lines


def _was(change: ChangeView) -> str:
    for setting in change.settings:
        old = LINK_TYPES.get(setting.before or "")
        if setting.name.startswith("LINK_TYPE") and old and old is not change.wanted:
            return old.value
    return ""


def _station(station: Station, change: ChangeView, now: float) -> Span:
    sign, style = SIGNS[station.state]
    words = station.phase.value.replace("-", " ")
    if station.state == "done":
        words = DONE_WORDS.get(station.phase, words)
        if station.phase is Phase.APPROVED and (station.detail or change.approved_by):
            who = person(station.detail or change.approved_by)
            words += f" ({who}, {clock(station.at, now)})" if station.at else f" ({who})"
    elif station.state == "now":
        since = station.at or change.phase_since
        words += f": {station.detail}" if station.detail else " …"
        if since:
            words += f" {span(now - since)}" if not station.detail else f", {span(now - since)}"
    elif station.state in ("failed", "waiting") and station.detail and station.detail != change.detail:
        words += f": {station.detail}"
    return (printable(f"{sign} {words}"), style)


def person(who: str) -> str:
    """``uid 0 (linkwright, pid 4711)`` as people say it: ``root``, or ``root by curl`` when another program than
    the command line asked; the pid has ended long ago."""
    found = re.fullmatch(r"(.+?) \((?:(.+), )?pid \d+\)", who)
    if found is None:
        return "root" if who == "uid 0" else who
    name = "root" if found[1] == "uid 0" else found[1]
    return name if found[2] in (None, "linkwright") else f"{name} by {found[2]}"


def _problems(status: StatusView) -> list[Problem]:
    """Those of the host and of its policies, each once, the worst first."""
    every = [*status.problems, *(problem for policy in status.policies for problem in policy.problems)]
    order = {"refused": 0, "waiting": 1, "note": 2}
    return sorted(dict.fromkeys(every), key=lambda problem: order[problem.severity])


def _asking(approval: Approval, status: StatusView) -> str:
    """The policy whose work a yes lets go on: keys are ``change:<policy>:…`` or ``convert:<port>:…``."""
    kind, _, rest = approval.key.partition(":")
    if kind != "convert":
        return rest.split(":", 1)[0]
    return next((p.name for p in status.policies if any(rest.startswith(f"{port}:") for port in p.ports)), "")


def _yes_lines(approval: Approval, status: StatusView, width: int | None) -> list[Line]:
    said = f"{approval.text}. Say yes: linkwright approve {_asking(approval, status)}".rstrip()
    words = [("Waiting for a yes:", "wait"), *((word, "") for word in printable(said).split())]
    return wrap(words, width, indent=2, first=0)


def ending_lines(
    status: StatusView, policies: Collection[str], targets: Collection[str], now: float, width: int | None
) -> list[Line]:
    """How it ended for the named policies and targets: their interfaces, changes and problems, nothing else."""
    concerned = [each for each in status.targets if each.name in targets or each.policy in policies]
    lines: list[Line] = []
    if concerned:
        rows = [row for target in concerned for row in _target_rows(target, now)]
        lines += lay_out(TARGET_COLUMNS, rows, width).lines
    for change in status.changes:
        if change.policy in policies or any(each.policy == change.policy for each in concerned):
            if change.phase in OVER and concerned:
                continue
            lines += [line(), *change_lines(change, now, width)]
    names: set[str] = {f"policy {name}" for name in policies}
    for each in concerned:
        names |= {f"target {each.name}", f"policy {each.policy}"}
        names |= {f"{each.name} {interface.name}" for interface in each.interfaces}
        for port in (interface.port for interface in each.interfaces if interface.port):
            names |= {port, f"port {port}"}
    for problem in _problems(status):
        if problem.subject in names and problem.severity != "note":
            lines += problem_lines(problem, width)
    for approval in status.approvals:
        if approval.key.startswith("change:") and _asking(approval, status) in policies:
            lines += _yes_lines(approval, status, width)
    return lines or [line("Done.")]
