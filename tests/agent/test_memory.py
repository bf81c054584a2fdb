"""Firmware readings are kept as long as they are worth: link modes are asked for again, VF settings rarely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from linkwright.agent.memory import RememberedFirmware
from linkwright.firmware.base import CardReading, Reading
from linkwright.model.errors import HardwareFault

NAMES = ("LINK_TYPE_P1", "LINK_TYPE_P2", "SRIOV_EN", "NUM_OF_VFS")


class Driver:
    """Answers each question with its number, and keeps what it was asked."""

    def __init__(self, *lacks: str) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.lacks = lacks
        self.fails = False

    def query(self, pf: str, names: Sequence[str] = ()) -> CardReading:
        self.asked.append(tuple(names))
        if self.fails:
            raise HardwareFault("no", code="firmware-fault")
        told = {name: Reading(next=str(len(self.asked))) for name in names if name not in self.lacks}
        return CardReading(
            device_type="ConnectX6", params=told, missing=tuple(n for n in names if n in self.lacks)
        )

    def write(self, pf: str, settings: Mapping[str, str]) -> Any:
        return None


def remembered(*lacks: str, **ttl: float) -> tuple[Driver, RememberedFirmware]:
    driver = Driver(*lacks)
    return driver, RememberedFirmware(driver, **ttl)  # type: ignore[arg-type]  # what is used of the protocol


def test_one_question_for_all_and_then_none() -> None:
    driver, firmware = remembered()
    first = firmware.query("0000:3b:00.0", NAMES)
    assert firmware.query("0000:3b:00.0", NAMES) == first
    assert driver.asked == [NAMES]
    assert set(first.params) == set(NAMES)


def test_a_fresh_look_asks_for_the_link_modes_alone() -> None:
    driver, firmware = remembered()
    firmware.query("0000:3b:00.0", NAMES)
    firmware.forget()
    again = firmware.query("0000:3b:00.0", NAMES)
    assert driver.asked == [NAMES, NAMES[:2]]
    assert [again.params[name].next for name in NAMES] == ["2", "2", "1", "1"]


def test_a_write_drops_everything() -> None:
    driver, firmware = remembered()
    firmware.query("0000:3b:00.0", NAMES)
    firmware.write("0000:3b:00.0", {"NUM_OF_VFS": "8"})
    firmware.query("0000:3b:00.0", NAMES)
    assert driver.asked == [NAMES, NAMES]


def test_what_a_card_does_not_have_is_not_asked_for_again() -> None:
    driver, firmware = remembered("LINK_TYPE_P1", "LINK_TYPE_P2")
    firmware.query("0000:81:00.0", NAMES)
    firmware.forget()
    assert firmware.query("0000:81:00.0", NAMES).missing == NAMES[:2]
    assert driver.asked == [NAMES]


def test_each_part_ends_at_its_own_time() -> None:
    driver, firmware = remembered(ttl_s=0.0)
    firmware.query("0000:3b:00.0", NAMES)
    firmware.query("0000:3b:00.0", NAMES)
    assert driver.asked == [NAMES, NAMES[:2]]


def test_failures_are_not_remembered() -> None:
    driver, firmware = remembered()
    driver.fails = True
    with pytest.raises(HardwareFault):
        firmware.query("0000:3b:00.0", NAMES)
    driver.fails = False
    assert firmware.query("0000:3b:00.0", NAMES).params["SRIOV_EN"].next == "2"
