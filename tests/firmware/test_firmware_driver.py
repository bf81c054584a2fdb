"""The driver's own judgement: what it asks, what it makes of a write that went half way, what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from firmware_answers import PF, said
from replay_tools import ReplayTools

from linkwright.firmware.mstconfig import MstTools
from linkwright.model.errors import Busy, HardwareFault, InvalidInput, LinkwrightError, NeedsPerson, Vanished

Replay = Callable[[str], ReplayTools]


def driver(tools: ReplayTools) -> MstTools:
    return MstTools(sys=tools.sys, run=tools.run)


def failure(call: Callable[[], object]) -> LinkwrightError:
    with pytest.raises(LinkwrightError) as caught:
        call()
    return caught.value


def test_one_table_query_with_the_old_tool(replay: Replay) -> None:
    tools = replay("4.21")
    tools.rule("mstconfig", "*query*", said("4.21", "query_after_set"))
    reading = driver(tools).query(PF, ["LINK_TYPE_P1", "SRIOV_EN"])
    assert reading.params["LINK_TYPE_P1"].next == "ETH(2)"
    assert reading.missing == ()
    assert tools.calls() == [f"mstconfig -d {PF} -e query LINK_TYPE_P1 SRIOV_EN"]


def test_json_with_the_tool_that_has_it(replay: Replay) -> None:
    tools = replay("4.31")
    tools.rule("mstconfig", "*query*", "saved\n", file=said("4.31", "query_after_set", ".json"))
    assert driver(tools).query(PF, ["NUM_OF_VFS"]).params["NUM_OF_VFS"].next == "8"
    assert " -j " in tools.calls()[0]
    assert list((tools.run / "firmware").iterdir()) == []


@pytest.mark.parametrize("version", ["4.21", "4.31"])
def test_a_lacking_parameter_is_dropped_and_remembered(replay: Replay, version: str) -> None:
    tools = replay(version)
    tools.rule("mstconfig", "*query*LINK_TYPE_P2*", said(version, "single_port_p2"), code=3, file="{}")
    good = {"file": said("4.31", "query_after_set", ".json")} if version == "4.31" else {}
    tools.rule("mstconfig", "*query*", said(version, "query_after_set"), **good)
    card = driver(tools)
    for _ in range(2):
        reading = card.query(PF, ["LINK_TYPE_P1", "LINK_TYPE_P2"])
        assert reading.missing == ("LINK_TYPE_P2",)
        assert "LINK_TYPE_P1" in reading.params
    assert len(tools.calls()) == 3, "the second reading asks only for what the card has"


@pytest.mark.parametrize("version", ["4.21", "4.31"])
def test_a_fixed_type_card_is_still_described(replay: Replay, version: str) -> None:
    tools = replay(version)
    tools.rule("mstconfig", "*-j*query*", said("4.31", "ethernet_only"), code=3, file="{}")
    tools.rule("mstconfig", "*query*", said("4.21", "ethernet_only"), code=3)
    card = driver(tools)
    for _ in range(2):
        reading = card.query(PF, ["LINK_TYPE_P1"])
        assert (reading.device_type, reading.missing) == ("ConnectX4LX", ("LINK_TYPE_P1",))


def test_what_a_card_lacks_is_asked_again_after_a_write(replay: Replay) -> None:
    tools = replay("4.21")
    tools.rule("mstconfig", "*query*LINK_TYPE_P2*", said("4.21", "single_port_p2"), code=3)
    tools.rule("mstconfig", "*query*", said("4.21", "query_after_set"))
    tools.rule("mstconfig", "*set*", said("4.21", "set"))
    card = driver(tools)
    card.query(PF, ["LINK_TYPE_P1", "LINK_TYPE_P2"])
    card.write(PF, {"LINK_TYPE_P1": "2"})
    before = len(tools.calls())
    card.query(PF, ["LINK_TYPE_P1", "LINK_TYPE_P2"])
    assert len(tools.calls()) - before == 2


def test_a_good_write_carries_command_words_and_read_back(replay: Replay) -> None:
    tools = replay("4.21")
    tools.rule("mstconfig", "*query*", said("4.21", "query_after_set"))
    tools.rule("mstconfig", "*set*", said("4.21", "power_cycle"))
    written = driver(tools).write(PF, {"LINK_TYPE_P1": "2", "NUM_OF_VFS": "8"})
    assert written.command == ("mstconfig", "-y", "-d", PF, "set", "LINK_TYPE_P1=2", "NUM_OF_VFS=8")
    assert written.activation == "power-cycle-or-reset"
    assert "power cycle machine" in written.said
    assert written.reading.params["NUM_OF_VFS"].next == "8"


def test_a_write_that_went_half_way_says_what_is_where(replay: Replay) -> None:
    tools = replay("4.21")
    before = said("4.21", "half_applied_after").replace("ETH(2)", "IB(1)").replace("*  ", "   ")
    tools.rule("mstconfig", "*query*", said("4.21", "half_applied_after"), when="written")
    tools.rule("mstconfig", "*query*", before)
    tools.rule("mstconfig", "*set*", said("4.21", "half_applied"), code=3, then="written")
    half = failure(lambda: driver(tools).write(PF, {"LINK_TYPE_P1": "2", "LINK_TYPE_P2": "2"}))
    assert isinstance(half, HardwareFault)
    assert half.code == "half-applied"
    assert "LINK_TYPE_P1 ETH(2), LINK_TYPE_P2 IB(1) (not 2)" in half.message
    assert "Register not supported" in half.message
    assert half.next_step.endswith(f"mstconfig -y -d {PF} set LINK_TYPE_P1=1")


def test_a_refused_write_that_changed_nothing_is_the_tools_refusal(replay: Replay) -> None:
    tools = replay("4.21")
    tools.rule("mstconfig", "*query*", said("4.21", "query_after_set"))
    tools.rule("mstconfig", "*set*", said("4.21", "refused"), code=3)
    assert failure(lambda: driver(tools).write(PF, {"LINK_TYPE_P1": "1"})).code == "firmware-refused"


def test_success_that_did_not_stay_is_no_success(replay: Replay) -> None:
    tools = replay("4.21")
    tools.rule("mstconfig", "*query*", said("4.21", "query_after_set"))
    tools.rule("mstconfig", "*set*", said("4.21", "set"))
    assert failure(lambda: driver(tools).write(PF, {"LINK_TYPE_P1": "1"})).code == "write-not-kept"
    mixed = failure(lambda: driver(tools).write(PF, {"LINK_TYPE_P1": "2", "LINK_TYPE_P2": "1"}))
    assert mixed.code == "half-applied"


def test_a_write_that_cannot_be_read_back_says_so(replay: Replay) -> None:
    tools = replay("4.21")
    tools.rule("mstconfig", "*query*", said("4.21", "busy"), code=3, when="written")
    tools.rule("mstconfig", "*query*", said("4.21", "query_after_set"))
    tools.rule("mstconfig", "*set*", said("4.21", "set"), then="written")
    unread = failure(lambda: driver(tools).write(PF, {"LINK_TYPE_P1": "2"}))
    assert unread.code == "write-not-read-back"
    assert "was taken" in unread.message


def test_busy_and_partial_and_vanished(replay: Replay) -> None:
    tools = replay("4.21")
    tools.rule("mstconfig", "*LINK_TYPE_P1*", said("4.21", "busy"), code=3)
    tools.rule("mstconfig", "*", said("4.21", "partial"), code=3)
    card = driver(tools)
    assert isinstance(failure(lambda: card.query(PF, ["LINK_TYPE_P1"])), Busy)
    assert failure(lambda: card.query(PF)).code == "partial-query"
    assert card.query(PF, ["NUM_OF_VFS"]).params["NUM_OF_VFS"].next is not None
    assert isinstance(failure(lambda: card.query("0000:99:00.0", ["NUM_OF_PF"])), LinkwrightError)
    (tools.sys / "bus/pci/devices" / PF / "vendor").unlink()
    (tools.sys / "bus/pci/devices" / PF).rmdir()
    assert isinstance(failure(lambda: card.query(PF, ["LINK_TYPE_P1"])), Vanished)


def test_nothing_that_could_be_read_as_an_option_reaches_the_tool(replay: Replay) -> None:
    tools = replay("4.21")
    card = driver(tools)
    for call in (
        lambda: card.query("-d", []),
        lambda: card.query(PF, ["--help"]),
        lambda: card.write(PF, {"LINK_TYPE_P1": "2 -y"}),
        lambda: card.write(PF, {}),
    ):
        assert isinstance(failure(call), InvalidInput)
    assert tools.calls() == []


def test_a_reset_is_refused_unless_the_driver_takes_part(replay: Replay) -> None:
    tools = replay("4.31")
    tools.rule("mstfwreset", "*query*", said("4.21", "offer"))
    assert failure(lambda: driver(tools).reset(PF)).code == "reset-not-offered"
    assert not any(call.endswith("reset") for call in tools.calls())


@pytest.mark.parametrize("version", ["4.21", "4.31"])
def test_a_reset_that_the_tool_saw_succeed(replay: Replay, version: str) -> None:
    tools = replay(version)
    tools.rule("mstfwreset", "*query*", said(version, "offer"))
    tools.rule("mstfwreset", "*reset*", said(version, "reset"))
    done = driver(tools).reset(PF)
    assert done.command == ("mstfwreset", "-d", PF, "-l", "3", "--sync", "1", "-y", "reset")
    assert "FW was loaded successfully" in done.said


def test_uptime_is_unknown_where_the_tool_cannot(replay: Replay) -> None:
    tools = replay("4.21")
    tools.rule("mstreg", "*MGIR*", said("4.21", "uptime_refused"), code=1)
    assert driver(tools).uptime_s(PF) is None


def test_a_backup_is_raw_where_offered_else_the_table(replay: Replay) -> None:
    tools = replay("4.21")
    tools.rule("mstconfig", "*backup*", "Collecting...\n", file="MLNX_RAW_TLV_FILE\n0x1\n", when="can")
    tools.rule("mstconfig", "*backup*", said("4.21", "backup_refused"), code=1, then="can")
    tools.rule("mstconfig", "*query*", said("4.21", "everything"))
    assert driver(tools).backup(PF) == said("4.21", "everything")
    assert driver(tools).backup(PF) == "MLNX_RAW_TLV_FILE\n0x1\n"


def test_an_upgraded_tool_is_looked_at_again(replay: Replay) -> None:
    tools = replay("4.21")
    card = driver(tools)
    assert card.version() == "4.21.0"
    script = tools.bin / "mstconfig"
    script.write_text("#!/bin/sh\necho 'mstconfig, mstflint 4.36.1, Git SHA Hash: N/A'\n")
    assert card.version() == "4.36.1"


def test_a_missing_package_is_for_a_person(replay: Replay, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = replay("4.21")
    monkeypatch.setenv("PATH", str(tools.run))
    assert driver(tools).version() is None
    missing = failure(lambda: driver(tools).query(PF, ["LINK_TYPE_P1"]))
    assert isinstance(missing, NeedsPerson)
    assert missing.code == "mstflint-missing"
