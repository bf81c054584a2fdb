"""Errors as people read them: the kind first, then the object and the evidence, then what to type next."""

from __future__ import annotations

from linkwright.model.errors import HardwareFault, InvalidInput, LinkwrightError, NeedsPerson, Refused

from .text import Line, line, paragraph, printable

# The interlock's rules (docs/architecture.md section 3) in a few words each.
RULES = {
    1: "PF or VFs",
    2: "in use",
    3: "one activation",
    4: "not allowed",
    5: "write-ahead",
    6: "idempotent",
    7: "the host's own",
    8: "one mode for a group",
    9: "pure planning",
    10: "settled",
}


def rule_words(rule: int | None) -> str:
    """``(rule 2, in use)`` or nothing."""
    if not rule:
        return ""
    return f" (rule {rule}, {RULES[rule]})" if rule in RULES else f" (rule {rule})"


def error_lines(error: LinkwrightError, width: int | None) -> list[Line]:
    """One error; its first word is coloured by who must act."""
    style = "wait" if isinstance(error, NeedsPerson) or error.kind == "Busy" else "bad"
    head = error.kind + (rule_words(error.rule) if isinstance(error, Refused) else "")
    field = error.field if isinstance(error, InvalidInput) else ""
    where = ": ".join(each for each in (error.where, field) if each and each not in error.message)
    first, *rest = error.message.splitlines() or [""]
    text = f"{where}: {first}" if where else first
    lines = [line((f"{head}:", style), f" {printable(text)}")]
    for more in rest:
        lines += paragraph(more, width, indent=2)
    if isinstance(error, Refused) and error.holder and error.holder not in error.message:
        lines += paragraph(f"Held by {error.holder}.", width, indent=2)
    if isinstance(error, HardwareFault):
        if error.command:
            lines += paragraph(f"command: {error.command}", width, indent=2)
        if error.said:
            lines += paragraph(f"it said: {error.said}", width, indent=2)
    if error.next_step:
        lines += paragraph(error.next_step, width, indent=2)
    return lines
