"""What ``nics`` says under its table of cards and tools that are not as usual; and the lines of host.yaml."""

from __future__ import annotations

import pytest

from linkwright.cli.render.nics import cards_said
from linkwright.model.documents import HostConfig
from linkwright.model.errors import InvalidInput
from linkwright.model.inventory import Adapter, Function, Inventory, Owner, Port
from linkwright.model.load import load_documents
from linkwright.model.values import PciAddress, PortId

PF = PciAddress("0000:3b:00.0")


def test_each_is_said_in_a_line_of_its_own() -> None:
    card = Adapter(
        id="a",
        ports=(Port(id=PortId(f"{PF}/1"), number=1, pf=Function(address=PF)),),
        replaced="serial MT1 → MT2",
        merged="bond0",
        dpu=True,
        roce_off=True,
    )
    owners = (
        Owner(name="udev", evidence="/etc/udev/rules.d/70.rules", what="names", pfs=(PF,)),
        Owner(name="sriov-network-device-plugin", evidence="pid 9 (sriovdp)", what="VFs"),
    )
    said = cards_said(Inventory(host="gpu-01", boot_id="b", adapters=(card,), owners=owners))
    assert said == [
        f"{PF}: another card than the one that was known here (serial MT1 → MT2); nothing is done on it. If that "
        f"is meant: linkwright adapter replace {PF}",
        f"{PF}: its ports are merged into one RDMA device (bond0).",
        f"{PF}: a BlueField in DPU mode; a restart of this host does not reset it.",
        f"{PF}: RoCE is switched off in its firmware (ROCE_CONTROL): Ethernet without RDMA.",
        f"{PF}: udev manages names (/etc/udev/rules.d/70.rules).",
        "every card: sriov-network-device-plugin manages VFs (pid 9 (sriovdp)).",
    ]
    assert cards_said(Inventory(host="gpu-01", boot_id="b")) == []


HOST = """apiVersion: linkwright.dev/v1alpha1
kind: HostConfig
spec:
  allowOwnTraffic: ["81:00.0", eno1]
  takeOver: [{name}]
"""


def test_host_yaml_names_ports_and_tools() -> None:
    (found,) = load_documents(HOST.format(name="openibd"), "host.yaml")
    assert isinstance(found.document, HostConfig)
    assert found.document.spec.allow_own_traffic == ("0000:81:00.0", "eno1")
    assert found.document.spec.take_over == ("openibd",)


def test_a_tool_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(
        InvalidInput, match=r"host.yaml:5.*no tool that is recognised here. Known: sriov-network-op"
    ):
        load_documents(HOST.format(name="ansible"), "host.yaml")
