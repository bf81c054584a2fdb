"""Each complaint of the tools is an error with its own code; what we do not know is kept word for word."""

from __future__ import annotations

import pytest
from firmware_answers import PF, VERSIONS, answer, said
from hypothesis import given
from hypothesis import strategies as st

from linkwright.firmware import faults
from linkwright.model.errors import Busy, HardwareFault

SEEN = [
    ("ethernet_only", "param-unsupported"),
    ("ethernet_only_set", "param-unsupported"),
    ("single_port_p2", "unknown-parameter"),
    ("unknown_parameter", "unknown-parameter"),
    ("unknown_number", "unknown-value"),
    ("unknown_word", "unknown-value"),
    ("too_large", "value-too-large"),
    ("refused", "firmware-refused"),
    ("half_applied", "firmware-refused"),
    ("busy", "firmware-busy"),
    ("aborted", "aborted"),
    ("no_device", "device-open-failed"),
    ("stuck_semaphore", "device-open-failed"),
    ("unknown_chip", "device-unknown"),
    ("no_nv_access", "nv-access-unsupported"),
    ("partial", "partial-query"),
    ("backup_refused", "backup-unsupported"),
    ("reset_level_refused", "reset-level-unsupported"),
    ("reset_refused", "firmware-refused"),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("what", "code"), SEEN)
def test_what_the_tools_were_seen_to_say(version: str, what: str, code: str) -> None:
    failure = faults.fault(PF, answer(said(version, what)))
    assert failure.code == code
    assert failure.where == PF
    assert "{" not in failure.message + failure.next_step


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("-E- Failed to get devices.", "no-devices"),
        ("-E- Error when trying to check if NV access registers are supported", "nv-access-unsupported"),
        ("-E- Failed to open device: 0000:3b:00.0. No such file", "device-open-failed"),
        ("-E- Unsupported device", "device-unknown"),
        ("-E- Device in Livefish mode is not supported", "device-in-recovery"),
        ("-E- Parameter NUM_OF_PF' value is smaller than minimum allowed 1", "value-too-small"),
        ("-E- Failed to get nv_vpi_link_type settings Register not supported", "firmware-read-failed"),
        ("-E- Synchronization by driver is not supported in the current state.", "reset-sync-unsupported"),
        ("-E- Requested reset sync '1' is not supported.", "reset-sync-unsupported"),
        ("-E- Reset-type '1' is not supported in the current state of this device.", "reset-type-unsupported"),
        ("-E- The tool is not supported on virtual machines.", "reset-on-virtual-machine"),
        ("-E- The tool supports only reset-level 4 on UEFI Secure Boot.", "reset-secure-boot"),
        ("-E- Only root user can run this tool.", "needs-root"),
        ("-E- Firmware reset failed, retry operation or reboot machine.", "reset-failed"),
        ('-E- The fsm register is busy, run "x" to reset the register.', "firmware-busy"),
    ],
)
def test_what_the_sources_say_too(line: str, code: str) -> None:
    assert faults.fault(PF, answer(line, code=1, tool="mstfwreset")).code == code


def test_busy_is_the_retryable_kind() -> None:
    assert isinstance(faults.fault(PF, answer(said("4.21", "busy"))), Busy)


def test_the_unknown_is_kept_word_for_word() -> None:
    failure = faults.fault(PF, answer("Device #1:\n-E- The flux has a new colour\n"))
    assert isinstance(failure, HardwareFault)
    assert failure.code == "firmware-tool-error"
    assert "The flux has a new colour" in failure.message
    assert failure.command == f"mstconfig -d {PF} query"
    assert "The flux" in failure.said


def test_a_silent_failure_says_so() -> None:
    assert "said: nothing" in faults.fault(PF, answer("\n\n", code=1)).message


def test_a_killed_tool_points_at_the_semaphore() -> None:
    failure = faults.fault(PF, answer("", code=-9))
    assert failure.code == "firmware-tool-killed"
    assert f"mstconfig -d {PF} clear_semaphore" in failure.next_step


def test_limits_and_names_are_in_the_message() -> None:
    too_large = faults.fault(PF, answer(said("4.21", "too_large")))
    assert too_large.message == "NUM_OF_VFS may be 127 at most on this card"
    assert faults.named_parameter(said("4.31", "single_port_p2")) == "LINK_TYPE_P2"
    assert faults.named_parameter(said("4.31", "ethernet_only")) == "LINK_TYPE_P1"
    assert faults.named_parameter(said("4.31", "busy")) is None


@given(st.text(max_size=500), st.integers(-64, 255))
def test_any_text_is_an_error_of_ours(text: str, code: int) -> None:
    assert faults.fault(PF, answer("-E- " + text, code=code)).code
