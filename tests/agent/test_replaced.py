"""What accepting another card does to the records: the old one's settings go, changes about it end, slots stay."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from linkwright.agent import replaced
from linkwright.model.errors import InvalidInput
from linkwright.model.inventory import Adapter, Function, Identity, Inventory, Port
from linkwright.model.records import Attachment, KnownCard, ModeChange, Phase, Setting
from linkwright.model.values import LinkMode, PciAddress, PortId
from linkwright.store.db import Store

PF, OTHER = PciAddress("0000:3b:00.0"), PciAddress("0000:5e:00.0")
P1, P2 = PortId(f"{PF}/1"), PortId(f"{OTHER}/1")


def card(pf: PciAddress, name: str, **more: Any) -> Adapter:
    port = Port(id=PortId(f"{pf}/1"), number=1, pf=Function(address=pf), current_mode=LinkMode.INFINIBAND)
    return Adapter(id=name, identity=Identity(serial="MT2", model="ConnectX-6 VPI"), ports=(port,), **more)


def change(policy: str, phase: Phase, *ports: PortId) -> ModeChange:
    return ModeChange(
        policy=policy,
        generation=1,
        wanted=LinkMode.ROCE,
        ports=ports,
        phase=phase,
        activations=1,
        settings=tuple(Setting(pf=PciAddress(p.split("/")[0]), name="LINK_TYPE_P1", value="2") for p in ports),
    )


@pytest.fixture
def world(tmp_path: Path) -> Any:
    store = Store(tmp_path / "state.db")
    store.put_cards([KnownCard(pf=PF, serial="MT1")])
    inventory = Inventory(
        host="gpu-01",
        boot_id="b",
        adapters=(card(PF, "new", replaced="serial MT1 → MT2"), card(OTHER, "same")),
    )
    asked: list[str] = []
    return SimpleNamespace(
        store=store,
        look=lambda fresh=False: SimpleNamespace(inventory=inventory),
        progress=SimpleNamespace(last=7),
        ask=asked.append,
        asked=asked,
    )


def test_the_card_is_known_from_then_on_and_its_slots_are_kept(world: Any) -> None:
    world.store.put_attachment(
        Attachment(target="a", interface="net1", policy="p", generation=1, port=P1, adapter="old")
    )
    said = replaced.accept(world, PF, "uid 0", "RMA 4711")
    assert said["modes"] == {P1: "InfiniBand"}
    assert world.store.cards()[PF].serial == "MT2"
    assert world.store.attachment("a", "net1").adapter == "new"
    (entry,) = world.store.history()
    assert (entry.what, entry.who, entry.why) == (f"adapter replace {PF}", "uid 0", "RMA 4711")
    assert entry.after == "serial MT1 → MT2"
    assert world.asked == ["adapter replace"]


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.FAILED, Phase.VERIFY_MODE])
def test_a_change_about_the_old_card_only_is_over(world: Any, phase: Phase) -> None:
    world.store.put_change(change("p", phase, P1))
    replaced.accept(world, PF, "uid 0", "")
    (kept,) = world.store.changes()
    assert (kept.phase, kept.settings) == (Phase.DONE, ())
    assert kept.detail == f"ended: the card was replaced (it was {phase.value})"


def test_a_finished_change_no_longer_says_that_the_new_card_was_activated(world: Any) -> None:
    done = change("p", Phase.DONE, P1, P2)
    world.store.put_change(done)
    replaced.accept(world, "0000:3b:00", "uid 0", "")
    (kept,) = world.store.changes()
    assert [s.pf for s in kept.settings] == [OTHER]
    assert kept == msgspec.structs.replace(done, settings=kept.settings)


def test_a_change_of_two_cards_goes_on_for_the_other(world: Any) -> None:
    world.store.put_change(change("p", Phase.WAITING, P1, P2))
    replaced.accept(world, PF, "uid 0", "")
    (kept,) = world.store.changes()
    assert (kept.phase, [s.pf for s in kept.settings]) == (Phase.WAITING, [OTHER])


@pytest.mark.parametrize(
    ("address", "code"),
    [(OTHER, "adapter-not-replaced"), ("0000:99:00.0", "unknown-adapter"), ("eth0", "unknown-adapter")],
)
def test_what_cannot_be_accepted(world: Any, address: str, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        replaced.accept(world, address, "uid 0", "")
    assert caught.value.code == code
    assert world.store.history() == ()
