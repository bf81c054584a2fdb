"""The screen of ``linkwright plan``: numbered steps with exact commands, who is interrupted, what is not done.

A step is two parts: what is done to what (left), and why or what follows from it (right, or below when the
terminal is narrow).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from linkwright.model.documents import LinkPolicy, Target
from linkwright.model.plan import (
    Attach,
    Detach,
    Plan,
    Problem,
    ResetAdapter,
    RestartHost,
    SetVfs,
    Step,
    Verify,
    WriteFirmware,
)
from linkwright.model.records import Setting
from linkwright.model.values import LinkMode, port_label

from .errors import rule_words
from .explain import explain_lines
from .text import Line, Span, line, paragraph, port_labels, printable, text_width, wrap

INDENT = 15  # where a step's text begins: "  1 write      "


def plan_lines(
    plan: Plan,
    width: int | None,
    *,
    documents: Sequence[tuple[LinkPolicy | Target, str]] = (),
    apply_with: str = "",
    explain: bool = False,
) -> list[Line]:
    """``documents``: what was asked for, each with its ``file:line``. ``apply_with``: the command that does it."""
    lines: list[Line] = []
    for document, where in documents:
        lines += document_lines(document, where, plan, width)
    if plan.steps:
        lines += [line(), *step_lines(plan.steps, width)]
    if plan.problems:
        lines.append(line())
        for problem in plan.problems:
            lines += problem_lines(problem, width)
    if explain:
        lines += [line(), *explain_lines(plan, width)]
    lines.append(line())
    lines += summary_lines(plan, width)
    if apply_with and plan.steps:
        lines.append(line(f"Apply with: {apply_with}"))
    return lines


def document_lines(document: LinkPolicy | Target, where: str, plan: Plan, width: int | None) -> list[Line]:
    """``training.yaml:4  LinkPolicy training: InfiniBand on 0000:3b:00.0 p1 (was RoCE)``."""
    if isinstance(document, LinkPolicy):
        ports = [d.port for d in plan.decisions if d.policy == document.name]
        on = ", ".join(port_label(port) for port in ports) or "no port"
        was = {change.policy: _before(change.settings, document.spec.link_mode) for change in plan.changes}
        old = was.get(document.name)
        text = f"LinkPolicy {document.name}: {document.spec.link_mode.value} on {on}"
        text += f" (was {old})" if old else ""
    else:
        slots = {a.interface: (a.port, a.vf_index) for a in plan.assignments if a.target == document.name}
        for step in plan.steps:
            if isinstance(step, Attach) and step.target == document.name:
                slots[step.interface.name] = (step.port, step.vf_index)
        names = ", ".join(
            f"{each.name} on {_slot(*slots[each.name])}" if each.name in slots else f"{each.name} (no port)"
            for each in document.spec.interfaces
        )
        text = f"Target {document.name}: {names or 'no interface'}, policy {document.spec.policy}"
    words: list[Span] = [(where + " ", "dim")] if where else []
    return wrap([*words, *((word, "bold") for word in printable(text).split())], width, indent=2, first=0)


def step_lines(steps: Sequence[Step], width: int | None) -> list[Line]:
    """The numbered steps; interfaces of one port that are taken or given one after the other stand together.
    Where an interruption begins and where it ends is said."""
    rows = [(_verb(group[0]), _what(group), _why(group), group) for group in grouped(steps)]
    taken = [i for i, (*_, group) in enumerate(rows) if isinstance(group[0], Detach) and group[0].interrupts]
    given = [i for i, (*_, group) in enumerate(rows) if isinstance(group[0], Attach)]
    out: list[Line] = []
    most = None if width is None else (width - INDENT) // 2  # longer steps get their reason below
    sizes = [text_width(what) for _, what, _, _ in rows]
    room = max((size for size in sizes if most is None or size <= most), default=0)
    for index, (verb, what, why, group) in enumerate(rows):
        if taken and index == taken[0]:
            why = "; ".join(each for each in (why, "interrupted from here …") if each)
        if taken and given and index == given[-1] > taken[0]:
            why = "; ".join(each for each in (why, "… to here") if each)
        style = "wait" if any(step.interrupts or step.needs for step in group) else "bold"
        head: list[Span] = [(f"{index + 1:>3} ", "dim"), (f"{verb:<10} ", style)]
        if width is None or (text_width(what) <= room and INDENT + room + 2 + text_width(why) <= width):
            gap = " " * (room - text_width(what) + 2)
            out.append((*head, (what, ""), (gap if why else "", ""), (why, "dim")))
            continue
        body = paragraph(what, width - INDENT) if width > 2 * INDENT else [line(what)]
        out.append((*head, *body[0]))
        out += [((" " * INDENT, ""), *more) for more in body[1:]]
        if why:
            out += paragraph(why, width, indent=INDENT, style="dim")
    return out


def grouped(steps: Sequence[Step]) -> list[list[Step]]:
    """Detach (or attach) steps of one port and one reason that follow each other, as one entry."""
    out: list[list[Step]] = []
    for step in steps:
        if out and isinstance(step, (Detach, Attach)):
            last = out[-1][-1]
            if type(last) is type(step) and isinstance(last, (Detach, Attach)) and _alike(last, step):
                out[-1].append(step)
                continue
        out.append([step])
    return out


def _alike(one: Detach | Attach, other: Detach | Attach) -> bool:
    forget = [isinstance(each, Detach) and each.forget for each in (one, other)]
    return one.port == other.port and one.reason == other.reason and forget[0] == forget[1]


def _verb(step: Step) -> str:
    match step:
        case WriteFirmware():
            return "write"
        case SetVfs():
            return "functions"
        case Detach():
            return "detach"
        case Attach():
            return "attach"
        case ResetAdapter():
            return "reset"
        case RestartHost():
            return "restart"
        case Verify():
            return "verify"


def _what(group: Sequence[Step]) -> str:
    match group[0]:
        case WriteFirmware(command=command, pf=pf, settings=settings):
            text = shlex.join(command) or f"{pf}: " + " ".join(f"{s.name}={s.value}" for s in settings)
        case SetVfs(port=port, count=count, before=before, command=command):
            done = f" ({' '.join(command)})" if command else ""  # it holds a ">" that is not to be quoted
            text = f"{port_label(port)}: VFs {before} → {count}{done}"
        case Detach(port=port) | Attach(port=port):
            text = f"{port_label(port)}: " + ", ".join(_interface(step) for step in group)
        case ResetAdapter(pf=pf, command=command):
            text = shlex.join(command) or f"the adapter of {pf}"
        case RestartHost():
            text = "this host"
        case Verify(port=port, mode=mode):
            answers = ", subnet manager answers" if mode is LinkMode.INFINIBAND else ""
            text = f"{port_label(port)}: current and observed {mode.value}, link up{answers}"
    return printable(text)


def _interface(step: Step) -> str:
    if isinstance(step, Detach):
        return f"{step.target} {step.interface} ({_function(step.vf_index)})"
    assert isinstance(step, Attach)
    return f"{step.target} {step.interface.name} ({_function(step.vf_index)})"


def _why(group: Sequence[Step]) -> str:
    step = group[0]
    if isinstance(step, WriteFirmware):
        flips = [_flip(setting) for setting in step.settings]
        return printable("; ".join([*flips, step.reason] if step.reason else flips))
    if isinstance(step, Detach) and step.forget and not step.reason:
        return "not wanted any more; its function becomes free"
    return printable(step.reason)


_LINK_TYPES = {"1": "InfiniBand", "2": "RoCE"}


def _flip(setting: Setting) -> str:
    if setting.name.startswith("LINK_TYPE"):
        old = _LINK_TYPES.get(setting.before or "", setting.before)
        new = _LINK_TYPES.get(setting.value, setting.value)
        return f"next boot {old} → {new}" if old else f"next boot {new}"
    old = f"{setting.before} → " if setting.before else ""
    return f"{setting.name} {old}{setting.value}"


def _before(settings: Sequence[Setting], wanted: LinkMode) -> str | None:
    for setting in settings:
        old = _LINK_TYPES.get(setting.before or "")
        if setting.name.startswith("LINK_TYPE") and old and old != wanted.value:
            return old
    return None


def _slot(port: str, vf_index: int | None) -> str:
    return f"{port_label(port)} {_function(vf_index)}"


def _function(vf_index: int | None) -> str:
    return "PF" if vf_index is None else f"VF {vf_index}"


def problem_lines(problem: Problem, width: int | None) -> list[Line]:
    """``Refused (rule 2, in use): policy training: …`` with who holds it and what to type."""
    kind, style = {"refused": ("Refused", "bad"), "waiting": ("Waiting", "wait"), "note": ("Note", "dim")}[
        problem.severity
    ]
    subject = "" if problem.subject in problem.text else f"{problem.subject}: "
    words = [(f"{kind}{rule_words(problem.rule)}:", style)]
    words += [(word, "") for word in printable(port_labels(f"{subject}{problem.text}")).split()]
    lines = wrap(words, width, indent=2, first=0)
    if problem.holder and problem.holder not in problem.text:
        lines += paragraph(f"Held by {problem.holder}.", width, indent=2)
    if problem.next_step:
        lines += paragraph(problem.next_step, width, indent=2)
    return lines


def summary_lines(plan: Plan, width: int | None) -> list[Line]:
    """Impact in one paragraph: whom it interrupts, restarts, what is left alone."""
    if not plan.steps:
        blocked = any(problem.severity != "note" for problem in plan.problems)
        text = "Nothing is done now." if blocked else "Nothing to do: everything is as asked for."
        return paragraph(f"{text} {untouched(plan)}".strip(), width)
    parts = []
    if plan.interrupts:
        parts.append(f"Interrupts {count(len(plan.interrupts), 'target')}: {', '.join(plan.interrupts)}.")
    else:
        parts.append("Interrupts nobody.")
    if plan.restarts:
        parts.append("Restarts this host once.")
    parts.append(untouched(plan))
    return paragraph(" ".join(part for part in parts if part), width)


def untouched(plan: Plan) -> str:
    return f"Not touched: {'; '.join(plan.untouched)}." if plan.untouched else ""


def approval_lines(plan: Plan, width: int | None) -> list[Line]:
    """What a yes would agree to, exactly."""
    lines: list[Line] = []
    for approval in plan.approvals:
        lines += paragraph(f"- {approval.text}", width, indent=4, first=2, style="wait")
        named = [target for target in approval.interrupts if target not in approval.text]
        if named:
            lines += paragraph(f"interrupts {', '.join(named)}", width, indent=4)
        if approval.restarts and "restart" not in approval.text.lower():
            lines += paragraph("restarts this host", width, indent=4)
    return lines


def count(number: int, what: str) -> str:
    """``1 target``, ``2 targets``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
