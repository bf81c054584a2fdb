"""The way back: before-values of the first write, what a restored policy asks for, what an uninstall would do."""

from __future__ import annotations

from typing import Any

import msgspec
from questions import (
    CARD,
    IB,
    P1,
    P2,
    ROCE,
    adapter,
    attached,
    away,
    function,
    in_use,
    policy,
    port,
    question,
)
from simulate import Simulation

from linkwright.agent.asfound import as_found, keep_settings, keep_vfs, taken_back
from linkwright.agent.restoring import in_words, way_back, what_stays
from linkwright.model.inventory import Holder
from linkwright.model.plan import SetVfs, WriteFirmware
from linkwright.model.records import ModeChange, Setting
from linkwright.planner.undo import AsFound, first_settings, undo_steps
from linkwright.store import Store

PF = f"{CARD}.0"


def setting(name: str = "LINK_TYPE_P1", value: str = "2", before: str | None = "1") -> Setting:
    return Setting(pf=PF, name=name, value=value, before=before)


def change(started: float, *settings: Setting, intent: bool = True, policy_name: str = "training") -> ModeChange:
    return ModeChange(
        policy=policy_name,
        generation=int(started),
        wanted=ROCE,
        settings=settings,
        started=started,
        intent_at=started if intent else None,
    )


# -- what was there before -------------------------------------------------------------------------------------


def test_the_first_write_of_each_parameter_counts():
    first = setting()
    later = setting(value="1", before="2")
    assert first_settings([change(2, later), change(1, first)]) == (first,)
    planned = change(0.5, setting(before="7"), intent=False)
    assert first_settings([planned, change(1, first)]) == (first,)
    assert first_settings([change(1, first), change(2, later)], since=1.5) == (later,)
    assert first_settings([change(2, later)], extra=[(1.0, first)]) == (first,)


def test_before_values_outlive_later_writes_and_end_with_a_way_back(tmp_path):
    store = Store(tmp_path / "state.db")
    keep_vfs(store, P1, 0)
    keep_vfs(store, P1, 4)
    store.put_change(change(1.0, setting()))
    keep_settings(store, [setting("LINK_TYPE_P2", "1", "2")])
    keep_settings(store, [setting("LINK_TYPE_P2", "2", "1")])
    found = as_found(store)
    assert found.vfs == {P1: 0}
    assert {(s.name, s.before) for s in found.settings} == {("LINK_TYPE_P1", "1"), ("LINK_TYPE_P2", "2")}
    assert [s.name for s in as_found(store, "training").settings] == ["LINK_TYPE_P1"]
    assert not as_found(store, "other").settings
    taken_back(store, None)
    assert as_found(store) == AsFound()


# -- a restored policy -----------------------------------------------------------------------------------------


def test_a_restored_policy_asks_for_the_modes_and_vf_counts_of_before():
    old = policy(mode=ROCE, assign="VF", num_vfs=4, pci_addresses=(PF, f"{CARD}.1"))
    seen = question(adapter(port(1, vfs=4), port(2, vfs=4)), policies=(old,))
    found = AsFound(settings=(setting(), setting("LINK_TYPE_P2", "2", "2")), vfs={P1: 0, P2: 0})
    one, two = way_back(old, [P1, P2], found, seen)
    assert (one.name, one.spec.link_mode, one.spec.nic_selector.pci_addresses) == ("training", IB, (PF,))
    assert (two.name, two.spec.link_mode) == ("training.2", ROCE)
    assert two.spec.nic_selector.pci_addresses == (f"{CARD}.1",)
    assert {d.spec.functions.num_vfs for d in (one, two)} == {0}
    assert in_words(one) == f"goes back to InfiniBand, 0 VFs: {PF}"
    assert way_back(old, [P1, P2], AsFound(), seen) == []


def test_the_way_back_goes_through_an_ordinary_change_and_ends_with_nothing_planned():
    old = policy(mode=ROCE, assign="VF", num_vfs=4)
    seen = question(adapter(port(1, vfs=4)), policies=(old,), generations={"training": 1})
    (back,) = way_back(old, [P1], AsFound(settings=(setting(),), vfs={P1: 0}), seen)
    desired = msgspec.structs.replace(seen.desired, policies=(back,), generations={"training": 2})
    simulation = Simulation(msgspec.structs.replace(seen, desired=desired))
    last = simulation.settle()
    assert not last.steps
    assert len(simulation.restarts) == 1
    (there,) = simulation.question.inventory.adapters[0].ports
    assert (there.current_mode, there.num_vfs) == (IB, 0)


def test_vfs_without_holders_go_back_to_none_without_a_restart():
    old = policy(mode=IB, assign="VF", num_vfs=4)
    seen = question(adapter(port(1, IB, vfs=4)), policies=(old,))
    (back,) = way_back(old, [P1], AsFound(vfs={P1: 0}), seen)
    desired = msgspec.structs.replace(seen.desired, policies=(back,))
    simulation = Simulation(msgspec.structs.replace(seen, desired=desired))
    simulation.settle()
    assert [(s.before, s.count) for s in simulation.steps if isinstance(s, SetVfs)] == [(4, 0)]
    assert simulation.restarts == []


def test_what_stays_is_said():
    seen = question(adapter(port(1, IB, vfs=3), port(2, ROCE)))
    assert what_stays([P1, P2], seen) == [
        "0000:3b:00.0 p1 stays InfiniBand with 3 VFs",
        "0000:3b:00.1 p2 stays RoCE",
    ]


# -- the whole host --------------------------------------------------------------------------------------------

FOUND = AsFound(
    settings=(
        setting(),
        setting("LINK_TYPE_P2", "1", "2"),
        setting("NUM_OF_VFS", "16", "0"),
        setting("SRIOV_EN", "1", "0"),
    ),
    vfs={P1: 0, P2: 2},
)


def undo(*adapters: Any, **fields: Any):
    return undo_steps(question(*adapters, **fields), FOUND)


def test_one_write_for_each_card_after_the_vf_counts_with_exact_commands():
    steps, problems = undo(adapter(port(1, vfs=4), port(2, IB, vfs=2)))
    vfs, write = steps
    assert isinstance(vfs, SetVfs)
    assert (vfs.port, vfs.before, vfs.count) == (P1, 4, 0)
    assert isinstance(write, WriteFirmware)
    assert " ".join(write.command) == (
        f"mstconfig -y -d {PF} set LINK_TYPE_P1=1 LINK_TYPE_P2=2 SRIOV_EN=0 NUM_OF_VFS=0"
    )
    assert not problems


def test_what_is_as_it_was_needs_nothing():
    its = adapter(port(1, IB), port(2, ROCE, vfs=2), sriov_enabled_next=False, num_vfs_next=0)
    assert undo(its) == ([], [])


def test_what_others_hold_is_not_touched_and_named():
    guest = Holder(kind="vfio", detail="pid 4711 (qemu)", pid=4711)
    held = port(1, IB, vfs=2)
    held = msgspec.structs.replace(held, vfs=(held.vfs[0], function(held.vfs[1].address, 1, guest)))
    its = adapter(held, port(2, ROCE, vfs=2), sriov_enabled_next=False, num_vfs_next=0)
    steps, (said,) = undo(its)
    assert steps == []
    assert (said.code, said.text) == (
        "not-as-found",
        "0000:3b:00.0 p1: its VFs stay 2 instead of 0: pid 4711 (qemu) uses a function of this port.",
    )


def test_our_own_targets_hold_it_too_until_they_are_released():
    its = adapter(away(port(1, IB, vfs=2), 0, "a"), port(2, vfs=2), sriov_enabled_next=False, num_vfs_next=0)
    steps, problems = undo(its, **in_use() | {"records": (attached("a", vf=0),)})
    assert steps == []
    assert "a net1 uses a function of this port" in problems[0].text


def test_protected_unreadable_and_unknown_values_are_said_and_not_written():
    its = adapter(port(1, next_mode=None), port(2, ROCE, vfs=2), sriov_enabled_next=False, num_vfs_next=0)
    steps, (said,) = undo(its)
    assert (steps, said.text) == ([], "0000:3b:00.0 p1: LINK_TYPE_P1 is not put back: it cannot be read now.")
    found = AsFound(settings=(setting(before=None),))
    _, (said,) = undo_steps(question(adapter(port(1))), found)
    assert said.text == "0000:3b:00.0 p1: LINK_TYPE_P1 before our first write was not readable."
    steps, (said,) = undo_steps(question(adapter(port(1)), protect=(PF,)), AsFound(settings=(setting(),)))
    assert steps == []
    assert "is not put back: protected by" in said.text


def test_a_card_that_is_gone_is_no_trouble():
    assert undo() == ([], [])
