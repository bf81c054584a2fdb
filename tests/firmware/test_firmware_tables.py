"""Readings out of the tools' tables and JSON, of every version that a supported distribution ships."""

from __future__ import annotations

import json

import pytest
from firmware_answers import VERSIONS, said
from hypothesis import given
from hypothesis import strategies as st

from linkwright.firmware import tables
from linkwright.firmware.base import Reading, mode_of_link_type, number, plain, same_value
from linkwright.model.errors import HardwareFault, LinkwrightError
from linkwright.model.values import LinkMode


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_after_a_write_shows_three_columns(version: str) -> None:
    reading = tables.parse_query(said(version, "query_after_set"))
    assert reading.device_type == "ConnectX6"
    assert reading.name == "MCX653106A-ECA_Ax"
    assert reading.description == "ConnectX-6 VPI adapter card; dual-port QSFP56"
    assert dict(reading.params) == {
        "LINK_TYPE_P1": Reading(default="IB(1)", current="IB(1)", next="ETH(2)"),
        "LINK_TYPE_P2": Reading(default="IB(1)", current="IB(1)", next="ETH(2)"),
        "SRIOV_EN": Reading(default="False(0)", current="False(0)", next="True(1)"),
        "NUM_OF_VFS": Reading(default="0", current="0", next="8"),
    }


def test_json_says_the_same_as_the_table() -> None:
    from_json = tables.parse_query_json(said("4.31", "query_after_set", ".json"))
    assert from_json == tables.parse_query(said("4.31", "query_after_set"))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_row_of_a_full_query_is_told_apart(version: str) -> None:
    text = said(version, "everything")
    reading = tables.parse_query(text)
    rows = [line for line in text.split("Configurations:")[1].splitlines()[1:] if line.startswith(("  ", "*"))]
    assert len(reading.params) == len([r for r in rows if "The '*'" not in r])
    assert all(None not in (r.default, r.current, r.next) for r in reading.params.values())


def test_a_full_query_agrees_with_its_json() -> None:
    text = tables.parse_query(said("4.31", "everything")).params
    from_json = tables.parse_query_json(said("4.31", "everything", ".json")).params
    assert text == from_json


@pytest.mark.parametrize("version", VERSIONS)
def test_values_longer_than_a_column_touch_the_next(version: str) -> None:
    value = "PCI_ATOMIC_DISABLED_EXT_ATOMIC_ENABLED(0)"
    row = tables.parse_query(said(version, "everything")).params["PCI_ATOMIC_MODE"]
    assert row == Reading(default=value, current=value, next=value)


def test_values_that_touch_without_any_blank() -> None:
    row = "*  CRYPTO_POLICY  DEVICE_DEFAULT(0)FULL_ON_THE_CARD(1)OFF(2)"
    text = f"Configurations:   Default   Current   Next Boot\n{row}\n"
    assert tables.parse_query(text).params["CRYPTO_POLICY"] == Reading(
        default="DEVICE_DEFAULT(0)", current="FULL_ON_THE_CARD(1)", next="OFF(2)"
    )


def test_a_card_that_tells_only_next_boot_leaves_the_rest_unknown() -> None:
    only_next = Reading(next="IB(1)")
    assert tables.parse_query(said("4.21", "next_only")).params == {"LINK_TYPE_P1": only_next}
    assert tables.parse_query_json(said("4.31", "next_only", ".json")).params == {"LINK_TYPE_P1": only_next}


def test_read_only_rows_and_unknown_values() -> None:
    text = (
        "Configurations:    Default   Current   Next Boot\n"
        "*       RO MAX_VFS    127   N/A   64\n"
        "        RO_LIKE_NAME  1     2     3\n"
        "        BOOT_STRING   two words   two words   other words\n"
        "        ODD_ROW       a b c d e\n"
    )
    params = tables.parse_query(text).params
    assert params["MAX_VFS"] == Reading(default="127", current=None, next="64", read_only=True)
    assert params["RO_LIKE_NAME"] == Reading(default="1", current="2", next="3")
    assert params["BOOT_STRING"] == Reading(default="two words", current="two words", next="other words")
    assert params["ODD_ROW"] == Reading()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_activation_line_is_data(version: str) -> None:
    assert tables.parse_activation(said(version, "set")) == "reboot"
    assert tables.parse_activation(said(version, "power_cycle")) == "power-cycle-or-reset"
    assert tables.parse_activation("Applying... Done!") == "unknown"


@pytest.mark.parametrize("version", VERSIONS)
def test_uptime_is_the_register_field(version: str) -> None:
    assert tables.parse_uptime(said(version, "uptime")) == 0x1387
    assert tables.parse_uptime(said("4.21", "uptime_refused")) is None


@given(st.binary(max_size=3000))
def test_any_bytes_give_a_reading_or_our_error(data: bytes) -> None:
    _read_all(data.decode("utf-8", errors="replace"))


@given(
    st.sampled_from([said(v, w) for v in VERSIONS for w in ("query_after_set", "everything", "offer", "partial")]),
    st.data(),
)
def test_damaged_answers_give_a_reading_or_our_error(text: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 200)))
    _read_all(text[:begin] + data.draw(st.text(max_size=40)) + text[end:])


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
KEYS = st.sampled_from(["Device #1", "tlv_configuration", "A", "next_value"])


@given(st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner)))
def test_any_json_gives_a_reading_or_our_error(value: object) -> None:
    _read_all(json.dumps(value))


def _read_all(text: str) -> None:
    for parse in (tables.parse_query, tables.parse_query_json):
        failure = None
        try:
            reading = parse(text)
        except LinkwrightError as e:
            failure = e
        else:
            assert all(isinstance(r, Reading) for r in reading.params.values())
        assert failure is None or (isinstance(failure, HardwareFault) and failure.code == "unreadable-answer")
    tables.parse_activation(text)
    tables.parse_uptime(text)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("IB(1)", LinkMode.INFINIBAND),
        ("1", LinkMode.INFINIBAND),
        ("ib", LinkMode.INFINIBAND),
        ("ETH(2)", LinkMode.ROCE),
        ("2", LinkMode.ROCE),
        ("VPI(3)", None),
        ("N/A", None),
        ("", None),
        (None, None),
    ],
)
def test_link_types_as_modes(text: str | None, mode: LinkMode | None) -> None:
    assert mode_of_link_type(text) is mode


def test_spellings_of_one_value() -> None:
    assert plain("True(1)") == "1"
    assert number("0x10") == 16
    assert number("Array[0..7]") is None
    assert same_value("ETH(2)", "2")
    assert same_value("ETH(2)", "eth")
    assert not same_value("ETH(2)", "1")
    assert not same_value(None, None)
