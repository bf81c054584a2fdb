"""Faults of an emulated host while it runs, by name: of a card's firmware, of an adapter, of a fabric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hostlab.firmware import FAULTS
from hostlab.machine import AdapterState, Machine
from hostlab.wire import Wire
from linkwright.model.errors import InvalidInput

ADAPTER_FAULTS = {
    "vanished": "true: the card falls off the bus; false: it comes back",
    "driver_reload": "true: somebody reloads the driver, all functions vanish and come back",
    "swapped": "true: another card of the same kind is put into the slot, as it leaves the factory",
    "merged": "true: a bond over its ports makes one RDMA device of them (RoCE mode only); false: apart again",
    "link_broken": "number of the port whose link does not come up whatever the fabric carries; 0: all are whole",
    "guid_zero": "number of the port that has no node GUID from its next reset or driver load on; 0: all have one",
}
HOST_FAULTS = {
    "meddler": "seconds: somebody's network manager ups, configures and renames each netdev so long after it came "
    "(back) to the host; false: it leaves them alone",
}
FABRIC_FAULTS = {"subnet_manager": "true or false: does a subnet manager answer on the fabric?"}


def known() -> dict[str, dict[str, str]]:
    """What ``apply`` takes: {"card": {name: meaning}, "adapter": …, "fabric": …}."""
    return {"card": dict(FAULTS), "adapter": ADAPTER_FAULTS, "host": HOST_FAULTS, "fabric": FABRIC_FAULTS}


def apply(machine: Machine, wire: Wire, arguments: Mapping[str, Any]) -> None:
    """``arguments``: ``where`` (an adapter's PCI address, with or without function, a fabric's name, or the
    host's), ``name``, ``value``. Raises InvalidInput."""
    where, name, value = str(arguments["where"]), str(arguments["name"]), arguments["value"]
    if where == machine.name:
        if name not in HOST_FAULTS:
            raise _unknown(name, HOST_FAULTS)
        wire.meddle(float(value) if value is not True else 0.0, on=bool(value))
        return
    if where in machine.fabrics:
        _fabric(machine, where, name, value)
        return
    adapter = next((a for a in machine.adapters if where in (a.address, *_addresses(a))), None)
    if adapter is None:
        places = [*(a.address for a in machine.adapters), *machine.fabrics]
        raise InvalidInput(
            f"has neither an adapter nor a fabric {where!r}",
            code="unknown-place",
            where=machine.name,
            next_step=f"It has {', '.join(places)}.",
        )
    if name == "vanished":
        machine.vanish(adapter) if value else machine.reappear(adapter)
    elif name == "driver_reload":
        machine.reload_driver(adapter)
    elif name == "swapped":
        machine.swap(adapter)
    elif name == "merged":
        machine.merge_ports(adapter, bool(value))
    elif name == "guid_zero":
        with machine.lock:
            for port in adapter.ports:
                port.guid_zero = port.number == int(value)
    elif name == "link_broken":
        with machine.lock:
            for port in adapter.ports:
                port.link_broken = port.number == int(value)
        wire.refresh()
    elif name in FAULTS:
        adapter.firmware.set_fault(name, value)
    else:
        raise _unknown(name, {**FAULTS, **ADAPTER_FAULTS})


def _fabric(machine: Machine, fabric: str, name: str, value: Any) -> None:
    if name not in FABRIC_FAULTS:
        raise _unknown(name, FABRIC_FAULTS)
    with machine.lock:
        machine.fabrics[fabric].subnet_manager = bool(value)
        machine.changed.notify_all()


def _addresses(adapter: AdapterState) -> list[str]:
    return [fn.address for port in adapter.ports for fn in port.functions]


def _unknown(name: str, choices: Mapping[str, str]) -> InvalidInput:
    return InvalidInput(
        f"there is no such fault here; known: {', '.join(choices)}",
        code="unknown-fault",
        where=name,
        next_step="linkwright lab personas lists them with their meaning.",
    )
