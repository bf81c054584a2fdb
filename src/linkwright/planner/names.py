"""Names that two interfaces cannot have at once: refused here, with both named, before anybody is attached.

Names of RDMA devices are unique over all namespaces of a host (drivers/infiniband/core/device.c,
ib_device_rename looks through every device); names of interfaces within one namespace (net/core/dev.c).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.documents import Interface
from ..model.inventory import Port
from ..model.plan import Problem
from ..model.values import port_label
from .view import Key, View


def conflicts(view: View) -> dict[Key, Problem]:
    """Declared interfaces that cannot have their names, and why. Whoever has a function already keeps the name;
    of two that are new neither is preferred."""
    rdma: dict[str, list[Key]] = {}
    inside: dict[tuple[int, str], list[Key]] = {}
    for key, (target, interface) in view.declared().items():
        if interface.rdma_name is not None:
            rdma.setdefault(interface.rdma_name, []).append(key)
        inode = view.state(target.name).netns_inode
        if inode is not None:
            inside.setdefault((inode, interface.name), []).append(key)
    found: dict[Key, Problem] = {}
    for (_, name), keys in inside.items():
        for key in _without(view, keys):
            found[key] = _same_namespace(key, name, _others(view, key, keys))
    for name, keys in rdma.items():
        for key in _without(view, keys, name):
            found[key] = _same_rdma_name(key, name, _others(view, key, keys, name))
    return found


def device_with_name(view: View, port: Port, vf_index: int | None, interface: Interface) -> str:
    """Which other function of this host has the wished RDMA name now, in words; empty: none."""
    name = interface.rdma_name
    if name is None:
        return ""
    for other in view.ports.values():
        for function in other.functions:
            mine = (other.id, function.vf_index) == (port.id, vf_index)
            if not mine and function.rdma is not None and function.rdma.name == name:
                return f"{function.label} of {port_label(other.id)}"
    for key, record in view.records.items():
        mine = (record.port, record.vf_index) == (port.id, vf_index)
        kept = record.before.rdma_name if record.before is not None and record.rdma_moved else None
        if not mine and view.live(record) and kept == name and _wish(view, key) is None:
            return " ".join(key)
    return ""


def rdma_name_taken(key: Key, name: str, who: str) -> Problem:
    return _refused(
        key,
        "rdma-name-taken",
        f"{key[1]} cannot have the RDMA device name {name}: {who} has it, and these names are unique over the "
        "whole host.",
        who,
        "Choose another rdmaName, or leave it out: the device then keeps its own name.",
    )


def _wish(view: View, key: Key) -> str | None:
    found = view.declared().get(key)
    return found[1].rdma_name if found is not None else None


def _without(view: View, keys: list[Key], rdma_name: str | None = None) -> list[Key]:
    """Those of several that do not get the name: all but the one that has it, or has a function longest."""
    if len(keys) < 2:
        return []
    owner = _owner(view, keys, rdma_name)
    return [key for key in keys if key != owner]


def _owner(view: View, keys: Iterable[Key], rdma_name: str | None) -> Key | None:
    have = [
        (rdma_name is not None and record.rdma_name != rdma_name, not view.live(record), record.since, key)
        for key in keys
        if (record := view.records.get(key)) is not None
    ]
    return min(have)[3] if have else None


def _others(view: View, key: Key, keys: list[Key], rdma_name: str | None = None) -> str:
    owner = _owner(view, keys, rdma_name)
    named = [owner] if owner is not None else [k for k in keys if k != key]
    return ", ".join(" ".join(k) for k in named)


def _same_rdma_name(key: Key, name: str, others: str) -> Problem:
    return _refused(
        key,
        "rdma-name-taken",
        f"{key[0]} {key[1]} and {others} ask for the same rdmaName {name}; names of RDMA devices are unique over "
        "all namespaces of a host.",
        others,
        "Give one of them another rdmaName, or none: the device then keeps its own name.",
    )


def _same_namespace(key: Key, name: str, others: str) -> Problem:
    return _refused(
        key,
        "interface-name-taken",
        f"{key[0]} {key[1]} and {others} are in one network namespace, which has room for one {name}.",
        others,
        "Give one of them another name in spec.interfaces[].name, or each container a namespace of its own.",
    )


def _refused(key: Key, code: str, text: str, holder: str, next_step: str) -> Problem:
    return Problem(
        severity="refused", code=code, subject=f"target {key[0]}", text=text, holder=holder, next_step=next_step
    )
