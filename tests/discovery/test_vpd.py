"""Vital product data: whole, cut and absent."""

from __future__ import annotations

from pathlib import Path

import sysfs_tree

from linkwright.discovery.vpd import Vpd, parse, read

NAME, PART, SERIAL = "ConnectX-6 VPI adapter card", "MCX653106A-ECAT", "MT2105X01234"
CARD = sysfs_tree.vpd(NAME, PN=PART, EC="A5", SN=f"{SERIAL} ", V0="PCIeGen4")


def test_name_part_number_and_serial() -> None:
    assert parse(CARD) == Vpd(NAME, PART, SERIAL)


def test_cut_anywhere_it_gives_what_came_before() -> None:
    for length in range(len(CARD)):
        found = parse(CARD[:length])
        assert found.name in (None, NAME)
        assert found.part_number in (None, PART)
        assert found.serial in (None, SERIAL)
    assert parse(b"") == parse(bytes(64)) == parse(b"\xff" * 64) == Vpd()


def test_unreadable(tmp_path: Path) -> None:
    assert read(tmp_path / "vpd") == Vpd()
