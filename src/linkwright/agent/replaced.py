"""A swapped card: what ``linkwright adapter replace`` does once a person said that the new card is meant.

The new card is remembered in the old one's place. What the old card's firmware was told says nothing of the new
one, so its settings leave the records of mode changes (else "activated once already" would hold it back), and
changes that were only about it are ended. Slots stay: targets get functions of the new card.
"""

from __future__ import annotations

import time
from typing import Any

from msgspec.structs import replace

from ..discovery import known
from ..model.errors import InvalidInput
from ..model.inventory import Adapter
from ..model.records import HistoryEntry, ModeChange, Phase
from ..model.values import LinkMode, pci_address
from .world import World


def accept(world: World, address: str, who: str, why: str) -> dict[str, Any]:
    """Raises InvalidInput ``unknown-adapter``, ``adapter-not-replaced``."""
    question, cursor = world.look(fresh=True), world.progress.last
    adapter = _named(question.inventory.adapters, address)
    if not adapter.replaced:
        raise InvalidInput(
            "is the card that is known there; nothing is to be accepted",
            code="adapter-not-replaced",
            where=address,
            next_step="Look: linkwright nics",
        )
    now, store = time.time(), world.store
    ports = {port.id for port in adapter.ports}
    with store.transaction():
        store.put_cards(known.of(adapter, port.pf.address, now) for port in adapter.ports)
        for change in store.changes():
            if ports & set(change.ports):
                store.put_change(_without(change, adapter, now))
        for attachment in store.attachments():
            if attachment.port in ports:
                store.put_attachment(replace(attachment, adapter=adapter.id))
        store.add_history(
            HistoryEntry(
                at=now,
                who=who,
                what=f"adapter replace {adapter.ports[0].pf.address}",
                why=why,
                after=adapter.replaced,
            )
        )
    world.ask("adapter replace")
    return {
        "adapter": adapter.ports[0].pf.address,
        "model": adapter.identity.model,
        "serial": adapter.identity.serial,
        "differs": adapter.replaced,
        "modes": {port.id: _mode(port.current_mode or port.observed_mode) for port in adapter.ports},
        "cursor": cursor,
    }


def _mode(mode: LinkMode | None) -> str | None:
    return mode.value if mode is not None else None


def _named(adapters: tuple[Adapter, ...], address: str) -> Adapter:
    """By the address of any of its functions, or of its slot (``0000:3b:00``)."""
    try:
        wanted = pci_address(address if "." in address else f"{address}.0")
    except ValueError:
        wanted = None
    for adapter in adapters:
        if any(f.address == wanted for port in adapter.ports for f in port.functions):
            return adapter
    raise InvalidInput(
        "this host has no such adapter",
        code="unknown-adapter",
        where=address,
        next_step="Look: linkwright nics",
    )


def _without(change: ModeChange, adapter: Adapter, now: float) -> ModeChange:
    """The change as it is without this card; ended, when it was about nothing else."""
    pfs = {port.pf.address for port in adapter.ports}
    left = replace(change, settings=tuple(s for s in change.settings if s.pf not in pfs))
    only = set(change.ports) <= {port.id for port in adapter.ports}
    if not only or change.phase is Phase.DONE:
        return left
    detail = f"ended: the card was replaced (it was {change.phase.value})"
    return replace(left, phase=Phase.DONE, phase_since=now, detail=detail, reason_code="", next_step="")
