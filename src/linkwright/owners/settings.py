"""Settings of the host's network managers that make VFs of a card, set its link type or give it names.

netplan (``virtual-function-count``, ``set-name``), NetworkManager ([sriov] total-vfs), networkd ([SR-IOV]), udev's
.link files (SR-IOVVirtualFunctions=, Name=) and rules (NAME, sriov_numvfs), ifupdown (``up`` commands), openibd
(connectx.conf). Only /etc and /run count: what distributions ship under /usr names by policy, not one card.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from linkwright.model.errors import InvalidInput
from linkwright.model.inventory import Owner
from linkwright.model.values import PciAddress

from .cards import DRIVER, Cards
from .reading import files, lines, sections, shown, text
from .scripts import written_by

_KEY = re.compile(r'(?P<key>[A-Z]+(?:\{[^}]*\})?)\s*(?P<sign>==|!=|:=|\+=|=)\s*"(?P<value>[^"]*)"')
_BY = (
    "KERNEL",
    "KERNELS",
    "ATTR{address}",
    "ATTRS{address}",
    "ENV{ID_PATH}",
    "ENV{INTERFACE}",
    "ENV{ID_NET_NAME}",
)
_RDMA_NAME = re.compile(r"\brdma\s+dev\s+set\b")


def find(root: Path, cards: Cards) -> Iterator[Owner]:
    for place in ("etc/netplan", "run/netplan"):
        for path in files(root, place, "*.yaml"):
            yield from _netplan(root, path, cards)
    for place in ("etc", "run"):
        for path in files(root, f"{place}/NetworkManager/system-connections", "*"):
            yield from _network_manager(root, path, cards)
        for path in files(root, f"{place}/systemd/network", "*.link"):
            yield from _link(root, path, cards)
        for path in files(root, f"{place}/systemd/network", "*.network"):
            yield from _network(root, path, cards)
        for path in files(root, f"{place}/udev/rules.d", "*.rules"):
            if not path.name.startswith("10-nic-"):  # see operators.py
                yield from _rules(root, path, cards)
    for path in (root / "etc/network/interfaces", *files(root, "etc/network/interfaces.d", "*")):
        yield from _ifupdown(root, path, cards)
    yield from _connectx(root, cards)


def _owner(root: Path, path: Path, name: str, what: str, pfs: tuple[PciAddress, ...]) -> Owner:
    return Owner(name=name, evidence=shown(root, path), what=what, pfs=pfs)


# -- netplan, NetworkManager -------------------------------------------------------------------------------------


def _netplan(root: Path, path: Path, cards: Cards) -> Iterator[Owner]:
    content = text(path)
    if not re.search(r"virtual-function-count|embedded-switch-mode|set-name|\blink:", content):
        return
    for ethernets in _ethernets(content, shown(root, path)):
        uppers = {str(e["link"]) for e in ethernets.values() if isinstance(e, dict) and "link" in e}
        for name, ethernet in ethernets.items():
            if not isinstance(ethernet, dict):
                continue
            match = ethernet.get("match")
            named = list(match.values()) if isinstance(match, dict) else [name]
            pfs = tuple(dict.fromkeys(pf for each in named for pf in _whose(str(each), cards)))
            if pfs and ({"virtual-function-count", "embedded-switch-mode"} & set(ethernet) or name in uppers):
                yield _owner(root, path, "netplan", "VFs", pfs)
            if pfs and "set-name" in ethernet:
                yield _owner(root, path, "netplan", "names", pfs)


def _ethernets(content: str, source: str) -> list[dict[str, Any]]:
    """``network.ethernets`` of each document, every scalar a text; none of a file that is no YAML."""
    from linkwright.model import yamltree

    def plain(node: yamltree.Node) -> Any:
        match node:
            case yamltree.Mapping():
                return {key: plain(value) for key, value in node.items.items()}
            case yamltree.Sequence():
                return [plain(value) for value in node.items]
            case yamltree.Scalar():
                return node.value

    try:
        documents = [plain(document) for document in yamltree.read_yaml(content, source)]
    except InvalidInput:
        return []
    networks = [d.get("network") for d in documents if isinstance(d, dict)]
    found = [n.get("ethernets") for n in networks if isinstance(n, dict)]
    return [each for each in found if isinstance(each, dict)]


def _whose(name: str, cards: Cards) -> tuple[PciAddress, ...]:
    return tuple(cards.pfs) if name == DRIVER else cards.named(name)


def _network_manager(root: Path, path: Path, cards: Cards) -> Iterator[Owner]:
    found = dict(sections(text(path)))
    total = (found.get("sriov") or {}).get("total-vfs", ["0"])[-1]
    if total in ("", "0"):
        return
    keys = (("connection", "interface-name"), ("ethernet", "mac-address"), ("match", "interface-name"),
            ("match", "path"))  # fmt: skip
    named = [value for section, key in keys for value in (found.get(section) or {}).get(key, ())]
    pfs = tuple(dict.fromkeys(pf for text_ in named for word in text_.split(";") for pf in cards.named(word)))
    if pfs:
        yield _owner(root, path, "NetworkManager", "VFs", pfs)


# -- networkd and udev -------------------------------------------------------------------------------------------


def _matched(found: list[tuple[str, dict[str, list[str]]]], cards: Cards) -> tuple[PciAddress, ...]:
    """The PFs that a [Match] section picks; a section of anything but one card (a type, a property) picks none."""
    match = next((keys for name, keys in found if name == "Match"), {})
    picked: dict[PciAddress, None] = {}
    for key in ("Path", "MACAddress", "PermanentMACAddress", "OriginalName", "Name", "Driver"):
        for value in match.get(key, ()):
            for word in value.split():
                picked |= dict.fromkeys(_whose(word, cards) if word != "*" else ())
    return tuple(picked)


def _link(root: Path, path: Path, cards: Cards) -> Iterator[Owner]:
    found = sections(text(path))
    link = {key: value for name, keys in found if name == "Link" for key, value in keys.items()}
    vfs = "SR-IOVVirtualFunctions" in link or any(name == "SR-IOV" for name, _ in found)
    if (vfs or "Name" in link) and (pfs := _matched(found, cards)):
        owner = "netplan" if "netplan" in path.name else "udev"
        yield _owner(root, path, owner, "VFs" if vfs else "names", pfs)


def _network(root: Path, path: Path, cards: Cards) -> Iterator[Owner]:
    found = sections(text(path))
    if any(name == "SR-IOV" for name, _ in found) and (pfs := _matched(found, cards)):
        owner = "netplan" if "netplan" in path.name else "systemd-networkd"
        yield _owner(root, path, owner, "VFs", pfs)


def _rules(root: Path, path: Path, cards: Cards) -> Iterator[Owner]:
    for rule in lines(text(path)):
        keys = [(m["key"], m["sign"], m["value"]) for m in _KEY.finditer(rule)]
        what = _rule_sets(keys)
        if what is None:
            continue
        matches = [value for key, sign, value in keys if sign == "==" and key in _BY]
        pfs = tuple(dict.fromkeys(pf for value in matches for pf in cards.named(value)))
        every = any(sign == "==" and key in ("DRIVERS", "DRIVER") and value == DRIVER for key, sign, value in keys)
        if pfs or (every and not matches) or (what == "VFs" and not matches):
            yield _owner(root, path, "udev", what, pfs)


def _rule_sets(keys: list[tuple[str, str, str]]) -> str | None:
    for key, sign, value in keys:
        if sign in ("==", "!="):
            continue
        if key.startswith("ATTR{") and "sriov_numvfs" in key:
            return "VFs"
        if key == "NAME" and value:
            return "names"
        if key.startswith(("RUN", "PROGRAM")) and "sriov_numvfs" in value:
            return "VFs"
        if key.startswith("RUN") and _RDMA_NAME.search(value):
            return "names"
    return None


# -- ifupdown, openibd -------------------------------------------------------------------------------------------


def _ifupdown(root: Path, path: Path, cards: Cards) -> Iterator[Owner]:
    stanza: tuple[PciAddress, ...] = ()
    for line in lines(text(path)):
        if line.startswith("iface "):
            stanza = cards.named(line.split()[1])
        for what, pfs in written_by(line, cards):
            yield _owner(root, path, "ifupdown", what, pfs or stanza)


def _connectx(root: Path, cards: Cards) -> Iterator[Owner]:
    """connectx.conf: one line a card, its address and a type for each port; openibd sets them at each start."""
    path = root / "etc/infiniband/connectx.conf"
    for line in lines(text(path)):
        pfs = cards.mentioned(line)
        if pfs and len(line.split()) > 1:
            yield _owner(root, path, "openibd", "link types", pfs)
