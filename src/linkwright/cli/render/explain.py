"""``linkwright plan --explain``: for each port which policy names it, by which fields, or which field says no."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from linkwright.model.plan import FieldMatch, Plan, PortDecision, PortMatch
from linkwright.model.values import port_label

from .text import Line, line, paragraph, printable

SEMANTICS = "A policy names a port when every field that its nicSelector gives has the port's value among its own."
SHOWN = 3  # values of one field; whole lists are in the document


def explain_lines(plan: Plan, width: int | None) -> list[Line]:
    """A block for each port: what was decided, then every policy with the fields that decided."""
    lines = [line(("Ports", "head")), *paragraph(SEMANTICS, width, indent=2, style="dim")]
    decided = {each.port: each for each in plan.decisions}
    ports = sorted({each.port for each in plan.matches} | set(decided))
    for port in ports:
        mine = [each for each in plan.matches if each.port == port]
        lines.append(line("  ", (port_label(port), "bold"), f"  {_decision(decided.get(port), mine)}"))
        for each in sorted(mine, key=lambda m: (m.answer is not True, m.answer is False, m.policy)):
            sign, style = {True: ("✔", "good"), False: ("✖", "dim"), None: ("?", "wait")}[each.answer]
            body = paragraph(_said(each), width, indent=8, first=0)
            lines += [((f"    {sign} ", style), *body[0]), *body[1:]]
    return lines if ports else [*lines, line("  no port and no policy")]


def _decision(decided: PortDecision | None, mine: Sequence[PortMatch]) -> str:
    if decided is None or decided.policy is None:
        kept = next((each.why_not for each in mine if each.why_not), "")
        if kept:
            return printable(f"left as it is: {kept}")
        return "no policy names it: only observed"
    form = {
        "PF": "gives its PF",
        "VF": f"gives VFs ({decided.num_vfs or 0})",
        None: "nothing declared on it",
    }[decided.form]
    mode = decided.desired.value if decided.desired else "mode unknown"
    return printable(f"policy {decided.policy}: {mode}, {form}")


def _said(match: PortMatch) -> str:
    head = f"policy {match.policy}: "
    if match.answer:
        return printable(head + "named by " + _all(_has(each) for each in match.fields))
    if match.answer is None:
        unsure = [f"{each.field} of the card cannot be read now" for each in match.fields if each.answer is None]
        return printable(head + "cannot tell: " + _all(unsure))
    failed = [each for each in match.fields if each.answer is False]
    return printable(head + "not named: " + _all(_lacks(each) for each in failed))


def _has(field: FieldMatch) -> str:
    return f"{field.field} {field.has}"


def _lacks(field: FieldMatch) -> str:
    wanted = " or ".join(field.wanted[:SHOWN])
    more = len(field.wanted) - SHOWN
    wanted += f" or {more} more" if more > 0 else ""
    return f"{field.field} wants {wanted}, it has {field.has or 'none'}"


def _all(texts: Iterable[str]) -> str:
    return " and ".join(texts)
