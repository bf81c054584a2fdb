"""At the start of the agent: what the boot id says about records and journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from linkwright.kernel.system import System
from linkwright.model.records import Attachment, AttachmentState, Before
from linkwright.store import Store
from linkwright.targets.recovery import REBIND, finish_rebinds, recover

BEFORE = Before(name="ibs1", mtu=2044, address="00:00")
HELD = Attachment(
    target="trainer-0", interface="net1", policy="training", generation=1, port="0000:3b:00.0/1",  # type: ignore[arg-type]
    state=AttachmentState.ATTACHED, boot_id="boot-1", netns_inode=4711, netns_path="/run/netns/x", before=BEFORE,
    rdma_moved=True, mac="02:00:00:00:00:01",
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "state.db")
    yield opened
    opened.close()


@pytest.mark.parametrize("state", [s for s in AttachmentState if s is not AttachmentState.ASSIGNED])
def test_a_restart_has_undone_every_attachment(store: Store, state: AttachmentState) -> None:
    store.put_attachment(replace(HELD, state=state))
    store.begin_operation("attach", "trainer-0/net1", "boot-1").intend()
    assert recover(store, "boot-2")
    (record,) = store.attachments()
    assert record.state is AttachmentState.ASSIGNED
    assert (record.before, record.netns_inode, record.netns_path, record.rdma_moved) == (None, None, None, False)
    assert (record.port, record.mac) == (HELD.port, HELD.mac), "the slot and the MAC stay the target's"
    assert store.open_operations() == ()
    assert recover(store, "boot-2") == [], "a second recovery finds nothing"


@pytest.mark.parametrize("state", [AttachmentState.ATTACHING, AttachmentState.DETACHING])
def test_in_the_same_boot_what_is_under_way_is_carried_on(store: Store, state: AttachmentState) -> None:
    store.put_attachment(replace(HELD, state=state))
    store.begin_operation("attach", "trainer-0/net1", "boot-1").intend()
    assert recover(store, "boot-1") == []
    assert store.attachments()[0].before == BEFORE
    assert len(store.open_operations()) == 1


def test_what_no_record_speaks_of_is_closed(store: Store) -> None:
    store.put_attachment(replace(HELD, state=AttachmentState.ASSIGNED, before=None))
    store.begin_operation("identity", "trainer-0/net1", "boot-1").begin("vf identity")
    store.begin_operation("detach", "trainer-9/net1", "boot-1")
    assert len(recover(store, "boot-1")) == 2
    assert store.open_operations() == ()
    assert {h.who for h in store.history()} == {"agent"}


def test_an_unknown_boot_id_concludes_nothing(store: Store) -> None:
    store.put_attachment(HELD)
    assert recover(store, "") == []
    assert store.attachments() == (HELD,)


def test_a_function_left_between_unbind_and_bind_gets_its_driver_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System(sys=tmp_path)
    for address in ("0000:5e:00.0", "0000:5e:00.1"):
        (tmp_path / "bus/pci/devices" / address).mkdir(parents=True)
    probed: list[str] = []
    monkeypatch.setattr("linkwright.kernel.sriov.probe", lambda system, address, **_: probed.append(address))
    cut, ended = (store.begin_operation("repair", f"repair {n}", "boot-1") for n in (0, 1))
    cut.begin(f"{REBIND}0000:5e:00.0")
    ended.begin(f"{REBIND}0000:5e:00.1")
    ended.mark(f"{REBIND}0000:5e:00.1", "done")
    assert finish_rebinds(system, store) == [
        "0000:5e:00.0 had lost its driver in an interrupted repair; it is bound again"
    ]
    assert probed == ["0000:5e:00.0"]
