"""Which driver answers for which card, and that a card of another vendor meets no tool of this one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from firmware_answers import PF, said
from replay_tools import ReplayTools

from linkwright.firmware import Firmware, commands, link_type_name, link_type_of
from linkwright.firmware.fixed import FixedMode
from linkwright.firmware.mstconfig import MstTools
from linkwright.model.errors import InvalidInput
from linkwright.model.values import LinkMode

OTHER = "0000:81:00.0"


def facade(tools: ReplayTools) -> Firmware:
    other = tools.sys / "bus/pci/devices" / OTHER
    other.mkdir(parents=True)
    (other / "vendor").write_text("0x8086\n")
    return Firmware(tools.sys, MstTools(sys=tools.sys, run=tools.run))


def test_each_card_by_its_vendor(replay: Callable[[str], ReplayTools]) -> None:
    tools = replay("4.21")
    firmware = facade(tools)
    assert isinstance(firmware.driver(PF), MstTools)
    assert isinstance(firmware.driver(OTHER), FixedMode)
    assert isinstance(firmware.driver("0000:99:00.0"), MstTools), "unreadable: its tool says what is wrong"
    assert firmware.version() == "4.21.0"


def test_a_fixed_card_has_no_parameters_and_takes_none(replay: Callable[[str], ReplayTools]) -> None:
    tools = replay("4.21")
    firmware = facade(tools)
    reading = firmware.query(OTHER, ["LINK_TYPE_P1", "SRIOV_EN"])
    assert (dict(reading.params), reading.missing) == ({}, ("LINK_TYPE_P1", "SRIOV_EN"))
    assert firmware.uptime_s(OTHER) is None
    assert not firmware.reset_offer(OTHER).usable
    assert firmware.backup(OTHER) == ""
    assert firmware.transcripts(OTHER) == {}
    for change in (lambda: firmware.write(OTHER, {"LINK_TYPE_P1": "1"}), lambda: firmware.reset(OTHER)):
        with pytest.raises(InvalidInput) as caught:
            change()
        assert caught.value.code == "fixed-mode"
    assert tools.calls() == []


def test_transcripts_keep_failures_too(replay: Callable[[str], ReplayTools]) -> None:
    tools = replay("4.21")
    tools.rule("mstconfig", "*query*", said("4.21", "busy"), code=3)
    tools.rule("mstreg", "*", said("4.21", "uptime"))
    tools.rule("mstfwreset", "*query*", said("4.21", "offer"))
    answers = facade(tools).transcripts(PF)
    assert {key: a.code for key, a in answers.items()} == {"query": 3, "uptime": 0, "reset": 0}
    assert answers["query"].command == commands.query(PF)


def test_commands_are_those_that_people_would_type() -> None:
    settings = {link_type_name(n): link_type_of(LinkMode.ROCE) for n in (1, 2)}
    assert " ".join(commands.write(PF, settings)) == f"mstconfig -y -d {PF} set LINK_TYPE_P1=2 LINK_TYPE_P2=2"
    assert " ".join(commands.reset(PF)) == f"mstfwreset -d {PF} -l 3 --sync 1 -y reset"
    assert Path(commands.query(PF, json_to="/run/x")[5]) == Path("/run/x")
