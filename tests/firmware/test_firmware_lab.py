"""The driver with the distribution's own mstconfig, mstreg and mstfwreset on an emulated host.

One host for all tests of this file; each undoes the faults that it sets and the settings that it writes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hostlab import spec
from hostlab.lab import Host, Lab

pytestmark = pytest.mark.lab

VPI, PORT_2, ETHERNET = "0000:3b:00.0", "0000:3b:00.1", "0000:81:00.0"
HOST = """
name: gpu-11
fabrics:
  rail-0: {linkModes: [InfiniBand, RoCE], subnetManager: true}
adapters:
- {persona: cx6-vpi-dual, address: "0000:3b:00", ports: [{fabric: rail-0}, {fabric: rail-0}]}
- {persona: cx6lx-eth, address: "0000:81:00"}
"""
# Runs inside the host: one call of the facade, its answer or its error as JSON.
CALL = """
import json, sys, msgspec
from linkwright.firmware import open_firmware
from linkwright.kernel.system import System
from linkwright.model.errors import LinkwrightError
name, arguments = json.loads(sys.argv[1])
try:
    answer = getattr(open_firmware(System.from_environment()), name)(*arguments)
    print(msgspec.json.encode({"answer": answer}).decode())
except LinkwrightError as error:
    print(json.dumps({"error": error.to_json()}))
"""


@pytest.fixture(scope="module")
def host(lab: Lab) -> Iterator[Host]:
    yield lab.up(spec.parse(HOST, "test"))
    lab.down("gpu-11", erase=True)


Ask = Callable[..., Any]


@pytest.fixture
def ask(host: Host) -> Ask:
    """``ask("query", pf, names)``: the answer as plain data; an error comes as the JSON that people get."""

    def call(name: str, *arguments: object) -> Any:
        done = host.exec([sys.executable, "-c", CALL, json.dumps([name, arguments])])
        said = json.loads(done.stdout)
        return said["error"] if "error" in said else said["answer"]

    return call


@contextmanager
def fault(host: Host, name: str, value: object, adapter: str = "0000:3b:00") -> Iterator[None]:
    host.fault(adapter, name, value)
    try:
        yield
    finally:
        host.fault(adapter, name, None)


@pytest.fixture
def written_back(ask: Ask) -> Iterator[None]:
    yield
    assert "activation" in ask("write", VPI, {"LINK_TYPE_P1": "1", "LINK_TYPE_P2": "1"})


def next_boot(ask: Ask) -> list[str]:
    params = ask("query", VPI, ["LINK_TYPE_P1", "LINK_TYPE_P2"])["params"]
    return [params[f"LINK_TYPE_P{n}"]["next"] for n in (1, 2)]


def test_a_vpi_card_tells_its_modes(ask: Ask) -> None:
    reading = ask("query", VPI, ["LINK_TYPE_P1", "LINK_TYPE_P2", "LINK_TYPE_P3"])
    assert reading["device_type"] == "ConnectX6"
    assert reading["params"]["LINK_TYPE_P1"] == {
        "default": "IB(1)", "current": "IB(1)", "next": "IB(1)", "read_only": False
    }  # fmt: skip
    assert reading["missing"] == ["LINK_TYPE_P3"]


def test_an_ethernet_card_has_no_link_type(ask: Ask) -> None:
    reading = ask("query", ETHERNET, ["LINK_TYPE_P1", "NUM_OF_VFS"])
    assert reading["missing"] == ["LINK_TYPE_P1"]
    assert list(reading["params"]) == ["NUM_OF_VFS"]
    assert ask("write", ETHERNET, {"LINK_TYPE_P1": "2"})["code"] == "param-unsupported"


@pytest.mark.usefixtures("written_back")
def test_a_write_reaches_next_boot_alone(ask: Ask) -> None:
    written = ask("write", PORT_2, {"LINK_TYPE_P1": "2", "LINK_TYPE_P2": "2"})
    assert written["activation"] == "reboot"
    assert "Applying... Done!" in written["said"]
    row = written["reading"]["params"]["LINK_TYPE_P2"]
    assert (row["current"], row["next"]) == ("IB(1)", "ETH(2)")
    assert next_boot(ask) == ["ETH(2)", "ETH(2)"], "the card's ports share its settings"


@pytest.mark.usefixtures("written_back")
def test_a_card_that_cannot_arm_a_warm_reboot_says_power_cycle(host: Host, ask: Ask) -> None:
    with fault(host, "power_cycle_text", True):
        assert ask("write", VPI, {"LINK_TYPE_P1": "2"})["activation"] == "power-cycle-or-reset"


@pytest.mark.usefixtures("written_back")
def test_a_half_applied_write_is_told_as_it_is(host: Host, ask: Ask) -> None:
    with fault(host, "write_refused", ["LINK_TYPE_P2"]):
        half = ask("write", VPI, {"LINK_TYPE_P1": "2", "LINK_TYPE_P2": "2"})
    assert half["code"] == "half-applied"
    assert "LINK_TYPE_P1 ETH(2), LINK_TYPE_P2 IB(1) (not 2)" in half["message"]
    assert next_boot(ask) == ["ETH(2)", "IB(1)"]


def test_a_refused_write_changes_nothing(host: Host, ask: Ask) -> None:
    with fault(host, "write_refused", ["LINK_TYPE_P1"]):
        assert ask("write", VPI, {"LINK_TYPE_P1": "2"})["code"] == "firmware-refused"
    assert next_boot(ask) == ["IB(1)", "IB(1)"]
    assert ask("write", VPI, {"LINK_TYPE_P1": "7"})["code"] == "unknown-value"
    assert ask("write", VPI, {"NUM_OF_VFS": "5000"})["code"] == "value-too-large"


def test_a_card_that_tells_only_next_boot(host: Host, ask: Ask) -> None:
    with fault(host, "current_unreadable", True):
        row = ask("query", VPI, ["LINK_TYPE_P1"])["params"]["LINK_TYPE_P1"]
    assert (row["default"], row["current"], row["next"]) == (None, None, "IB(1)")


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("stuck_semaphore", {"device-open-failed"}),
        ("lockdown", {"device-open-failed", "device-unknown"}),
        ("unreadable", {"device-open-failed", "device-unknown"}),
    ],
)
def test_a_card_that_cannot_be_reached(host: Host, ask: Ask, name: str, codes: set[str]) -> None:
    with fault(host, name, True):
        assert ask("query", VPI, ["LINK_TYPE_P1"])["code"] in codes
    assert next_boot(ask) == ["IB(1)", "IB(1)"]


def test_a_card_that_is_gone(host: Host, ask: Ask) -> None:
    assert ask("query", "0000:99:00.0", ["LINK_TYPE_P1"])["code"] == "no-such-device"


@pytest.mark.usefixtures("written_back")
def test_a_reset_with_the_driver_makes_next_current(ask: Ask) -> None:
    assert ask("write", VPI, {"LINK_TYPE_P2": "2"})["activation"] == "reboot"
    offer = ask("reset_offer", VPI)
    assert offer["driver_sync"]
    assert 3 in offer["levels"]
    assert "FW was loaded successfully" in ask("reset", VPI)["said"]
    row = ask("query", VPI, ["LINK_TYPE_P2"])["params"]["LINK_TYPE_P2"]
    assert (row["current"], row["next"]) == ("ETH(2)", "ETH(2)")
    assert ask("uptime_s", VPI) < 600
    assert ask("write", VPI, {"LINK_TYPE_P2": "1"})["activation"] == "reboot"
    assert "FW was loaded successfully" in ask("reset", VPI)["said"]


def test_a_reset_that_is_not_offered_is_not_tried(host: Host, ask: Ask) -> None:
    with fault(host, "reset_unsupported", True):
        assert ask("reset", VPI)["code"] in ("reset-not-offered", "firmware-refused")


def test_a_capture_shows_what_the_host_shows(host: Host) -> None:
    """Discovery reads a capture as it reads the host; what is left out is what only netlink tells."""
    live = json.loads(host.exec(["linkwright", "nics", "-o", "json"]).stdout)
    host.exec(["linkwright", "capture", "/tmp/copy"], timeout_s=600.0)
    copy = json.loads(host.exec(["linkwright", "nics", "--sysroot", "/tmp/copy", "-o", "json"]).stdout)
    text = host.exec(["grep", "-rn", "gpu-11", "/tmp/copy"], check=False).stdout
    assert text == ""
    mine, theirs = (view["inventory"]["adapters"] for view in (live, copy))
    assert len(mine) == len(theirs) == 2
    for one, other in zip(mine, theirs, strict=True):
        for key in ("model", "device_type", "part_number", "psid", "firmware"):
            assert one["identity"][key] == other["identity"][key]
        assert one["identity"]["serial"] != other["identity"]["serial"]
        assert one["identity"]["system_image_guid"] != other["identity"]["system_image_guid"]
        for port, same in zip(one["ports"], other["ports"], strict=True):
            for key in (
                "id",
                "number",
                "next_mode",
                "current_mode",
                "observed_mode",
                "can_change",
                "total_vfs",
                "link",
            ):
                assert port[key] == same[key], key
