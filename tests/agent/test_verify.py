"""Verdicts after an activation: each failure names its reason code, what was seen and what a person does."""

import pytest

from linkwright.agent import verify
from linkwright.model.inventory import Adapter, Function, Inventory, Netdev, Port, RdmaDevice
from linkwright.model.records import ModeChange, Phase, Setting
from linkwright.model.values import Guid, LinkMode, PciAddress, port_id

PF = PciAddress("0000:3b:00.0")
PORT = port_id(PF, 1)
IB, ROCE = LinkMode.INFINIBAND, LinkMode.ROCE


def inventory(
    *,
    current: LinkMode | None = IB,
    observed: LinkMode | None = IB,
    uptime: int | None = 5,
    boot: str = "new",
    rdma: RdmaDevice | None = None,
    carrier: bool = True,
    vfs: int = 16,
) -> Inventory:
    netdev = Netdev(name="ibp59s0f0", ifindex=5, link_type=32, address="00", mtu=2044, carrier=carrier)
    port = Port(
        id=PORT,
        number=1,
        pf=Function(address=PF, driver="mlx5_core", netdev=netdev, rdma=rdma),
        next_mode=current,
        current_mode=current,
        observed_mode=observed,
        fabric="rail-0",
    )
    adapter = Adapter(id="card", ports=(port,), uptime_s=uptime, num_vfs_current=vfs)
    return Inventory(host="gpu-01", boot_id=boot, adapters=(adapter,))


def ib(state: str, **fields: int) -> RdmaDevice:
    """A port whose link is up and that has a GUID."""
    guid = Guid("b8:ce:f6:00:00:00:00:01")
    return RdmaDevice(name="ib0", state=state, phys_state="LinkUp", node_guid=guid, **fields)


def change(**fields: object) -> ModeChange:
    base: dict[str, object] = {
        "policy": "training",
        "generation": 7,
        "wanted": IB,
        "ports": (PORT,),
        "phase": Phase.VERIFY_MODE,
        "boot_id": "old",
        "uptime_before": {"card": 4000},
        "intent_at": 1000.0,
    }
    return ModeChange(**(base | fields))  # type: ignore[arg-type]


def test_a_card_in_the_wanted_mode_passes() -> None:
    assert verify.mode_verdict(change(), inventory(), now=1060.0).ok


def test_a_restart_that_did_not_reset_the_card_is_told_from_its_uptime() -> None:
    verdict = verify.mode_verdict(change(), inventory(current=ROCE, observed=ROCE, uptime=4060), now=1060.0)
    assert verdict.code == "card-not-reset"
    assert "wanted InfiniBand · next RoCE · current RoCE · observed RoCE · boot id changed" in verdict.text
    assert "linkwright retry training" in verdict.next_step


def test_the_tools_power_cycle_line_becomes_the_reason() -> None:
    said = ("-I- Please power cycle machine to load new configurations.",)
    verdict = verify.mode_verdict(change(said=said), inventory(current=ROCE, observed=ROCE), now=1060.0)
    assert verdict.code == "power-cycle-needed"


def test_a_reset_card_in_the_old_mode_did_not_take_it() -> None:
    assert verify.mode_verdict(change(), inventory(current=ROCE, observed=ROCE), 1060.0).code == "mode-not-taken"


def test_unknown_firmware_is_no_fault() -> None:
    assert verify.mode_verdict(change(), inventory(current=None, uptime=None), 1060.0).ok


def test_a_driver_that_is_not_there_yet_is_waited_for() -> None:
    verdict = verify.mode_verdict(change(), inventory(observed=None), 1060.0)
    assert verdict.wait
    assert verdict.code == "driver-not-ready"


def test_firmware_and_kernel_that_disagree_fail() -> None:
    assert verify.mode_verdict(change(), inventory(observed=ROCE), 1060.0).code == "kernel-disagrees"


def test_a_port_that_vanished_is_waited_for() -> None:
    empty = Inventory(host="gpu-01", boot_id="new")
    assert verify.mode_verdict(change(), empty, 1060.0).code == "port-vanished"


@pytest.mark.parametrize(
    ("rdma", "code"),
    [
        (RdmaDevice(name="ib0", state="ACTIVE", phys_state="LinkUp", lid=3, sm_lid=1), ""),
        (ib("INIT", lid=0, sm_lid=0), "no-subnet-manager"),
        (ib("ACTIVE", lid=0xFFFF, sm_lid=1), "no-subnet-manager"),
        (RdmaDevice(name="ib0", state="DOWN", phys_state="Polling", lid=0, sm_lid=0), "link-down"),
    ],
)
def test_infiniband_fabric(rdma: RdmaDevice, code: str) -> None:
    verdict = verify.fabric_verdict(change(), inventory(rdma=rdma))
    assert (verdict.ok, verdict.code) == (not code, code)
    assert verdict.ok or (verdict.wait and "rail-0" in verdict.next_step)


def test_a_port_without_a_guid_is_told_from_a_missing_subnet_manager() -> None:
    rdma = RdmaDevice(name="ib0", state="INIT", phys_state="LinkUp", lid=0, sm_lid=0)
    verdict = verify.fabric_verdict(change(), inventory(rdma=rdma))
    assert (verdict.wait, verdict.code) == (True, "guid-zero")
    assert f"mstflint -d {PF} query" in verdict.next_step


@pytest.mark.parametrize(("carrier", "code"), [(True, ""), (False, "link-down")])
def test_roce_fabric(carrier: bool, code: str) -> None:
    seen = inventory(current=ROCE, observed=ROCE, carrier=carrier)
    assert verify.fabric_verdict(change(wanted=ROCE), seen).code == code


def test_a_shared_setting_that_did_not_become_current_fails() -> None:
    setting = Setting(pf=PF, name="NUM_OF_VFS", value="32", before="16")
    verdict = verify.settings_verdict(change(settings=(setting,)), inventory(vfs=16))
    assert verdict.code == "setting-not-taken"
    assert verify.settings_verdict(change(settings=(setting,)), inventory(vfs=32)).ok
