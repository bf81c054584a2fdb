"""A card is compared with the one that was known in its place, as far as both tell who they are."""

from __future__ import annotations

from typing import Any

import pytest

from linkwright.discovery import known
from linkwright.model.inventory import Adapter, Function, Identity, Inventory, Port
from linkwright.model.records import KnownCard
from linkwright.model.values import Guid, PciAddress, PortId

PF = PciAddress("0000:3b:00.0")
GUID, OTHER = Guid("b8:3f:d2:03:00:11:22:33"), Guid("b8:3f:d2:03:00:11:22:99")


def inventory(**identity: Any) -> Inventory:
    port = Port(id=PortId(f"{PF}/1"), number=1, pf=Function(address=PF))
    return Inventory(
        host="gpu-01", boot_id="b", adapters=(Adapter(id="a", identity=Identity(**identity), ports=(port,)),)
    )


CARD = KnownCard(pf=PF, serial="MT1", part_number="A", system_image_guid=GUID, model="ConnectX-6 VPI", since=1.0)


@pytest.mark.parametrize(
    ("identity", "told"),
    [
        ({"serial": "MT1", "part_number": "A", "system_image_guid": GUID}, ""),
        ({"serial": "MT2", "part_number": "B", "system_image_guid": OTHER},
         f"serial MT1 → MT2, part number A → B, GUID {GUID} → {OTHER}"),
        ({"serial": "MT1", "part_number": "A", "system_image_guid": OTHER}, f"GUID {GUID} → {OTHER}"),
        ({"serial": "MT1", "part_number": "B", "psid": "x"}, "part number A → B"),
        ({}, ""),
        ({"part_number": "A_Ax"}, ""),  # the tool's name for the card: its VPD could not be read
        ({"serial": "MT1", "firmware": "99.1.1"}, ""),
    ],
)  # fmt: skip
def test_what_both_sides_know_is_compared(identity: dict[str, Any], told: str) -> None:
    (adapter,) = known.compared(inventory(**identity), {PF: CARD}).adapters
    assert adapter.replaced == told


def test_a_card_never_seen_before_is_remembered_and_then_nothing_is_new() -> None:
    seen = inventory(serial="MT1", part_number="A", system_image_guid=GUID, model="ConnectX-6 VPI")
    (card,) = known.to_remember(seen, {}, 1.0)
    assert card == CARD
    assert known.to_remember(seen, {PF: card}, 2.0) == []


def test_a_card_that_says_nothing_is_not_remembered_and_one_that_tells_more_is() -> None:
    assert known.to_remember(inventory(), {}, 1.0) == []
    (first,) = known.to_remember(inventory(system_image_guid=GUID), {}, 1.0)
    (more,) = known.to_remember(inventory(serial="MT1", part_number="A"), {PF: first}, 2.0)
    assert (more.serial, more.system_image_guid, more.since) == ("MT1", GUID, 1.0)


def test_another_card_is_not_remembered_by_itself() -> None:
    now = known.compared(inventory(serial="MT2", part_number="A"), {PF: CARD})
    assert known.to_remember(now, {PF: CARD}, 2.0) == []
