"""Read what ``mstfwreset`` prints: a table per topic, with rows ``N: words  -Supported`` or ``-Not Supported``.

Driver sync needs a closer look. mstfwreset 4.21 prints the topic as ``Reset-sync`` (from the MCAM register) and
obeys ``--sync 1``. Later versions take it from the MROQ register and print ``Reset sync``; where the card has no
MROQ they still print ``Reset-sync``, and then **ignore** ``--sync 1`` and reset as the owner themselves, stopping
the drivers of all the vendor's cards (seen with 4.31). So there the offer counts as none.
"""

from __future__ import annotations

import re

from linkwright.model.errors import HardwareFault

from .base import ResetOffer

_TOPIC = re.compile(r"^(?P<topic>Reset-levels|Reset-types|Reset-sync|Reset sync|Reset request method)\b.*:\s*$")
_ROW = re.compile(r"^(?P<number>\d+): .*?-(?P<no>Not )?Supported\s*(?P<default>\(default\))?\s*$")
_LAST_THAT_OBEYS_MCAM = (4, 21)


def parse_offer(text: str, version: str | None) -> ResetOffer:
    """``version``: of the tool that printed it; raises HardwareFault ``unreadable-answer``."""
    supported: dict[str, list[int]] = {}
    default_level: int | None = None
    topic = ""
    for line in text.splitlines():
        if head := _TOPIC.match(line.strip()):
            topic = head["topic"]
            supported.setdefault(topic, [])
        elif topic and (row := _ROW.match(line.strip())) and not row["no"]:
            supported[topic].append(int(row["number"]))
            if topic == "Reset-levels" and row["default"]:
                default_level = int(row["number"])
    if "Reset-levels" not in supported:
        raise HardwareFault(
            "the tool's answer cannot be read: no reset levels in it", code="unreadable-answer", said=text[:4000]
        )
    by_mroq = 1 in supported.get("Reset sync", [])
    by_mcam = 1 in supported.get("Reset-sync", []) and _obeys_mcam(version)
    return ResetOffer(
        levels=tuple(supported["Reset-levels"]),
        default_level=default_level,
        types=tuple(supported.get("Reset-types", ())),
        driver_sync=by_mroq or by_mcam,
        said=text.strip(),
    )


def _obeys_mcam(version: str | None) -> bool:
    if version is None:
        return False
    return tuple(int(part) for part in version.split(".")[:2]) <= _LAST_THAT_OBEYS_MCAM


def succeeded(text: str) -> bool:
    """The tool looked at the firmware's uptime before and after, and saw it go back."""
    return "-I- FW was loaded successfully" in text
