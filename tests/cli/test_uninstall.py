"""``linkwright uninstall`` shows, asks and says how it ended; ``delete`` says what stays; history what changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conftest import FakeAgent, Ran
from linkwright.cli.render.history import changed_fields, history_lines
from linkwright.cli.render.status import person
from linkwright.model.records import HistoryEntry

Run = Callable[..., Ran]
PORT = "0000:3b:00.0/1"
OFFER: dict[str, Any] = {
    "policies": ["training"],
    "targets": ["trainer-0"],
    "interrupts": ["trainer-0"],
    "steps": [{"step": "vfs", "port": PORT, "count": 0, "before": 4, "reason": "as it was before"}],
    "problems": [],
    "running": False,
    "key": "uninstall:trainer-0",
}
NOTHING = {"policies": [], "targets": [], "interrupts": [], "steps": [], "problems": [], "key": "uninstall:"}
STAYS = {
    "severity": "waiting",
    "code": "not-as-found",
    "subject": f"port {PORT}",
    "text": "0000:3b:00.0 p1: its VFs stay 4 instead of 0: pid 4711 (qemu) uses a function of this port.",
}


def test_without_restore_it_only_shows(run: Run, agent: FakeAgent) -> None:
    agent.replies["GET /v1/uninstall"] = OFFER
    ran = run("uninstall")
    assert ran.code == 0
    assert "Deletes policy training, target trainer-0." in ran.out
    assert "0000:3b:00.0 p1: VFs 4 → 0" in ran.out
    assert ran.out.rstrip().endswith("Do it: linkwright uninstall --restore")
    assert agent.bodies("POST /v1/uninstall") == []


def test_it_asks_before_it_takes_interfaces_away(run: Run, agent: FakeAgent) -> None:
    agent.replies["GET /v1/uninstall"] = OFFER
    ran = run("uninstall", "--restore")
    assert ran.code == 4
    assert "release trainer-0: they lose their interfaces" in ran.err
    assert "linkwright uninstall --restore --yes" in ran.err
    assert agent.bodies("POST /v1/uninstall") == []


def test_with_a_yes_it_is_done_and_says_what_is_left_to_do(run: Run, agent: FakeAgent) -> None:
    answers = [OFFER, NOTHING]
    agent.replies["GET /v1/uninstall"] = lambda _: answers.pop(0)
    agent.replies["POST /v1/uninstall"] = {"cursor": 0}
    ran = run("uninstall", "--restore", "--yes", "--why", "moves")
    assert ran.code == 0
    assert agent.bodies("POST /v1/uninstall") == [{"key": "uninstall:trainer-0", "why": "moves"}]
    assert "This host is as it was found." in ran.out
    assert "at the next restart of this host" in ran.out


def test_what_somebody_holds_is_named_and_the_exit_code_says_so(run: Run, agent: FakeAgent) -> None:
    answers = [OFFER, NOTHING | {"problems": [STAYS], "running": True}]
    agent.replies["GET /v1/uninstall"] = lambda _: answers.pop(0)
    agent.replies["POST /v1/uninstall"] = {"cursor": 0}
    ran = run("uninstall", "--restore", "--yes")
    assert ran.code == 3
    assert "its VFs stay 4 instead of 0: pid 4711 (qemu)" in ran.out
    assert "Not finished." in ran.out


def test_delete_says_what_stays_or_goes_back(run: Run, agent: FakeAgent) -> None:
    answer = {"deleted": "LinkPolicy/training", "restoring": False, "said": ["0000:3b:00.0 p1 stays InfiniBand"]}
    agent.replies["DELETE /v1/policies/training"] = answer
    ran = run("delete", "policy/training", "--no-wait")
    assert "Deleted policy training.\n  0000:3b:00.0 p1 stays InfiniBand" in ran.err
    back = {"restoring": True, "said": ["goes back to RoCE: 0000"]}
    agent.replies["DELETE /v1/policies/training"] = answer | back
    ran = run("delete", "policy/training", "--no-wait")
    assert "gone back to what was there (onDelete: Restore).\n  goes back to RoCE" in ran.err


def test_history_shows_which_fields_changed() -> None:
    old = '{"kind":"LinkPolicy","spec":{"linkMode":"InfiniBand","functions":{"numVfs":null}}}'
    new = '{"kind":"LinkPolicy","spec":{"linkMode":"RoCE","functions":{"numVfs":4}}}'
    assert changed_fields(old, new) == ["functions.numVfs none → 4", "linkMode InfiniBand → RoCE"]
    assert changed_fields("", new) == []
    who, what = "uid 0 (curl, pid 7)", "apply LinkPolicy training"
    entry = HistoryEntry(at=0.0, who=who, what=what, before=old, after=new)
    text = "".join(part for line in history_lines([entry], 10.0, None) for part, _ in line)
    assert "apply LinkPolicy training: functions.numVfs none → 4, linkMode InfiniBand → RoCE" in text
    assert "root by curl" in text


@pytest.mark.parametrize(
    ("who", "said"),
    [
        ("uid 0 (pid 1)", "root"),
        ("uid 0 (linkwright, pid 1)", "root"),
        ("uid 1000 (curl, pid 1)", "uid 1000 by curl"),
        ("agent", "agent"),
        ("uid 0", "root"),
    ],
)
def test_people(who: str, said: str) -> None:
    assert person(who) == said
