"""Boot scripts and units that write VF counts or firmware settings: rc.local, systemd units and the scripts they
start, tmpfiles, and the hooks of MLNX_OFED's openibd.

A script names cards by variables as often as by address; one that names none of ours by word may mean all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from linkwright.model.inventory import Owner
from linkwright.model.values import PciAddress

from .cards import Cards
from .reading import files, lines, shown, text

_VFS = re.compile(r"sriov_numvfs")
_FIRMWARE = re.compile(r"\b(?:mlxconfig|mstconfig)\b.*\b(?:set|reset)\b|\bLINK_TYPE_P\d+=")
_EXEC = re.compile(r"^Exec(?:Start|StartPre|StartPost|Stop)=[-@:+!]*(?P<command>.*)$")
_OWN_PLACES = ("/etc/", "/usr/local/", "/opt/", "/root/", "/srv/")  # not those of packages
_NAMED = re.compile(r"/sys/(?:class/net|class/infiniband|bus/pci/devices)/([A-Za-z0-9_.:-]+)/|-d\s+([0-9a-f:.]+)")


def find(root: Path, cards: Cards) -> Iterator[Owner]:
    for path in (root / "etc/infiniband/pre-start-hook.sh", root / "etc/infiniband/post-start-hook.sh"):
        yield from _script(root, path, "openibd", cards)
    for name in ("etc/rc.local", "etc/rc.d/rc.local"):
        yield from _script(root, root / name, "boot-scripts", cards)
    for path in files(root, "etc/tmpfiles.d", "*.conf"):
        yield from _script(root, path, "boot-scripts", cards)
    for path in files(root, "etc/systemd/system", "*.service"):
        yield from _script(root, path, "boot-scripts", cards)
        for script in _started(root, path):
            yield from _script(root, script, "boot-scripts", cards)


def written_by(content: str, cards: Cards) -> list[tuple[str, tuple[PciAddress, ...]]]:
    """(what, whose) of each line that writes VFs or firmware settings; nothing when it speaks of others' cards."""
    found = []
    for line in lines(content):
        what = "VFs" if _VFS.search(line) else "firmware settings" if _FIRMWARE.search(line) else None
        if what is None:
            continue
        pfs = cards.mentioned(line.replace("/", " "))
        others = [a or b for a, b in _NAMED.findall(line)]
        if not pfs and others:
            continue  # it names a device by word, and that is none of ours
        found.append((what, pfs))
    return found


def _script(root: Path, path: Path, owner: str, cards: Cards) -> Iterator[Owner]:
    content = text(path)
    if not content:
        return
    for what, pfs in written_by(content, cards):
        yield Owner(name=owner, evidence=shown(root, path), what=what, pfs=pfs)


def _started(root: Path, unit: Path) -> Iterator[Path]:
    """The scripts that a unit starts, of those that somebody put on this host by hand."""
    for line in lines(text(unit)):
        match = _EXEC.match(line)
        for word in match["command"].split() if match else ():
            if word.startswith(_OWN_PLACES) and ".." not in word:
                yield root / word.lstrip("/")
