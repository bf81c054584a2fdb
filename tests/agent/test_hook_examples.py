"""The example hooks answer by the contract, with Slurm's commands and a BMC played."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "hooks"
CHANGE = {
    "LINKWRIGHT_HOST": "gpu-01", "LINKWRIGHT_POLICY": "training", "LINKWRIGHT_GENERATION": "7",
    "LINKWRIGHT_LINK_MODE": "InfiniBand",
}  # fmt: skip


def slurm(tmp_path: Path, event: str, *, jobs: str = "", reason: str = "") -> tuple[int, str, str]:
    asked = tmp_path / "asked"
    for name, text in (
        ("scontrol", f'echo "$*" >>{asked}; [ "$1" = show ] && echo "Reason={reason}"; exit 0'),
        ("squeue", f'printf "{jobs}"'),
    ):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LINKWRIGHT_EVENT": event, **CHANGE}
    done = subprocess.run(
        ["sh", str(EXAMPLES / "slurm.sh")], env=environ, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr, asked.read_text()


def test_slurm_drains_and_says_not_yet_while_jobs_run(tmp_path: Path) -> None:
    code, said, asked = slurm(tmp_path, "pre-drain", jobs="4711\\n4712\\n")
    assert (code, said) == (75, "jobs still run on gpu-01: 4711 4712 \n")
    assert asked == "update nodename=gpu-01 state=drain reason=linkwright: training generation 7 to InfiniBand\n"


def test_slurm_goes_on_when_no_job_is_left(tmp_path: Path) -> None:
    assert slurm(tmp_path, "pre-drain")[0] == 0


def test_slurm_resumes_only_what_was_drained_for_this(tmp_path: Path) -> None:
    assert "state=resume" in slurm(tmp_path, "post-verify", reason="linkwright: training generation 7")[2]
    (tmp_path / "asked").unlink()
    assert "state=resume" not in slurm(tmp_path, "post-verify", reason="bad fan")[2]


def test_ansible_without_a_playbook_goes_on() -> None:
    environ = {"PATH": os.environ["PATH"], "LINKWRIGHT_EVENT": "no-such-event", **CHANGE}
    assert subprocess.run(["sh", str(EXAMPLES / "ansible.sh")], env=environ, check=False).returncode == 0


class Bmc(BaseHTTPRequestHandler):
    allowed: tuple[str, ...] = ("On", "PowerCycle")
    posted: list[Any]

    def do_GET(self) -> None:
        reset = {"target": "/reset", "ResetType@Redfish.AllowableValues": list(self.allowed)}
        self._answer({"Actions": {"#ComputerSystem.Reset": reset}})

    def do_POST(self) -> None:
        self.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer({})

    def _answer(self, value: Any) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def bmc(tmp_path: Path) -> Iterator[tuple[Any, Path, type[Bmc]]]:
    """The hook as a module, its settings, and the BMC that they name."""
    played = type("Played", (Bmc,), {"posted": []})
    server = HTTPServer(("127.0.0.1", 0), played)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    spec = importlib.util.spec_from_file_location("redfish_hook", EXAMPLES / "redfish.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    hook.SETTINGS = tmp_path / "bmc.json"
    url = f"http://127.0.0.1:{server.server_port}"
    hook.SETTINGS.write_text(json.dumps({"url": url, "user": "u", "password": "p", "system": "/system"}))
    hook.SETTINGS.chmod(0o600)
    yield hook, hook.SETTINGS, played
    server.shutdown()
    server.server_close()


def ask(hook: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"host": "gpu-01"}'))
    return int(hook.main())


def test_redfish_asks_for_a_power_cycle(bmc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hook, _, played = bmc
    assert ask(hook, monkeypatch) == 0
    assert played.posted == [{"ResetType": "PowerCycle"}]


def test_redfish_takes_no_substitute(
    bmc: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hook, _, played = bmc
    played.allowed = ("On", "ForceRestart")
    assert ask(hook, monkeypatch) == 1
    assert capsys.readouterr().out == "the BMC offers no PowerCycle, only On, ForceRestart\n"
    assert played.posted == []


def test_redfish_without_an_answer_says_not_yet_and_keeps_its_password(
    bmc: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hook, settings, _ = bmc
    settings.write_text(settings.read_text().replace("127.0.0.1", "127.0.0.2"))
    settings.chmod(0o644)
    assert ask(hook, monkeypatch) == 1
    assert "can be read by others" in capsys.readouterr().out
    settings.chmod(0o600)
    assert ask(hook, monkeypatch) == 75
