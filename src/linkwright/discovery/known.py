"""Is the card behind a PF still the one that was known there? Pure: identities compared, nothing read.

A card is told by its serial number and part number (VPD) and by its system image GUID. Each is compared only where
both sides know it: a card that cannot be read now is not another one. Boards with several cards give all of them
one serial number, so the GUID counts as well; firmware and PSID change with an update and do not.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from linkwright.model.inventory import Adapter, Identity, Inventory
from linkwright.model.records import KnownCard
from linkwright.model.values import PciAddress


def compared(inventory: Inventory, known: Mapping[str, KnownCard]) -> Inventory:
    """The same inventory, with ``replaced`` filled in for every card that is another one than is known."""
    return replace(inventory, adapters=tuple(_compared(a, known) for a in inventory.adapters))


def _compared(adapter: Adapter, known: Mapping[str, KnownCard]) -> Adapter:
    for port in adapter.ports:
        card = known.get(port.pf.address)
        told = differences(card, adapter.identity) if card is not None else ""
        if told:
            return replace(adapter, replaced=told)
    return adapter


def differences(card: KnownCard, now: Identity) -> str:
    """``serial MT1 → MT2, part number A → B``; empty when nothing that both sides know differs."""
    pairs = [
        ("serial", card.serial, now.serial),
        ("part number", card.part_number, now.part_number if now.serial is not None else None),
        ("GUID", card.system_image_guid, now.system_image_guid),
    ]
    return ", ".join(f"{what} {old} → {new}" for what, old, new in pairs if old and new and old != new)


def of(adapter: Adapter, pf: PciAddress, now: float) -> KnownCard:
    """The record of a card as it is seen now."""
    identity = adapter.identity
    return KnownCard(
        pf=pf,
        serial=identity.serial,
        part_number=identity.part_number if identity.serial is not None else None,
        system_image_guid=identity.system_image_guid,
        model=identity.model,
        since=now,
    )


def to_remember(inventory: Inventory, known: Mapping[str, KnownCard], now: float) -> list[KnownCard]:
    """Records to store: of cards never seen before, and of those that now tell more than they did. A card that is
    another one is not remembered: that takes a person."""
    out = []
    for adapter in inventory.adapters:
        if adapter.replaced:
            continue
        for port in adapter.ports:
            seen, card = of(adapter, port.pf.address, now), known.get(port.pf.address)
            if card is not None:
                seen = KnownCard(
                    pf=card.pf,
                    serial=card.serial or seen.serial,
                    part_number=card.part_number or seen.part_number,
                    system_image_guid=card.system_image_guid or seen.system_image_guid,
                    model=card.model or seen.model,
                    since=card.since,
                )
            if seen != card and (seen.serial or seen.system_image_guid):
                out.append(seen)
    return out
