"""Rules on what the fields mean, over the plain values that fields.py made; also spells values the normal way.

Each check adds to ``problems`` and goes on: a person sees everything that is wrong with a file at once. A value
that is absent or already reported (None) is not looked at again. The checks change the values in place.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

from . import checks
from .documents import API_VERSION
from .fields import Problems
from .values import LinkMode

Check = Callable[[str], str]

MAX_VFS = 65535
"""TotalVFs has 16 bits (PCI Express SR-IOV capability); the card's own limit is checked when it is planned."""


def check(kind: str, document: dict[str, Any], problems: Problems) -> None:
    """All rules for one document of ``kind``."""
    version = document.get("apiVersion")
    if version is not None and version != API_VERSION:
        problems.add(
            "apiVersion",
            f'"{version}" is not known here; this version reads {API_VERSION}.',
            code="unknown-value",
        )
    metadata = document.get("metadata") or {}
    _text(metadata, "name", checks.name, problems, "metadata")
    spec = document.get("spec") or {}
    {"LinkPolicy": _policy, "Target": _target, "HostConfig": _host}[kind](spec, problems)


# -- LinkPolicy ------------------------------------------------------------------------------------------------


def _policy(spec: dict[str, Any], problems: Problems) -> None:
    _selector(spec.get("nicSelector"), problems)
    functions = spec.get("functions") or {}
    _number(functions, "numVfs", 1, MAX_VFS, problems, "spec.functions")
    if functions.get("assign") == "PF" and functions.get("numVfs") is not None:
        problems.add(
            "spec.functions.numVfs",
            "has no meaning with assign: PF, which gives no VFs.",
            code="contradiction",
            next_step="Remove it, or set assign to Auto or VF.",
        )
    activation = spec.get("activation") or {}
    _text(activation, "timeout", checks.duration, problems, "spec.activation")
    for number, window in enumerate(activation.get("windows") or []):
        here = f"spec.activation.windows[{number}]"
        _text(window, "schedule", checks.schedule, problems, here)
        _text(window, "duration", checks.duration, problems, here)
        _text(window, "timeZone", checks.time_zone, problems, here)
    _mode_blocks(spec, problems)


def _selector(selector: Any, problems: Problems) -> None:
    if not isinstance(selector, dict):
        return
    here = "spec.nicSelector"
    if not any(selector.values()) and not any(p.field.startswith(f"{here}.") for p in problems.found):
        problems.add(
            here,
            "names no port.",
            code="empty-selector",
            next_step='Give at least one field, for example: nicSelector: {pciAddresses: ["0000:3b:00.0"]}',
        )
    _texts(selector, "pciAddresses", checks.pci_address, problems, here)
    _texts(selector, "deviceIDs", checks.device_id, problems, here)
    for name in ("partNumbers", "psids", "serialNumbers", "fabrics"):
        _texts(selector, name, checks.given, problems, here)
    for number, port in enumerate(selector.get("ports") or []):
        if isinstance(port, int) and not 1 <= port <= 99:
            problems.add(
                f"{here}.ports[{number}]",
                f"{port} is not a port number; the ports of a card count from 1.",
                code="out-of-range",
            )


def _mode_blocks(spec: dict[str, Any], problems: Problems) -> None:
    """A block of settings belongs to one link mode; with the other it would be ignored, so it is refused."""
    mode = spec.get("linkMode")
    for block, its in (("roce", LinkMode.ROCE), ("infiniband", LinkMode.INFINIBAND)):
        if spec.get(block) is not None and mode is not None and mode != its.value:
            fields = ", ".join(sorted(spec[block])) if isinstance(spec[block], dict) else ""
            problems.add(
                f"spec.{block}",
                f"{fields + ' ' if fields else ''}belongs to {its.value}, but linkMode is {mode}.",
                code="mode-mismatch",
                next_step=f"Remove the block, or set linkMode to {its.value}.",
            )
    roce = spec.get("roce") or {}
    _number(roce, "mtu", 68, 9978, problems, "spec.roce")
    _number(roce, "trafficClass", 0, 255, problems, "spec.roce")
    _number(roce, "vlan", 1, 4094, problems, "spec.roce")
    for number, priority in enumerate(roce.get("pfc") or []):
        if isinstance(priority, int) and not 0 <= priority <= 7:
            text = f"{priority} is not a priority from 0 to 7."
            problems.add(f"spec.roce.pfc[{number}]", text, code="out-of-range")
    _text((spec.get("infiniband") or {}).get("pkey") or {}, "value", checks.pkey, problems, "spec.infiniband.pkey")


# -- Target ----------------------------------------------------------------------------------------------------


def _target(spec: dict[str, Any], problems: Problems) -> None:
    _text(spec, "policy", checks.name, problems, "spec")
    _text(spec, "group", checks.name, problems, "spec")
    _container(spec, problems)
    interfaces = spec.get("interfaces")
    if isinstance(interfaces, list) and not interfaces and "spec.interfaces" in problems.lines:
        problems.add("spec.interfaces", "is empty; a target has at least one interface.", code="missing-field")
    for number, interface in enumerate(interfaces or []):
        _interface(interface, problems, f"spec.interfaces[{number}]")
    for field, what in (("name", "interface"), ("rdmaName", "RDMA device")):
        _distinct(
            [(f"spec.interfaces[{n}].{field}", i.get(field)) for n, i in enumerate(interfaces or [])],
            f"names a second {what} of this target",
            problems,
        )
    _distinct(
        [
            (f"spec.interfaces[{n}].addresses[{m}]", _host_part(address))
            for n, i in enumerate(interfaces or [])
            for m, address in enumerate(i.get("addresses") or [])
        ],
        "is given to this target twice",
        problems,
    )


def _container(spec: dict[str, Any], problems: Problems) -> None:
    container = spec.get("container")
    if container is None:
        if "spec.container" not in problems.lines and "spec" in problems.lines:
            problems.add(
                "spec.container",
                "is missing; a target is a container.",
                code="missing-field",
                next_step="Write container: {name: NAME}, or container: {netns: /run/netns/NAME}.",
            )
        return
    if (container.get("name") is None) == (container.get("netns") is None):
        both = container.get("name") is not None
        problems.add(
            "spec.container",
            "has both name and netns." if both else "has neither name nor netns.",
            code="contradiction" if both else "missing-field",
            next_step="Give one of them: the runtime's name, or the path of the network namespace.",
        )
    _text(container, "name", checks.container_name, problems, "spec.container")
    _text(container, "netns", checks.netns_path, problems, "spec.container")


def _interface(interface: dict[str, Any], problems: Problems, here: str) -> None:
    _text(interface, "name", checks.interface_name, problems, here)
    _text(interface, "fabric", checks.given, problems, here)
    _text(interface, "rdmaName", checks.rdma_name, problems, here)
    _text(interface, "mac", checks.mac, problems, here)
    _texts(interface, "addresses", checks.ip_interface, problems, here)
    _number(interface, "mtu", 68, 65520, problems, here)
    for number, route in enumerate(interface.get("routes") or []):
        _route(route, problems, f"{here}.routes[{number}]")


def _route(route: dict[str, Any], problems: Problems, here: str) -> None:
    for name in route:
        if name not in ("to", "via"):
            problems.add(f"{here}.{name}", "no such field; a route has to and via.", code="unknown-field")
    if "to" not in route:
        problems.add(f"{here}.to", "is missing.", code="missing-field")
    _text(route, "to", checks.network, problems, here)
    _text(route, "via", checks.ip_address, problems, here)
    to, via = route.get("to"), route.get("via")
    if to == "default" and via is None and "via" not in route:
        problems.add(f"{here}.via", "is missing; the default route needs a gateway.", code="missing-field")
    elif to not in (None, "default") and via is not None and _version(to) != _version(via):
        problems.add(f"{here}.via", f"{via} is of another IP version than {to}.", code="contradiction")


def _version(text: str) -> int:
    return ipaddress.ip_network(text).version


def _host_part(address: Any) -> Any:
    return address.split("/", 1)[0] if isinstance(address, str) else None


# -- HostConfig ------------------------------------------------------------------------------------------------


def _host(spec: dict[str, Any], problems: Problems) -> None:
    _texts(spec, "protect", checks.protected, problems, "spec")
    _texts(spec, "allowOwnTraffic", checks.protected, problems, "spec")
    _texts(spec, "takeOver", checks.owner, problems, "spec")
    _text(spec, "subnetManagerTimeout", checks.duration, problems, "spec")
    _text(spec, "linkTimeout", checks.duration, problems, "spec")
    ports: list[tuple[str, Any]] = []
    for name, fabric in (spec.get("fabrics") or {}).items():
        here = f"spec.fabrics.{name}"
        try:
            checks.name(name)
        except ValueError as error:
            problems.add(here, str(error), code="wrong-value")
        if "linkModes" in fabric and not fabric["linkModes"]:
            text = "is empty; a fabric carries at least one mode."
            problems.add(f"{here}.linkModes", text, code="missing-field")
        _texts(fabric, "ports", checks.port, problems, here)
        ports += [(f"{here}.ports[{n}]", port) for n, port in enumerate(fabric.get("ports") or [])]
    _distinct(ports, "is on two fabrics", problems)
    for number, proven in enumerate(spec.get("resetProven") or []):
        for field in ("psid", "firmware"):
            _text(proven, field, checks.given, problems, f"spec.resetProven[{number}]")


# -- small parts -----------------------------------------------------------------------------------------------


def _text(values: dict[str, Any], name: str, check_one: Check, problems: Problems, here: str) -> None:
    if isinstance(values.get(name), str):
        values[name] = _checked(values[name], check_one, problems, f"{here}.{name}")


def _texts(values: dict[str, Any], name: str, check_one: Check, problems: Problems, here: str) -> None:
    if isinstance(values.get(name), list):
        values[name] = [
            _checked(v, check_one, problems, f"{here}.{name}[{n}]") if isinstance(v, str) else v
            for n, v in enumerate(values[name])
        ]


def _checked(text: str, check_one: Check, problems: Problems, path: str) -> str | None:
    try:
        return check_one(text)
    except ValueError as error:
        problems.add(path, str(error), code="wrong-value")
        return None


def _number(values: dict[str, Any], name: str, low: int, high: int, problems: Problems, here: str) -> None:
    value = values.get(name)
    if isinstance(value, int) and not low <= value <= high:
        problems.add(f"{here}.{name}", f"{value} is outside {low} to {high}.", code="out-of-range")


def _distinct(found: list[tuple[str, Any]], text: str, problems: Problems) -> None:
    seen: dict[str, str] = {}
    for path, value in found:
        if not isinstance(value, str):
            continue
        if value in seen:
            problems.add(path, f'"{value}" {text} (first: {seen[value]}).', code="duplicate")
        seen.setdefault(value, path)
