"""One thing that is not as it should be, as a value for people and programs."""

from __future__ import annotations

from msgspec import Struct


class Finding(Struct, frozen=True, kw_only=True):
    """``key`` names it in a repair request; the same finding has the same key in each audit.

    ``repair``: what ``--repair`` would do, in words; empty when it is nothing for us to do. ``safe``: nobody can
    be using it and the kernel or our own record tells how it was before, so no yes is needed. ``function``: its
    PCI address, ``target``/``interface``: the record it is about, when there is one.
    """

    code: str
    where: str
    text: str
    repair: str = ""
    safe: bool = False
    next_step: str = ""
    function: str = ""
    target: str = ""
    interface: str = ""

    @property
    def key(self) -> str:
        return f"{self.code}:{self.where}"
