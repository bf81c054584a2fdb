"""Answers from a capture: the texts that the tools printed on another host, read as if they were printed now.

Also what stands for the firmware of a copied ``/sys`` without such texts: then everything is unknown. In no case
is a tool run, because the addresses in a copy may be those of this machine's own cards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from linkwright.model.errors import HardwareFault, InvalidInput, LinkwrightError

from . import faults, mstfwreset, tables
from .base import CardReading, ResetDone, ResetOffer, Written
from .tool import Answer

MANIFEST = "capture.json"
DIRECTORY = "firmware"
_LIMIT = 4 << 20


class Captured:
    """Keeps :class:`.base.FirmwareDriver` over the directory of a capture (``firmware/<PCI address>.json``)."""

    def __init__(self, root: Path, version: str | None) -> None:
        self._root = root
        self._version = version

    @classmethod
    def around(cls, sys: Path) -> Captured | None:
        """The capture that ``sys`` is a part of (``DIR/sys`` beside ``DIR/capture.json``), or None.

        Raises InvalidInput ``bad-capture`` when the manifest cannot be read."""
        file = sys.parent / MANIFEST
        if not file.is_file():
            return None
        try:
            manifest = msgspec.json.decode(_bounded(file), type=dict[str, object])
        except (OSError, msgspec.MsgspecError) as e:
            raise InvalidInput(f"no manifest of a capture: {e}", code="bad-capture", where=str(file)) from e
        version = manifest.get("mstflint")
        return cls(sys.parent, version if isinstance(version, str) else None)

    def query(self, pf: str, names: Sequence[str] = ()) -> CardReading:
        answer = self._answer(pf, "query")
        failure = faults.fault(pf, answer) if answer.code != 0 else None
        if failure is not None and failure.code != "partial-query":
            raise failure
        reading = tables.parse_query(answer.text)
        if failure is not None and not (names and all(n in reading.params for n in names)):
            raise failure
        if not names:
            return reading
        return CardReading(
            device_type=reading.device_type,
            name=reading.name,
            description=reading.description,
            params={n: reading.params[n] for n in names if n in reading.params},
            missing=tuple(n for n in dict.fromkeys(names) if n not in reading.params),
        )

    def backup(self, pf: str) -> str:
        return self._answer(pf, "query").text

    def uptime_s(self, pf: str) -> int | None:
        try:
            return tables.parse_uptime(self._answer(pf, "uptime").text)
        except LinkwrightError:
            return None

    def reset_offer(self, pf: str) -> ResetOffer:
        answer = self._answer(pf, "reset")
        if answer.code != 0:
            raise faults.fault(pf, answer)
        return mstfwreset.parse_offer(answer.text, self._version)

    def version(self) -> str | None:
        return self._version

    def write(self, pf: str, settings: Mapping[str, str]) -> Written:
        raise read_only(pf)

    def reset(self, pf: str) -> ResetDone:
        raise read_only(pf)

    def _answer(self, pf: str, what: str) -> Answer:
        """What the tool printed there and how it ended."""
        slot = pf.rpartition("/")[2].rpartition(".")[0]
        # A capture asks one PF of each card: its settings are the card's.
        of_card = sorted((self._root / DIRECTORY).glob(f"{slot}.?.json"))
        file = next((f for f in of_card if f.stem == pf), of_card[0] if of_card else self._root / DIRECTORY / pf)
        try:
            answers = msgspec.json.decode(_bounded(file), type=dict[str, Answer])
        except FileNotFoundError:
            answers = {}
        except (OSError, msgspec.MsgspecError) as e:
            raise InvalidInput(f"not readable as a capture: {e}", code="bad-capture", where=str(file)) from e
        answer = answers.get(what)
        if answer is None:
            raise not_captured(pf)
        return answer


class NotCaptured:
    """Keeps :class:`.base.FirmwareDriver` for a copied tree that says nothing of firmware."""

    def query(self, pf: str, names: Sequence[str] = ()) -> CardReading:
        raise not_captured(pf)

    def backup(self, pf: str) -> str:
        raise not_captured(pf)

    def uptime_s(self, pf: str) -> int | None:
        return None

    def reset_offer(self, pf: str) -> ResetOffer:
        raise not_captured(pf)

    def version(self) -> str | None:
        return None

    def write(self, pf: str, settings: Mapping[str, str]) -> Written:
        raise read_only(pf)

    def reset(self, pf: str) -> ResetDone:
        raise read_only(pf)


def not_captured(pf: str) -> HardwareFault:
    return HardwareFault(
        "the copied tree does not hold what the firmware said",
        code="not-captured",
        where=pf,
        next_step="Make a full copy on that host: linkwright capture",
    )


def read_only(pf: str) -> InvalidInput:
    return InvalidInput("a captured host can only be looked at", code="capture-read-only", where=pf)


def _bounded(file: Path) -> bytes:
    with file.open("rb") as f:
        return f.read(_LIMIT)
