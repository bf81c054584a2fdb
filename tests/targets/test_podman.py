"""podman's words and the kernel's: a script stands in for podman, /proc is real."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from linkwright.targets import podman
from linkwright.targets.podman import Events

Script = Callable[[str], str]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Make an executable ``podman`` with this body; its arguments go to ``argv``, one a line."""

    def make(body: str) -> str:
        path = tmp_path / "podman"
        path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/argv\n{body}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


def inspected(status: str, pid: int, network: str = "none") -> str:
    answer = [{"Id": "x", "State": {"Status": status, "Pid": pid}, "HostConfig": {"NetworkMode": network}}]
    return f"cat <<'END'\n{json.dumps(answer)}\nEND"


def test_a_name_never_reaches_a_shell(script: Script, tmp_path: Path) -> None:
    name = "--all; touch /tmp/x $(id)"
    podman.state(name, podman=script("echo 'Error: no such container' >&2; exit 125"))
    assert (tmp_path / "argv").read_text().splitlines() == ["container", "inspect", "--", name]


def test_absent_stopped_and_host_network(script: Script) -> None:
    absent = script("echo 'Error: inspecting object: no such container trainer-0' >&2; exit 125")
    assert podman.state("trainer-0", podman=absent).state == "absent"
    assert podman.state("trainer-0", podman=script(inspected("exited", 0))).state == "stopped"
    assert podman.state("trainer-0", podman=script(inspected("created", 0))).state == "stopped"
    assert podman.state("trainer-0", podman=script(inspected("running", 1, "host"))).state == "host-network"


def test_running_is_what_proc_shows(script: Script) -> None:
    child = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        found = podman.state("trainer-0", podman=script(inspected("running", child.pid)))
        assert (found.state, found.pid, found.netns_path) == ("running", child.pid, f"/proc/{child.pid}/ns/net")
        assert found.netns_inode == Path(f"/proc/{child.pid}/ns/net").stat().st_ino
    finally:
        child.kill()
        child.wait()
    gone = podman.state("trainer-0", podman=script(inspected("running", child.pid)))
    assert gone.state == "stopped"
    assert "gone" in gone.detail


def test_a_reused_pid_is_not_the_container(script: Script) -> None:
    found = podman.state("trainer-0", podman=script(inspected("running", os.getpid())))
    assert found.state == "stopped"
    assert "another process" in found.detail


@pytest.mark.parametrize(
    "body", ["echo 'not json'", "echo '[]'", "echo '[{\"State\": 3}]'", "echo oops >&2; exit 1"]
)
def test_what_is_not_understood_is_unknown(script: Script, body: str) -> None:
    found = podman.state("trainer-0", podman=script(body))
    assert found.state == "unknown"
    assert found.detail


def test_slow_or_missing_podman_is_unknown(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podman, "INSPECT_LIMIT_S", 0.1)
    assert "did not answer" in podman.state("trainer-0", podman=script("exec sleep 5")).detail
    assert podman.state("trainer-0", podman="/nonexistent/podman").detail == "podman is not installed"


def test_events_are_told_and_the_child_is_started_again(script: Script, tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    twice = threading.Event()

    def tell(name: str, what: str) -> None:
        told.append((name, what))
        if told.count(("trainer-0", "start")) == 2:
            twice.set()

    lines = [
        {"Name": "trainer-0", "Status": "start", "Type": "container"},
        {"Name": "trainer-0", "Status": "exec", "Type": "container"},
        {"Name": "trainer-0", "Status": "died", "Type": "container"},
    ]
    body = "\n".join(f"echo '{json.dumps(line)}'" for line in lines)
    events = Events(tell, podman=script("echo garbage\n" + body))
    events.start()
    assert twice.wait(10)
    events.stop()
    assert told[:3] == [("*", "lost"), ("trainer-0", "start"), ("trainer-0", "died")]
    assert told.count(("*", "lost")) >= 2  # after a gap everything is looked at once
    assert "type=container" in (tmp_path / "argv").read_text()


def test_events_stop_ends_the_child(script: Script) -> None:
    started = threading.Event()
    events = Events(lambda name, what: started.set(), podman=script("exec sleep 600"))
    events.start()
    assert started.wait(10)
    events.stop()
    assert not events._thread.is_alive()
    assert events._child is None
