"""A scrubbed copy of what a host shows: for a report, for ``linkwright nics --sysroot DIR``, for an emulated host.

::

    DIR/capture.json        versions, what was replaced, what could not be read
    DIR/sys, DIR/proc       the files that discovery reads, with their links
    DIR/links.json          netdevs as rtnetlink tells them; DIR/rdma.json: RDMA devices
    DIR/firmware/<PF>.json  the words of mstconfig, mstreg and mstfwreset, asked of the first PF of each card
    DIR/lab.yaml            the same cards as a host file: ``linkwright lab up DIR/lab.yaml`` replays them

Nothing is changed on the host, and no value leaves it that tells whose it is (``scrub.py``).
"""

from __future__ import annotations

import dataclasses
import os
import platform
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

import linkwright
from linkwright.firmware import Firmware
from linkwright.firmware.captured import DIRECTORY, MANIFEST
from linkwright.kernel import boot
from linkwright.kernel.links import Links
from linkwright.kernel.rdma import Rdma
from linkwright.model.errors import InvalidInput, LinkwrightError

from .scrub import Scrubber
from .to_lab import to_lab
from .tree import TreeCopy

if TYPE_CHECKING:
    from linkwright.kernel.system import System

FORMAT = 1
LAB = "lab.yaml"
_BOOT_ID = "00000000-0000-4000-8000-000000000001"
_ARCHIVES = (".tar.gz", ".tgz")


class Manifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """``capture.json``. ``scrubbed``: kind of value → how many different ones were replaced."""

    format: int
    linkwright: str
    kernel: str
    os: str
    mstflint: str | None
    host: str
    rdma_netns: str | None
    functions: tuple[str, ...]
    scrubbed: dict[str, int]
    left_out: tuple[str, ...]


def capture(system: System, firmware: Firmware, out: Path) -> Manifest:
    """Write the capture to ``out``: a directory, or an archive when it ends in ``.tar.gz``.

    Raises InvalidInput ``capture-exists`` when ``out`` is there already, ``capture-of-capture`` when the system is
    a copy itself, ``capture-not-written`` when the file system refuses."""
    if system.captured:
        raise InvalidInput(
            "this is a captured host already", code="capture-of-capture", where=str(system.sys.parent)
        )
    if os.path.lexists(out):
        raise InvalidInput(
            "exists already",
            code="capture-exists",
            where=str(out),
            next_step="Give a path that does not exist yet.",
        )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".capture-", dir=out.parent) as scratch:
            root = Path(scratch) / out.name.removesuffix(".tgz").removesuffix(".tar.gz")
            root.mkdir()
            manifest = _write(system, firmware, root)
            if out.name.endswith(_ARCHIVES):
                _pack(root, Path(scratch) / "archive").rename(out)
            else:
                root.rename(out)
    except OSError as e:
        raise InvalidInput(f"cannot be written: {e.strerror}", code="capture-not-written", where=str(out)) from e
    return manifest


def _write(system: System, firmware: Firmware, root: Path) -> Manifest:
    scrub = Scrubber()
    left_out: list[str] = []
    host = scrub.host(boot.host_name(system)) or "host-1"
    tree = TreeCopy(system.sys, root / "sys", scrub, host)
    tree.copy()
    left_out += tree.left_out
    (root / "dev").mkdir()
    for name, text in (
        ("sys/kernel/hostname", host),
        ("sys/kernel/osrelease", boot.kernel_release(system)),
        ("sys/kernel/random/boot_id", _BOOT_ID),
        ("uptime", f"{boot.uptime_s(system) or 0:.2f} 0.00"),
    ):
        file = root / "proc" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    _json(root / "links.json", _asked(lambda: _links(system, scrub), "links", left_out))
    _json(root / "rdma.json", _asked(lambda: _rdma(system, scrub), "RDMA devices", left_out))
    for pf in _one_of_each_card(system, tree.functions):
        _firmware(firmware, pf, root, scrub, left_out)
    manifest = Manifest(
        format=FORMAT,
        linkwright=linkwright.__version__,
        kernel=boot.kernel_release(system),
        os=_distribution(),
        mstflint=firmware.version(),
        host=host,
        rdma_netns=_asked(lambda: Rdma(system.netlink).netns_mode(), "RDMA namespace mode", left_out),
        functions=tuple(tree.functions),
        scrubbed=dict(sorted(scrub.seen.items())),
        left_out=tuple(scrub.text(line) for line in left_out),
    )
    _json(root / MANIFEST, manifest)
    if (lab := _host_file(root)) is not None:
        (root / LAB).write_text(lab)
    return manifest


def _host_file(root: Path) -> str | None:
    """The capture as a host file for ``linkwright lab up``; None when it holds no card that can be emulated."""
    try:
        return to_lab(root)
    except InvalidInput:
        return None


def _one_of_each_card(system: System, functions: list[str]) -> list[str]:
    """The first PF of each slot: a card's PFs share its settings, and a full query takes seconds."""
    slots: dict[str, str] = {}
    for function in functions:
        if not (system.sys / "bus/pci/devices" / function / "physfn").exists():
            slots.setdefault(function.rpartition(".")[0], function)
    return list(slots.values())


def _links(system: System, scrub: Scrubber) -> list[dict[str, Any]]:
    rows = [dataclasses.asdict(link) for link in Links(system.netlink).dump()]
    for row in rows:
        row["name"] = scrub.name(row["name"])
        row["altnames"] = [scrub.name(name) for name in row["altnames"]]
        row["alias"] = scrub.word(row["alias"], "alias", "alias-{}") if row["alias"] else ""
        for key in ("address", "broadcast", "permanent_address"):
            row[key] = scrub.text(row[key])
    return rows


def _rdma(system: System, scrub: Scrubber) -> list[dict[str, Any]]:
    rdma = Rdma(system.netlink)
    devices = [rdma.device(device.index) or device for device in rdma.devices()]
    rows = [dataclasses.asdict(device) for device in devices]
    for row in rows:
        row["name"] = scrub.name(row["name"])
        row["netdev"] = scrub.name(row["netdev"]) if row["netdev"] else row["netdev"]
        for key in ("node_guid", "sys_image_guid"):
            row[key] = scrub.guid(row[key]) if row[key] else row[key]
    return rows


def _asked(ask: Callable[[], Any], what: str, left_out: list[str]) -> Any:
    try:
        return ask()
    except (OSError, LinkwrightError) as e:
        left_out.append(f"{what}: {e}")
        return None


def _firmware(firmware: Firmware, pf: str, root: Path, scrub: Scrubber, left_out: list[str]) -> None:
    try:
        answers = firmware.transcripts(pf)
    except LinkwrightError as e:
        left_out.append(f"firmware of {pf}: {e.message}")
        return
    if answers:
        scrubbed = {key: msgspec.structs.replace(a, text=scrub.text(a.text)) for key, a in answers.items()}
        _json(root / DIRECTORY / f"{pf}.json", scrubbed)


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def _json(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def _pack(root: Path, archive: Path) -> Path:
    """Owners and times are left out: they tell who made it and when."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = 0
        return member

    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root, arcname=root.name, filter=plain)
    return archive


__all__ = ["FORMAT", "Manifest", "capture"]
