"""The lab's host file: what an emulated host consists of. Read strictly, with file, line and field in each error.

The fields are described in docs/hostlab.md; ``hosts/gpu-01.yaml`` is an example.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from hostlab import personas
from linkwright.model.errors import InvalidInput
from linkwright.model.fields import Problems, builtins_of
from linkwright.model.values import LinkMode, pci_address
from linkwright.model.yamltree import read_yaml

PACKAGED = Path(__file__).with_name("hosts")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class Fabric(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    link_modes: tuple[LinkMode, ...]
    subnet_manager: bool = False


class HostAddresses(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The port carries the host's own traffic."""

    addresses: tuple[str, ...] = ()
    default_route: str | None = None


class Port(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """``address``: of the port's PF when it is in another slot or PCI domain than the card's first."""

    fabric: str | None = None
    host: HostAddresses | None = None
    address: str | None = None


class Adapter(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    persona: Any  # a name, or the fields written out as a capture does
    address: str
    ports: tuple[Port, ...] = ()
    connectors: tuple[str, ...] = ()  # further slots in which every port has a PF as well (Socket Direct)
    serial: str | None = None
    faults: dict[str, str] = {}


class HostFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    name: str
    agent: bool = False
    fabrics: dict[str, Fabric] = {}
    adapters: tuple[Adapter, ...] = ()


def load(path: Path) -> dict[str, Any]:
    """The file's content as ``build.build_machine`` and ``Lab.up`` take it. Raises InvalidInput."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise InvalidInput(
            f"cannot be read: {reason}",
            code="host-file-unreadable",
            where=str(path),
            next_step=f"Without a file the packaged host is used: {', '.join(packaged())}.",
        ) from None
    return parse(text, str(path))


def packaged() -> list[str]:
    """Names of the host files that come with the lab."""
    return sorted(path.stem for path in PACKAGED.glob("*.yaml"))


def find(name: str) -> Path:
    """A host file by path, or one of the packaged ones by name."""
    shipped = PACKAGED / f"{name}.yaml"
    return shipped if name in packaged() and not Path(name).exists() else Path(name)


def parse(text: str, source: str) -> dict[str, Any]:
    """``load`` for a text; ``source`` stands in errors."""
    documents = read_yaml(text, source)
    if len(documents) != 1:
        raise InvalidInput(
            f"holds {len(documents)} documents; a host file is one.",
            code="not-one-host",
            where=source,
            next_step="Write one file for each host.",
        )
    problems = Problems(source)
    values = builtins_of(msgspec.inspect.type_info(HostFile), documents[0], problems)
    if not problems.found:
        _check(values, problems)
    if problems.found:
        first, *others = problems.found
        if others:
            first.message += "".join(f"\n  {one}" for one in others)
        raise first
    host = msgspec.convert(values, HostFile)
    content: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(host))
    for adapter in content["adapters"]:
        adapter["faults"] = {name: fault_value(value) for name, value in adapter["faults"].items()}
        adapter["ports"] = [{k: v for k, v in port.items() if v is not None} for port in adapter["ports"]]
    return content


def fault_value(text: str) -> Any:
    """A fault's value as written by a person: true, false, a number, a list with commas, a word."""
    words = [word.strip() for word in text.strip("[]").split(",")]
    values = [_one_value(word) for word in words if word]
    return values if len(words) > 1 or text.startswith("[") else (values[0] if values else True)


def _one_value(word: str) -> Any:
    if word.lower() in ("true", "on", "yes"):
        return True
    if word.lower() in ("false", "off", "no"):
        return False
    try:
        return float(word) if "." in word else int(word)
    except ValueError:
        return word


def _check(values: dict[str, Any], problems: Problems) -> None:
    """What the types cannot say."""
    if not _NAME.fullmatch(values["name"]):
        problems.add("name", f"{values['name']!r} is not a host name (a-z, 0-9, -; at most 63).", code="bad-name")
    seen: set[str] = set()
    for index, adapter in enumerate(values.get("adapters", ())):
        path = f"adapters[{index}]"
        try:
            persona = personas.of(adapter["persona"])
        except InvalidInput as error:
            problems.add(f"{path}.persona", error.message, code=error.code, next_step=error.next_step)
        else:
            if not isinstance(adapter["persona"], str):
                adapter["persona"] = msgspec.to_builtins(persona)
        try:
            pci_address(f"{adapter['address']}.0")
        except ValueError:
            problems.add(
                f"{path}.address",
                f"{adapter['address']!r} is not like 0000:3b:00 (without a function).",
                code="bad-address",
            )
        if adapter["address"] in seen:
            problems.add(f"{path}.address", "is taken by another adapter.", code="bad-address")
        seen.add(adapter["address"])
        for connector in adapter.get("connectors", ()):
            _slot(connector, f"{path}.connectors", problems)
        for port in adapter.get("ports", ()):
            if port.get("address") is not None:
                _slot(port["address"].rpartition(".")[0], f"{path}.ports", problems)
        for number, port in enumerate(adapter.get("ports", ())):
            fabric = port.get("fabric")
            if fabric is not None and fabric not in values.get("fabrics", {}):
                problems.add(
                    f"{path}.ports[{number}].fabric",
                    f"{fabric!r} is not described under fabrics.",
                    code="unknown-fabric",
                )


def _slot(slot: str, path: str, problems: Problems) -> None:
    try:
        pci_address(f"{slot}.0")
    except ValueError:
        problems.add(path, f"{slot!r} is not like 0000:3b:00.", code="bad-address")
