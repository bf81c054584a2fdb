"""Make a ``Machine`` from a lab's host file (already read from YAML; the fields are in docs/hostlab.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostlab import personas
from hostlab.firmware import Card
from hostlab.identity import give_identity
from hostlab.machine import AdapterState, FabricState, FunctionState, Machine, PortState
from linkwright.model.errors import InvalidInput
from linkwright.model.values import LinkMode, pci_address


def build_machine(host_spec: Mapping[str, Any], state_dir: Path) -> Machine:
    """``host_spec``: ``name``, ``fabrics`` {name: {linkModes, subnetManager}}, ``adapters`` [{persona, address,
    ports: [{fabric, host, address}], connectors, serial, faults {name: value}, numaNode}]. Cards keep their
    memory in ``state_dir`` (made if missing). The machine is off: set ``netdevs``, then ``boot()``. Raises
    InvalidInput for what is wrong in the file."""
    state_dir.mkdir(parents=True, exist_ok=True)
    name = str(host_spec.get("name", "host"))
    fabrics = {
        fabric: FabricState(
            fabric, tuple(_mode(m, fabric) for m in spec["linkModes"]), bool(spec.get("subnetManager"))
        )
        for fabric, spec in (host_spec.get("fabrics") or {}).items()
    }
    machine = Machine(name, fabrics)
    machine.adapters = [_adapter(machine, spec, state_dir) for spec in host_spec.get("adapters") or ()]
    return machine


def _adapter(machine: Machine, spec: Mapping[str, Any], state_dir: Path) -> AdapterState:
    persona = personas.of(spec["persona"])
    try:
        address = pci_address(f"{spec['address']}.0").removesuffix(".0")
    except ValueError:
        raise InvalidInput(
            f"adapter address {spec['address']!r} is not like 0000:3b:00",
            code="bad-address",
            where=machine.name,
            next_step='Write it in quotes, without a function: address: "0000:3b:00".',
        ) from None
    card = Card(persona, state_dir / f"card-{address.replace(':', '-')}.json")
    for fault, value in (spec.get("faults") or {}).items():
        card.set_fault(fault, value)
    adapter = AdapterState(persona, card, address)
    adapter.numa_node = int(spec.get("numaNode", 0))
    cables = list(spec.get("ports") or ())
    for number in range(1, persona.ports + 1):
        cable = cables[number - 1] if number <= len(cables) else {}
        fabric = cable.get("fabric")
        if fabric is not None and fabric not in machine.fabrics:
            raise InvalidInput(
                f"port {number} is cabled to fabric {fabric!r}, which the file does not describe",
                code="unknown-fabric",
                where=address,
                next_step=f"Known fabrics: {', '.join(machine.fabrics) or 'none'}.",
            )
        port = PortState(number, adapter, fabric, card.mode(number))
        port.host = cable.get("host") or {}
        port.pf = FunctionState(cable.get("address") or f"{address}.{number - 1}", adapter, port)
        adapter.ports.append(port)
    for connector in spec.get("connectors") or ():  # a PF of its own for each port
        for first in adapter.ports[: persona.ports]:
            port = PortState(first.number, adapter, first.fabric, first.mode)
            port.pf = FunctionState(f"{connector}.{first.number - 1}", adapter, port)
            adapter.ports.append(port)
    give_identity(adapter, machine.name, spec.get("serial"))
    card.reset_wanted = lambda: machine.reset(adapter)
    card.reset_allowed = lambda: machine.may_reset(adapter)
    return adapter


def _mode(text: str, where: str) -> LinkMode:
    try:
        return LinkMode(text)
    except ValueError:
        raise InvalidInput(
            f"{text!r} is not a link mode",
            code="bad-link-mode",
            where=where,
            next_step="Use InfiniBand or RoCE.",
        ) from None
