"""The screen of ``linkwright audit``: each finding with what is done about it."""

from __future__ import annotations

from typing import Any

from .text import Line, line, printable

NOTHING = "Nothing is left behind: records, kernel and cards agree."


def audit_lines(answer: dict[str, Any], width: int | None) -> list[Line]:
    """``answer`` as the API gives it; ``repaired`` and ``failed`` are there after a repair."""
    lines: list[Line] = [
        (("repaired ", "good"), (printable(f"{_where(done['key'])}: {done['repair']}"), ""))
        for done in answer.get("repaired", ())
    ]
    for error in answer.get("failed", ()):
        lines.append((("FAILED   ", "bad"), (printable(f"{_where(error['key'])}: {error['message']}"), "")))
        if error.get("next"):
            lines.append(line(printable(f"         {error['next']}")))
    found = answer["findings"]
    for finding in found:
        lines.append(((finding["code"], "wait"), ("  " + printable(finding["text"]), "")))
        if finding["repair"]:
            lines.append(line(printable(f"  --repair: {finding['repair']}" + _yes(finding))))
        elif finding["next_step"]:
            lines.append(line(printable(f"  {finding['next_step']}")))
    if not found:
        lines.append(line(NOTHING))
    elif any(f["repair"] for f in found) and "repaired" not in answer:
        lines.append(line(f"{len(found)} found. Put right what is safe: linkwright audit --repair"))
    if not answer["settled"]:
        lines.append(line("The agent is at work: some of this may be gone in a moment. Look: linkwright status"))
    return lines


def _yes(finding: dict[str, Any]) -> str:
    return "" if finding["safe"] else " (asks first)"


def _where(key: str) -> str:
    return key.partition(":")[2]
