"""A damaged state file: noticed at the start, set aside, read as far as it goes; also when that is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_store import BEFORE, attachment, policy, target

from linkwright.model.errors import NeedsPerson
from linkwright.model.records import AttachmentState, HistoryEntry
from linkwright.store import Store, schema
from linkwright.store.damaged import kept, open_store


def filled(path: Path, entries: int = 0) -> Path:
    store = Store(path)
    store.put_policy(policy())
    store.put_target(target())
    store.put_attachment(attachment(state=AttachmentState.ATTACHED, before=BEFORE, boot_id="boot-1"))
    for number in range(entries):
        store.add_history(HistoryEntry(at=float(number), who="agent", what="x" * 500))
    store.close()
    return path


def test_a_whole_file_is_just_opened(tmp_path: Path) -> None:
    store, salvaged = open_store(filled(tmp_path / "state.db"))
    assert salvaged is None
    assert store.policies() == (policy(),)
    store.close()


def test_no_database_at_all(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"no database" * 1000)
    store, salvaged = open_store(path)
    assert salvaged is not None
    assert "not a database" in salvaged.why
    assert (salvaged.policies, salvaged.attachments, store.policies()) == ((), (), ())
    assert salvaged.aside.read_bytes() == b"no database" * 1000
    assert kept(salvaged).read_bytes() == b"no database" * 1000
    store.close()
    again, nothing = open_store(path)
    assert nothing is None, "set aside once"
    again.close()


def test_a_page_is_lost_and_the_rest_is_read(tmp_path: Path) -> None:
    path = filled(tmp_path / "state.db", entries=60)
    raw = bytearray(path.read_bytes())
    page = 4096
    raw[-page:] = b"\xaa" * page  # one of the history's
    path.write_bytes(raw)
    store, salvaged = open_store(path)
    assert salvaged is not None
    assert salvaged.policies == (policy(),)
    assert salvaged.targets == (target(),)
    assert salvaged.attachments[0].before == BEFORE
    assert salvaged.generations == (("policies", "training", 1), ("targets", "trainer-0", 1))
    assert len(salvaged.history) < 60
    store.close()


def test_a_value_that_is_no_record_is_damage_too(tmp_path: Path) -> None:
    path = filled(tmp_path / "state.db")
    store = Store(path)
    store._db.write("UPDATE attachments SET record='{\"target\": 4711}'")
    with pytest.raises(NeedsPerson) as caught:
        store.attachments()
    assert caught.value.code == "state-damaged"
    store.close()
    store, salvaged = open_store(path)
    assert salvaged is not None
    assert (salvaged.policies, salvaged.attachments) == ((policy(),), ())
    store.close()


def test_cut_off_before_it_was_rebuilt_it_is_read_again(tmp_path: Path) -> None:
    path = filled(tmp_path / "state.db", entries=60)
    raw = bytearray(path.read_bytes())
    raw[-4096:] = b"\xaa" * 4096
    path.write_bytes(raw)
    first_store, first = open_store(path)
    first_store.close()
    second_store, second = open_store(path)  # the process ended before kept()
    second_store.close()
    assert first is not None
    assert second is not None
    assert (second.policies, second.attachments) == (first.policies, first.attachments)
    kept(second)
    store, nothing = open_store(path)
    assert nothing is None
    store.close()
    assert len(list(tmp_path.glob("state.db.damaged-*[0-9]"))) == 1


def test_the_log_goes_with_its_file(tmp_path: Path) -> None:
    """A log left beside a fresh file would be read into it."""
    path = tmp_path / "state.db"
    path.write_bytes(b"no database" * 1000)
    (tmp_path / "state.db-wal").write_bytes(b"log")
    store, salvaged = open_store(path)
    assert salvaged is not None
    assert (tmp_path / "state.db.damaged-wal").read_bytes() == b"log"
    store.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_ends_in_a_usable_store(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = filled(tmp_path_factory.mktemp("damage") / "state.db", entries=20)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        some = data.draw(st.binary(min_size=1, max_size=64))
        raw[at : at + len(some)] = some
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw))) :]
    path.write_bytes(raw)
    if raw[:16] == b"SQLite format 3\0" and int.from_bytes(raw[60:64]) > schema.VERSION:
        return  # the damage is in the version number: refused as a newer file
    store, salvaged = open_store(path)
    if salvaged is not None:
        assert all(p.name == "training" or p.spec for p in salvaged.policies)
    store.put_policy(policy())
    assert policy() in store.policies()
    store.close()
