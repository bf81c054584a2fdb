"""What a card offers for a reset, and when driver sync may be believed."""

from __future__ import annotations

import pytest
from firmware_answers import VERSIONS, said
from hypothesis import given
from hypothesis import strategies as st

from linkwright.firmware.mstfwreset import parse_offer, succeeded
from linkwright.model.errors import LinkwrightError


@pytest.mark.parametrize("version", VERSIONS)
def test_a_card_that_can(version: str) -> None:
    offer = parse_offer(said(version, "offer"), f"{version}.0")
    assert offer.levels == (3, 4)
    assert offer.default_level == 3
    assert offer.types == (0,)
    assert offer.driver_sync
    assert offer.usable


@pytest.mark.parametrize("version", VERSIONS)
def test_a_card_that_takes_only_a_warm_reboot(version: str) -> None:
    offer = parse_offer(said(version, "offer_warm_reboot_only"), f"{version}.0")
    assert offer.levels == (4,)
    assert offer.default_level == 4
    assert not offer.usable


@pytest.mark.parametrize("version", ["4.31.0", "4.22.0", None])
def test_driver_sync_that_a_newer_tool_would_ignore_does_not_count(version: str | None) -> None:
    assert not parse_offer(said("4.21", "offer"), version).driver_sync


@pytest.mark.parametrize("version", VERSIONS)
def test_success_is_the_tools_own_check_of_the_uptime(version: str) -> None:
    assert succeeded(said(version, "reset"))
    assert not succeeded(said(version, "reset_level_refused"))


@given(st.text(max_size=800))
def test_any_text_gives_an_offer_or_our_error(text: str) -> None:
    for candidate in (text, "Reset-levels:\n" + text):
        failure = None
        try:
            parse_offer(candidate, "4.31.0")
        except LinkwrightError as e:
            failure = e
        assert failure is None or failure.code == "unreadable-answer"
