"""One call per adapter, and nobody dies in the middle: the lock outlives its holder as long as the tool runs."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from firmware_answers import PF, said
from replay_tools import ReplayTools

from linkwright.firmware import tool
from linkwright.firmware.locking import AdapterLocks
from linkwright.firmware.mstconfig import MstTools
from linkwright.model.errors import Busy, NeedsPerson


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def test_ports_of_one_adapter_share_a_lock_and_adapters_do_not(tmp_path: Path) -> None:
    locks = AdapterLocks(tmp_path, wait_s=0.01)
    with locks.hold("0000:3b:00.0"):
        with pytest.raises(Busy) as caught, locks.hold("0000:3b:00.1"):
            pass
        assert caught.value.code == "firmware-busy"
        with locks.hold("0000:5e:00.0"):
            pass
    with locks.hold("0000:3b:00.1"):
        pass


def test_a_waiter_goes_on_when_the_holder_is_done(tmp_path: Path) -> None:
    locks = AdapterLocks(tmp_path)
    entered = threading.Event()

    def second() -> None:
        with locks.hold(PF):
            entered.set()

    thread = threading.Thread(target=second)
    with locks.hold(PF):
        thread.start()
        assert not entered.is_set()
    thread.join(30)
    assert entered.is_set()


def test_a_wait_in_vain_leaves_no_lock_behind(tmp_path: Path) -> None:
    locks = AdapterLocks(tmp_path, wait_s=0.01)
    with locks.hold(PF), pytest.raises(Busy), locks.hold(PF):
        pass
    for thread in threading.enumerate():
        if thread.name == "adapter-lock":
            thread.join(30)
    with locks.hold(PF):
        pass


def test_no_right_to_lock_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NeedsPerson) as caught, AdapterLocks(tmp_path / "file").hold(PF):
        pass
    assert caught.value.code == "needs-root"


def test_a_killed_caller_leaves_the_tool_running_and_locked(
    replay: Callable[[str], ReplayTools], tmp_path: Path
) -> None:
    """The tool is in the middle of its work when its caller gets SIGKILL, and a Ctrl-C goes to the group."""
    tools = replay("4.21")
    started, go_on = fifo(tmp_path / "started"), fifo(tmp_path / "go-on")
    finished = tmp_path / "finished"
    script = f"echo now > {started}; read x < {go_on}; touch {finished}"
    tools.rule("mstreg", "*MGIR*", said("4.21", "uptime"), script=script)
    code = (
        "import sys; from pathlib import Path; from linkwright.firmware.mstconfig import MstTools\n"
        f"MstTools(sys=Path({str(tools.sys)!r}), run=Path({str(tools.run)!r})).uptime_s({PF!r})"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    assert started.read_text() == "now\n"
    os.killpg(caller.pid, signal.SIGINT)
    caller.kill()
    caller.wait()
    with (tools.run / "locks" / "0000:3b:00.lock").open("r+") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        go_on.write_text("on\n")
        fcntl.flock(lock, fcntl.LOCK_EX)  # free as soon as the tool is done
    assert finished.exists()


def test_a_slow_tool_is_reported_and_awaited(replay: Callable[[str], ReplayTools], tmp_path: Path) -> None:
    tools = replay("4.21")
    go_on = fifo(tmp_path / "go-on")
    tools.rule("mstreg", "*", "done", script=f"read x < {go_on}")
    told: list[tuple[str, str]] = []

    def report(pf: str, text: str) -> None:
        told.append((pf, text))
        go_on.write_text("on\n")

    answer = tool.run(("mstreg", "-d", PF), pf=PF, slow_after_s=0.01, report=report)
    assert (answer.text, answer.code) == ("done", 0)
    assert told
    assert told[0][0] == PF


def test_output_is_bounded_and_any_bytes_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "OUTPUT_LIMIT", 8)
    answer = tool.run(("printf", r"\377\000ab\n1234567890"))
    assert answer.text == "\ufffd\0ab\n123"


def test_the_tool_speaks_english_and_sees_no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    lines = tool.run(("env",)).text.splitlines()
    assert "LC_ALL=C" in lines
    assert not any(line.startswith("PYTHONPATH=") for line in lines)


def test_both_streams_in_order() -> None:
    assert tool.run(("sh", "-c", "echo one; echo two >&2; exit 7")) == tool.Answer(
        command=("sh", "-c", "echo one; echo two >&2; exit 7"), code=7, text="one\ntwo\n"
    )


def test_two_calls_on_one_adapter_do_not_overlap(replay: Callable[[str], ReplayTools], tmp_path: Path) -> None:
    tools = replay("4.21")
    inside = tmp_path / "inside"
    overlap = tmp_path / "overlap"
    script = f"[ -e {inside} ] && touch {overlap}; touch {inside}; sleep 0.05; rm {inside}"
    tools.rule("mstreg", "*MGIR*", said("4.21", "uptime"), script=script)
    cards = [MstTools(sys=tools.sys, run=tools.run) for _ in range(3)]
    threads = [threading.Thread(target=c.uptime_s, args=(f"0000:3b:00.{i}",)) for i, c in enumerate(cards)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tools.calls()) == 3
    assert not overlap.exists()
