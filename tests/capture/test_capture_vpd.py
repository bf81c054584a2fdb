from __future__ import annotations

from captured_host import vpd as sample
from hypothesis import given
from hypothesis import strategies as st

from linkwright.capture import vpd


def test_fields_and_what_is_left_of_them() -> None:
    assert vpd.fields(sample()) == {
        "": "ConnectX-6 VPI", "PN": "MCX653106A-ECAT", "SN": "MT2246X01234", "V0": "acme"
    }  # fmt: skip
    new = vpd.scrubbed(sample(), lambda serial: "X" * len(serial))
    assert vpd.fields(new) == {"": "ConnectX-6 VPI", "PN": "MCX653106A-ECAT", "SN": "X" * 12}
    assert sum(new[:-1]) & 0xFF == 0, "the checksum byte makes the sum zero"


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    assert all(isinstance(value, str) for value in vpd.fields(data).values())
    assert vpd.fields(vpd.scrubbed(data, lambda serial: serial)).get("SN") == vpd.fields(data).get("SN")
