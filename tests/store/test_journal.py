"""The journal: what a recovery finds after an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkwright.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state.db")


def test_open_until_ended(store: Store) -> None:
    operation = store.begin_operation("attach", "trainer-0/net1", "boot-1")
    operation.begin("move netdev")
    operation.begin("set addresses")
    (found,) = Store(store.path).open_operations()
    assert (found.kind, found.subject, found.boot_id, found.intent) == (
        "attach",
        "trainer-0/net1",
        "boot-1",
        False,
    )
    assert [(s.name, s.state) for s in found.steps] == [("move netdev", "done"), ("set addresses", "begun")]
    operation.end()
    assert store.open_operations() == ()


def test_taken_up_again_after_an_interruption(store: Store) -> None:
    first = store.begin_operation("attach", "trainer-0/net1", "boot-1")
    first.begin("move netdev")
    first.intend()
    second = store.begin_operation("attach", "trainer-0/net1", "boot-2")
    second.begin("move netdev")
    second.mark("move netdev", "failed", "EBUSY")
    store.begin_operation("detach", "trainer-1/net1", "boot-2")
    found, other = store.open_operations()
    assert found.intent
    assert found.boot_id == "boot-2"
    assert [(s.state, s.said) for s in found.steps] == [("interrupted", ""), ("failed", "EBUSY")]
    assert other.subject == "trainer-1/net1"


def test_a_detach_takes_over_an_interrupted_attach(store: Store) -> None:
    attach = store.begin_operation("attach", "trainer-0/net1", "boot-1")
    attach.begin("netdev")
    attach.intend()
    detach = store.begin_operation("detach", "trainer-0/net1", "boot-1")
    (found,) = store.open_operations()
    assert (found.kind, found.intent, len(found.steps)) == ("detach", False, 1)
    detach.end()
    assert store.open_operations() == ()


def test_a_deleted_attachment_takes_its_open_operation_along(store: Store) -> None:
    store.begin_operation("identity", "trainer-0/net1", "boot-1")
    store.begin_operation("attach", "trainer-1/net1", "boot-1")
    store.delete_attachment("trainer-0", "net1")
    assert [o.subject for o in store.open_operations()] == ["trainer-1/net1"]


def test_intent_and_record_in_one_commit(store: Store) -> None:
    class Crash(Exception):
        pass

    operation = store.begin_operation("attach", "trainer-0/net1", "boot-1")

    def crash() -> None:
        with store.transaction():
            operation.intend()
            raise Crash

    with pytest.raises(Crash):
        crash()
    assert not store.open_operations()[0].intent
