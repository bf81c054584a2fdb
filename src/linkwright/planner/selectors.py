"""A policy's nicSelector against one port, field by field: the decision and its explanation are one thing.

All given fields must match (AND); any value of a field may (OR). An answer has three values: ``None`` means that
the card's identity cannot be read now, which is neither yes nor no.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.documents import NicSelector
from ..model.inventory import Adapter, Port
from ..model.plan import FieldMatch
from ..model.values import pci_address


def compared(selector: NicSelector, adapter: Adapter, port: Port) -> tuple[FieldMatch, ...]:
    """Each given field with the port's own value, in the order of docs/policies.md. A field that is not given
    forbids nothing and is left out."""
    identity, readable = adapter.identity, not adapter.faults
    found = (
        _is_one_of("pciAddresses", [_pci(a) for a in selector.pci_addresses], port.pf.address),
        _is_one_of("ports", map(str, selector.ports), str(port.number)),
        _is_one_of("partNumbers", selector.part_numbers, identity.part_number, readable),
        _is_one_of("serialNumbers", selector.serial_numbers, identity.serial, readable),
        _is_one_of("psids", selector.psids, identity.psid, readable),
        _is_one_of("deviceIDs", [_device(d) for d in selector.device_ids], identity.device_id, readable),
        _is_one_of("fabrics", selector.fabrics, port.fabric),
    )
    return tuple(each for each in found if each is not None)


def verdict(fields: Iterable[FieldMatch]) -> bool | None:
    """False as soon as one field says no; else None while one cannot be compared; else True."""
    answers = [each.answer for each in fields]
    if False in answers:
        return False
    return None if None in answers else True


def selects(selector: NicSelector, adapter: Adapter, port: Port) -> bool | None:
    """Does the selector name this port?"""
    return verdict(compared(selector, adapter, port))


def _is_one_of(
    field: str, wanted: Iterable[str], value: str | None, readable: bool = True
) -> FieldMatch | None:
    """A card that can be read and says nothing (no VPD, say) has no such value; one that cannot may have it."""
    values = tuple(w.strip() for w in wanted)
    if not values:
        return None
    answer: bool | None
    if value is None:
        answer = False if readable else None
    else:
        answer = value.strip().casefold() in {v.casefold() for v in values}
    return FieldMatch(field=field, wanted=values, has=value, answer=answer)


def _pci(text: str) -> str:
    try:
        return pci_address(text)
    except ValueError:
        return text


def _device(text: str) -> str:
    return text.lower().removeprefix("0x")
