"""Cards whose link mode cannot be changed by us: other vendors' NICs. They have no parameters that we know.

Ethernet-only cards of the vendor need no driver of their own: mstconfig says that they lack LINK_TYPE_Pn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linkwright.model.errors import InvalidInput

from .base import CardReading, ResetDone, ResetOffer, Written


class FixedMode:
    """Keeps :class:`.base.FirmwareDriver`: every reading is empty, every write is refused."""

    def query(self, pf: str, names: Sequence[str] = ()) -> CardReading:
        return CardReading(missing=tuple(names))

    def write(self, pf: str, settings: Mapping[str, str]) -> Written:
        raise self._refusal(pf)

    def backup(self, pf: str) -> str:
        return ""

    def uptime_s(self, pf: str) -> int | None:
        return None

    def reset_offer(self, pf: str) -> ResetOffer:
        return ResetOffer()

    def reset(self, pf: str) -> ResetDone:
        raise self._refusal(pf)

    def version(self) -> str | None:
        return None

    @staticmethod
    def _refusal(pf: str) -> InvalidInput:
        return InvalidInput(
            "the card's link mode is fixed: it is no card whose firmware Linkwright can set",
            code="fixed-mode",
            where=pf,
            next_step="See what can be changed: linkwright nics",
        )
