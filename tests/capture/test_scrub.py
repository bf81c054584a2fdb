"""Identity goes, structure stays."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from linkwright.capture.scrub import Scrubber

macs = st.binary(min_size=6, max_size=6)
guids = st.binary(min_size=8, max_size=8)


def colons(data: bytes) -> str:
    return data.hex(":")


@given(st.lists(macs, max_size=20))
def test_macs_are_replaced_one_to_one_and_locally_administered(values: list[bytes]) -> None:
    scrub = Scrubber()
    real = {v for v in values if not v[0] & 1 and any(v[:-1])}
    new = {v: scrub.mac(colons(v)) for v in real}
    assert len(set(new.values())) == len(real)
    assert all(text.startswith("02:00:") for text in new.values())
    assert all(scrub.mac(colons(v)) == new[v] for v in real)


@given(macs, st.integers(-255, 255))
def test_neighbours_stay_neighbours(mac: bytes, step: int) -> None:
    first = int.from_bytes(mac, "big")
    second = first + step
    assume(0 < second < 1 << 48 and not mac[0] & 1 and mac[0] == second >> 40)
    assume(first > 0xFF and second > 0xFF)
    scrub = Scrubber()
    new = [int(scrub.mac(colons(v.to_bytes(6, "big"))).replace(":", ""), 16) for v in (first, second)]
    assert new[1] - new[0] == step


@given(macs)
def test_a_guid_made_from_a_mac_still_is(mac: bytes) -> None:
    assume(not mac[0] & 1 and any(mac[:-1]) and mac[0] not in (2,))
    scrub = Scrubber()
    new = bytes.fromhex(scrub.mac(colons(mac)).replace(":", ""))
    mellanox = bytes.fromhex(scrub.guid(colons(mac[:3] + b"\x03\x00" + mac[3:])).replace(":", ""))
    assert mellanox == new[:3] + b"\x03\x00" + new[3:]
    eui64 = bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:]
    gid = scrub.gid("fe80:0000:0000:0000:" + colons_by_word(eui64))
    assert gid.replace(":", "")[16:] == (bytes([new[0] ^ 2]) + new[1:3] + b"\xff\xfe" + new[3:]).hex()


def colons_by_word(data: bytes) -> str:
    return ":".join(data[i : i + 2].hex() for i in range(0, len(data), 2))


@given(guids)
def test_every_spelling_of_a_guid_is_one_guid(guid: bytes) -> None:
    scrub = Scrubber()
    digits = {
        scrub.guid(text).removeprefix("0x").replace(":", "")
        for text in (colons(guid), colons_by_word(guid), guid.hex(), "0x" + guid.hex())
    }
    assert len(digits) == 1


@pytest.mark.parametrize(
    "text",
    [
        "00:00:00:00:00:00",
        "ff:ff:ff:ff:ff:ff",
        "01:00:5e:00:00:01",
        "0000:0000:0000:0000",
        "ffff:ffff:ffff:ffff",
        "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff",
        "0000:3b:00.0",
        "20.41.1000",
        "MT_0000000224",
        "pci:v000015B3d0000101Bsv000015B3sd00000006bc02sc07i00",
        "4X HDR 200 Gb/sec",
    ],
)
def test_what_identifies_nobody_stays(text: str) -> None:
    assert Scrubber().text(text) == text


@pytest.mark.parametrize(
    "name", ["lo", "eth0", "ib1", "enp59s0f0np0", "enP2p1s0v3", "ibs5", "mlx5_11", "rocep59s0f1", "br0.7", "ifb0"]
)
def test_names_of_places_stay(name: str) -> None:
    assert Scrubber().name(name) == name


def test_names_with_identity_go_everywhere() -> None:
    scrub = Scrubber()
    assert scrub.name("enxb83fd2abcdee") == "enx" + scrub.mac("b8:3f:d2:ab:cd:ee").replace(":", "")
    assert scrub.name("training-7") == "net1"
    assert scrub.name("training-7") == "net1"
    assert scrub.name("storage.17") == "net2"
    assert scrub.host("gpu-01.example.org") == "host-1"
    assert scrub.serial("MT2246X01234") == "LW0000000001"
    text = "on gpu-01.example.org (gpu-01): training-7 of MT2246X01234, not training-77"
    assert scrub.text(text) == "on host-1 (host-1): net1 of LW0000000001, not training-77"
    assert scrub.seen == {"name": 2, "host name": 1, "serial number": 1, "MAC address": 1}


@given(st.text(alphabet="0123456789abcdef:x \n|", max_size=200))
def test_any_text_keeps_its_shape(text: str) -> None:
    new = Scrubber().text(text)
    assert re.sub("[0-9a-f]", "0", new) == re.sub("[0-9a-f]", "0", text)
