"""Read what mstconfig and mstreg print: pure functions, text in, values out.

The tables pad values to 16 (4.21) or 20 (4.31) characters and print longer ones unpadded, so a long value
touches the next one with a single blank or none: columns and runs of blanks are no separators. A row is
therefore read as a name and then as many value tokens as the header has columns.

Every function raises HardwareFault ``unreadable-answer`` (or a mapped fault, see ``faults.py``) and nothing else,
for whatever bytes a tool printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from linkwright.model.errors import HardwareFault

from .base import Activation, CardReading, Reading

_COLUMNS = re.compile(r"^Configurations:\s*(?P<columns>(?:(?:Default|Current|Next Boot|New)\s*)+)$", re.MULTILINE)
_COLUMN = re.compile(r"Default|Current|Next Boot|New")
_HEADER = re.compile(r"^(?P<key>Device type|Name|Description):[ \t]*(?P<value>.*?)[ \t]*$", re.MULTILINE)
_ROW = re.compile(
    r"^\s*(?:\*\s*)?(?P<ro>RO\s+)?(?P<name>[A-Z][A-Z0-9_]*(?:\[\d+(?:\.\.\d+)?\])?)\s+(?P<values>\S.*?)\s*$"
)
_TOKEN = re.compile(r"Array\[\d+\.\.\d+\]|[^\s()]+\(\s*(?:0x[0-9a-fA-F]+|\d+)\s*\)|N/A|\S+")
_ACTIVATION = re.compile(r"-I- Please (?P<how>reboot|power cycle) machine to load new configurations")
_UPTIME = re.compile(r"^\s*uptime\s*\|\s*(?P<value>0x[0-9a-fA-F]{1,8})\s*$", re.MULTILINE)
_UNKNOWN = ("", "N/A")


def parse_query(text: str) -> CardReading:
    """The table of ``mstconfig query`` (4.21 to 4.36), of any number of columns."""
    header = _COLUMNS.search(text)
    if header is None:
        raise _unreadable("no line 'Configurations: … Next Boot' in the answer", text)
    columns = _COLUMN.findall(header["columns"])
    params: dict[str, Reading] = {}
    for line in text[header.end() :].splitlines():
        row = _ROW.match(line)
        if row is None:
            continue
        values = _values(row["values"], len(columns))
        if values is None:
            params[row["name"]] = Reading(read_only=bool(row["ro"]))
            continue
        by_column = dict(zip(columns, values, strict=True))
        params[row["name"]] = Reading(
            default=by_column.get("Default"),
            current=by_column.get("Current"),
            next=by_column.get("Next Boot"),
            read_only=bool(row["ro"]),
        )
    return described(text, CardReading(params=params))


def described(text: str, reading: CardReading) -> CardReading:
    """``reading`` with device type, part number and description from the head of a table, where it has one."""
    head = {m["key"]: m["value"] for m in _HEADER.finditer(text) if m["value"] not in _UNKNOWN}
    return CardReading(
        device_type=head.get("Device type", reading.device_type),
        name=head.get("Name", reading.name),
        description=head.get("Description", reading.description),
        params=reading.params,
        missing=reading.missing,
    )


def _values(text: str, count: int) -> Sequence[str | None] | None:
    """Exactly ``count`` values, or None: a row that cannot be told apart is unknown, never guessed."""
    tokens = _TOKEN.findall(text)
    if len(tokens) != count:
        tokens = re.split(r"\s{2,}", text)  # strings with single blanks in them
    if len(tokens) != count:
        return None
    return [None if token in _UNKNOWN else token for token in tokens]


def parse_query_json(text: str) -> CardReading:
    """The file that ``mstconfig -j`` writes (4.31 and later); one device."""
    try:
        top = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise _unreadable(f"no JSON ({e})", text) from e
    device = next(iter(top.values()), None) if isinstance(top, dict) else None
    table = device.get("tlv_configuration") if isinstance(device, dict) else None
    if not isinstance(device, dict) or not isinstance(table, dict):
        raise _unreadable("JSON without a device's tlv_configuration", text)
    return CardReading(
        device_type=_text(device.get("device_type")),
        name=_text(device.get("name")),
        description=_text(device.get("description")),
        params={str(name): _reading(row) for name, row in table.items() if isinstance(row, dict)},
    )


def _reading(row: dict[str, Any]) -> Reading:
    return Reading(
        default=_text(row.get("default_value")),
        current=_text(row.get("current_value")),
        next=_text(row.get("next_value")),
        read_only=row.get("read_only") is True,
    )


def _text(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value).strip()
    return None if text in _UNKNOWN else text


def parse_activation(text: str) -> Activation:
    """What loads the new settings, in the tool's own word (``mlxcfg_ui.cpp``: it says "power cycle" when the
    card refused the MFRL write that arms a warm reboot, and then a plain reboot does not load them)."""
    match = _ACTIVATION.search(text)
    if match is None:
        return "unknown"
    return "reboot" if match["how"] == "reboot" else "power-cycle-or-reset"


def parse_uptime(text: str) -> int | None:
    """``uptime`` of the MGIR register as mstreg prints it, in seconds."""
    match = _UPTIME.search(text)
    return int(match["value"], 16) if match else None


def _unreadable(why: str, text: str) -> HardwareFault:
    return HardwareFault(
        f"the tool's answer cannot be read: {why}",
        code="unreadable-answer",
        said=text[:4000],
        next_step="Run the command by hand and report its output: linkwright capture keeps it.",
    )
