"""Faults are set and taken away while a host runs, by names that are listed."""

from __future__ import annotations

import pytest

from hostlab.lab import Host
from linkwright.model.errors import LinkwrightError

pytestmark = pytest.mark.lab

PORT_STATE = "/sys/class/infiniband/ibp59s0f0/ports/1/state"


def devices(host: Host) -> str:
    return host.exec(["ls", "/sys/bus/pci/devices"]).stdout


def test_a_card_falls_off_the_bus_and_comes_back(lab_host: Host) -> None:
    lab_host.fault("0000:3b:00.0", "vanished")
    assert "0000:3b:00.0" not in devices(lab_host)
    assert "0000:5e:00.0" in devices(lab_host)
    assert not lab_host.status()["adapters"][0]["present"]
    lab_host.fault("0000:3b:00", "vanished", False)
    assert "0000:3b:00.0" in devices(lab_host)


def test_a_subnet_manager_stops(lab_host: Host) -> None:
    assert lab_host.exec(["cat", PORT_STATE]).stdout == "4: ACTIVE\n"
    lab_host.fault("rail-0", "subnet_manager", False)
    assert lab_host.exec(["cat", PORT_STATE]).stdout == "2: INIT\n"
    lab_host.fault("rail-0", "subnet_manager", True)
    assert lab_host.exec(["cat", PORT_STATE]).stdout == "4: ACTIVE\n"


def test_the_vendors_tool_meets_a_fault_of_the_firmware(lab_host: Host) -> None:
    query = ["mstconfig", "-d", "0000:5e:00.0", "query", "LINK_TYPE_P1"]
    lab_host.fault("0000:5e:00", "unreadable")
    assert lab_host.exec(query, check=False).returncode != 0
    lab_host.fault("0000:5e:00", "unreadable", False)
    assert "LINK_TYPE_P1" in lab_host.exec(query).stdout


@pytest.mark.parametrize(("where", "name"), [("0000:3b:00", "gremlins"), ("rail-0", "busy"), ("rail-9", "busy")])
def test_what_there_is_not_is_refused(lab_host: Host, where: str, name: str) -> None:
    with pytest.raises(LinkwrightError, match=r"no such fault|neither an adapter nor a fabric"):
        lab_host.fault(where, name)
