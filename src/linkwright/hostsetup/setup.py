"""Which files of this host would change, and changing them: whole files of ours, a marked block in one other."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from linkwright.model.errors import NeedsPerson, Refused
from linkwright.model.inventory import Port

from . import rules

UDEV = "etc/udev/rules.d/70-linkwright.rules"  # before 80-net-setup-link.rules, which picks the .link file
LINK = "etc/systemd/network/98-linkwright.link"
NETWORK = "etc/systemd/network/05-linkwright.network"
IFUPDOWN = "etc/default/networking"
_RELOAD = (("udevadm", "control", "--reload"), ("networkctl", "reload"))
AFTERWARDS = "udevadm trigger --subsystem-match=net --action=change"


@dataclass(frozen=True)
class Change:
    """``path``: as a person types it. ``before``/``after``: the file's text; None: there is no file."""

    path: str
    before: str | None
    after: str | None
    why: str


def to_write(root: Path, ports: Iterable[Port]) -> list[Change]:
    """What is missing for these ports, for the managers that this host has. Raises Refused ``file-not-ours``."""
    its = sorted(ports, key=lambda port: port.pf.address)
    if not its:
        return to_remove(root)
    pfs = [port.pf.address for port in its]
    wanted = [(UDEV, rules.udev(pfs), "udev marks the functions; NetworkManager leaves marked ones alone")]
    if (root / "etc/systemd").is_dir():
        wanted += [
            (LINK, rules.LINK, "udev gives marked functions their usual names and no MAC of its own"),
            (NETWORK, rules.NETWORK, "networkd leaves marked functions alone"),
        ]
    out = [_whole(root, *each) for each in wanted]
    names = [port.pf.netdev.name for port in its if port.pf.netdev is not None]
    if (root / "etc/network/interfaces").exists() and names:
        before = _read(root / IFUPDOWN)
        after = rules.without_block(before or "") + rules.ifupdown(names)
        out.append(Change(f"/{IFUPDOWN}", before, after, "ifupdown leaves these names alone"))
    return [change for change in out if change.before != change.after]


def to_remove(root: Path) -> list[Change]:
    """What an earlier setup left."""
    out = []
    for name in (UDEV, LINK, NETWORK):
        text = _read(root / name)
        if text is not None and text.startswith(rules.HEAD):
            out.append(Change(f"/{name}", text, None, "written by linkwright host setup"))
    text = _read(root / IFUPDOWN)
    if text is not None and (left := rules.without_block(text)) != text:
        out.append(Change(f"/{IFUPDOWN}", text, left or None, "the lines of linkwright host setup"))
    return out


def apply(root: Path, changes: Sequence[Change]) -> list[str]:
    """Do it, then tell udev and networkd to read their files again. Returns what could not be told, in words.

    Raises NeedsPerson ``host-file-unwritable``; what was written before stays.
    """
    for change in changes:
        path = root / change.path.lstrip("/")
        try:
            if change.after is None:
                path.unlink(missing_ok=True)
            else:
                _replace(path, change.after)
        except OSError as error:
            raise NeedsPerson(
                f"cannot be written: {error.strerror}",
                code="host-file-unwritable",
                where=change.path,
                next_step="Run it as root; on a system whose /etc is made by another tool, put the file there.",
            ) from error
    return _reload() if changes and root == Path("/") else []


def _reload() -> list[str]:
    said = []
    for command in _RELOAD:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        except FileNotFoundError:
            continue  # this host has no such manager
        except subprocess.TimeoutExpired:
            said.append(f"{' '.join(command)}: no answer in 30 s")
            continue
        if done.returncode != 0:
            said.append(f"{' '.join(command)}: {done.stderr.strip() or f'exit {done.returncode}'}")
    return said


def _whole(root: Path, name: str, text: str, why: str) -> Change:
    before = _read(root / name)
    if before is not None and not before.startswith(rules.HEAD):
        raise Refused(
            "is there and was not written by linkwright host setup; it is not overwritten",
            rule=7,
            code="file-not-ours",
            where=f"/{name}",
            next_step=f"Move it away, then: linkwright host setup. What would stand in it:\n{text}",
        )
    return Change(f"/{name}", before, text, why)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None


def _replace(path: Path, text: str) -> None:
    """Whole or not at all, with the mode that it has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    fresh = path.with_name(f"{path.name}.linkwright-new")
    fresh.write_text(text, encoding="utf-8", errors="surrogateescape")
    fresh.chmod(mode)
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    fresh.replace(path)
