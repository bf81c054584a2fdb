"""The state file: what is kept, what it refuses to overwrite, and what its failures say."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from linkwright.model.documents import (
    Container,
    Interface,
    LinkPolicy,
    LinkPolicySpec,
    Metadata,
    NicSelector,
    Target,
    TargetSpec,
)
from linkwright.model.errors import Busy, NeedsPerson, Refused
from linkwright.model.records import Attachment, AttachmentState, Before, HistoryEntry, ModeChange, Phase
from linkwright.model.values import LinkMode, pci_address, port_id
from linkwright.store import Store, connection, schema

PORT = port_id("0000:3b:00.0", 1)
BEFORE = Before(name="enp59s0np0", mtu=1500, address="02:00:00:00:00:01", altnames=("rail0",), rdma_name="mlx5_0")


def policy(mode: LinkMode = LinkMode.ROCE, **labels: str) -> LinkPolicy:
    return LinkPolicy(
        metadata=Metadata(name="training", labels=labels),
        spec=LinkPolicySpec(nic_selector=NicSelector(pci_addresses=("0000:3b:00.0",)), link_mode=mode),
    )


def target(name: str = "trainer-0", **spec: str) -> Target:
    return Target(
        metadata=Metadata(name=name),
        spec=TargetSpec(
            policy="training",
            interfaces=(Interface(name="net1"),),
            container=Container(name=name),
            group=spec.get("group"),
        ),
    )


def attachment(target: str = "trainer-0", vf: int | None = 0, **fields: object) -> Attachment:
    return replace(
        Attachment(target=target, interface="net1", policy="training", generation=1, port=PORT, vf_index=vf),
        **fields,
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "var" / "state.db")


def test_documents_come_back_as_they_were(store: Store) -> None:
    assert store.put_policy(policy()) == 1
    assert store.put_target(target()) == 1
    again = Store(store.path)
    assert again.policies() == (policy(),)
    assert again.targets() == (target(),)
    assert again.generations() == {"training": 1}
    assert again.target_generations() == {"trainer-0": 1}


def test_generation_counts_only_changes_of_the_spec(store: Store) -> None:
    assert store.put_policy(policy()) == 1
    assert store.put_policy(policy()) == 1
    assert store.put_policy(policy(team="a")) == 1
    assert store.policies()[0].metadata.labels == {"team": "a"}
    assert store.put_policy(policy(LinkMode.INFINIBAND)) == 2
    assert store.put_target(target()) == 1
    assert store.put_target(target(group="job-7")) == 2


def test_a_policy_made_again_does_not_reuse_a_generation(store: Store) -> None:
    store.put_policy(policy())
    assert store.delete_policy("training")
    assert not store.delete_policy("training")
    assert store.generations() == {}
    assert store.put_policy(policy()) == 2


def test_before_values_are_never_overwritten_while_it_lives(store: Store) -> None:
    store.put_attachment(attachment(state=AttachmentState.ATTACHING, before=BEFORE))
    with pytest.raises(Refused, match="not overwritten") as caught:
        store.put_attachment(attachment(state=AttachmentState.ATTACHING, before=replace(BEFORE, name="net1")))
    assert caught.value.code == "before-values-kept"
    kept = store.put_attachment(attachment(state=AttachmentState.QUARANTINED, reason="it does not let go"))
    assert kept.before == BEFORE
    assert store.attachments() == (kept,)
    released = attachment(state=AttachmentState.ASSIGNED)
    assert store.put_attachment(released) == released
    store.put_attachment(attachment(state=AttachmentState.ATTACHING, before=replace(BEFORE, mtu=9000)))
    stored = store.attachment("trainer-0", "net1")
    assert stored is not None
    assert stored.before == replace(BEFORE, mtu=9000)


def test_one_slot_has_one_holder(store: Store) -> None:
    store.put_attachment(attachment("trainer-0", 0))
    with pytest.raises(Refused, match="VF 0 would have two holders") as caught:
        store.put_attachment(attachment("trainer-1", 0))
    assert caught.value.rule == 1
    assert [a.target for a in store.attachments()] == ["trainer-0"]
    store.put_attachment(attachment("trainer-1", 1))
    with store.transaction():  # changing places in one commit is no conflict
        store.put_attachment(attachment("trainer-0", 1))
        store.put_attachment(attachment("trainer-1", 0))
    assert [a.vf_index for a in store.attachments()] == [1, 0]


def test_a_transaction_is_all_or_nothing(store: Store) -> None:
    class Crash(Exception):
        pass

    def both() -> None:
        with store.transaction():
            store.put_policy(policy())
            store.put_attachment(attachment())
            raise Crash

    with pytest.raises(Crash):
        both()
    assert store.policies() == ()
    assert store.attachments() == ()


def test_changes_newest_of_each_policy_and_history(store: Store) -> None:
    first = ModeChange(policy="training", generation=1, wanted=LinkMode.ROCE, started=1.0, phase=Phase.DONE)
    second = ModeChange(policy="training", generation=2, wanted=LinkMode.INFINIBAND, started=2.0)
    store.put_change(first)
    store.put_change(second)
    store.put_change(replace(second, phase=Phase.FAILED, reason_code="card-not-reset"))
    retried = replace(second, started=3.0)
    store.put_change(retried)
    other = ModeChange(policy="storage", generation=1, wanted=LinkMode.ROCE, started=0.5)
    store.put_change(other)
    assert store.changes() == (other, retried)
    assert [c.phase for c in store.change_history("training")] == [Phase.PLANNED, Phase.FAILED, Phase.DONE]


def test_approvals_freeze_and_history(store: Store) -> None:
    store.add_approvals(["a", "b"], "uid 0")
    store.add_approvals(["b", "c"], "uid 1")
    store.remove_approvals(["a", "nothing"])
    assert store.approvals() == frozenset({"b", "c"})
    assert store.frozen_by() == ""
    store.freeze("uid 0: maintenance")
    assert Store(store.path).frozen_by() == "uid 0: maintenance"
    store.unfreeze()
    assert store.frozen_by() == ""
    for n in range(3):
        store.add_history(HistoryEntry(at=float(n), who="agent", what=f"step {n}"))
    assert [e.what for e in store.history(2)] == ["step 2", "step 1"]


def test_threads_write_side_by_side(store: Store) -> None:
    def work(n: int) -> None:
        for i in range(10):
            store.put_attachment(attachment(f"t-{n}", n, reason=str(i)))
            assert store.attachments()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [a.reason for a in store.attachments()] == ["9"] * 4


def test_read_only_reads_and_makes_nothing(store: Store, tmp_path: Path) -> None:
    store.put_policy(policy())
    reader = Store(store.path, read_only=True)
    assert reader.policies() == (policy(),)
    store.put_policy(policy(LinkMode.INFINIBAND))
    assert reader.generations() == {"training": 2}
    with pytest.raises(NeedsPerson) as caught:
        reader.put_policy(policy())
    assert caught.value.code == "state-unwritable"
    nowhere = tmp_path / "none" / "state.db"
    assert Store(nowhere, read_only=True).policies() == ()
    assert not nowhere.parent.exists()


def test_a_newer_file_is_refused_and_left_alone(store: Store) -> None:
    store.close()
    db = sqlite3.connect(store.path)
    db.execute("PRAGMA user_version=99")
    db.close()
    before = store.path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(NeedsPerson, match="newer Linkwright") as caught:
            Store(store.path, read_only=read_only)
        assert caught.value.code == "state-newer"
    assert store.path.read_bytes() == before


def test_a_migration_keeps_a_copy_of_the_old_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put_policy(policy())
    store.close()
    before = schema.VERSION
    scripts = (*schema.MIGRATIONS, "CREATE TABLE extra (x TEXT) STRICT; INSERT INTO extra VALUES ('new');")
    monkeypatch.setattr(schema, "MIGRATIONS", scripts)
    monkeypatch.setattr(schema, "VERSION", len(scripts))
    with pytest.raises(Busy, match="when it starts"):
        Store(store.path, read_only=True)
    assert Store(store.path).policies() == (policy(),)
    copy = sqlite3.connect(store.path.with_name(f"state.db.v{before}"))
    assert copy.execute("PRAGMA user_version").fetchone() == (before,)
    assert copy.execute("SELECT name FROM policies").fetchall() == [("training",)]


def test_a_failing_migration_changes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put_policy(policy())
    store.close()
    scripts = (*schema.MIGRATIONS, "CREATE TABLE extra (x TEXT) STRICT; INSERT INTO nowhere VALUES (1);")
    with monkeypatch.context() as patched:
        patched.setattr(schema, "MIGRATIONS", scripts)
        patched.setattr(schema, "VERSION", len(scripts))
        with pytest.raises(Exception, match="nowhere"):
            Store(store.path)
    again = Store(store.path)
    assert again.policies() == (policy(),)


def test_a_damaged_file_is_said_and_left(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"this is not a database at all" * 200)
    before = path.read_bytes()
    with pytest.raises(NeedsPerson, match="damaged") as caught:
        Store(path)
    assert caught.value.code == "state-damaged"
    assert "sets the file aside" in caught.value.next_step
    assert path.read_bytes() == before


def test_a_full_disk_is_said(store: Store) -> None:
    store.put_policy(policy())
    pages = store._db.query("PRAGMA page_count")[0][0]
    store._db.query(f"PRAGMA max_page_count={pages}")
    with pytest.raises(NeedsPerson, match="nothing is changed") as caught:
        store.add_history(HistoryEntry(at=1.0, who="agent", what="x" * 100_000))
    assert caught.value.code == "state-unwritable"
    assert store.policies() == (policy(),)


def test_a_long_writer_is_said(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.05)
    other = Store(store.path)
    with store.transaction(), pytest.raises(Busy) as caught:
        other.put_policy(policy())
    assert caught.value.code == "state-busy"


def test_the_file_is_for_its_owner_and_synced(store: Store) -> None:
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert store.path.parent.stat().st_mode & 0o777 == 0o700
    assert store._db.query("PRAGMA synchronous") == [(2,)]
    assert store._db.query("PRAGMA journal_mode") == [("wal",)]
    assert pci_address("3b:00.0") in PORT
