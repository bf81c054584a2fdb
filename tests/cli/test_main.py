"""The entry point: help, lazy imports, commands of other packages, errors of usage."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from conftest import Ran

from linkwright.cli.main import COMMANDS

Run = Callable[..., Ran]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_help_has_an_example(run: Run, name: str) -> None:
    ran = run(name, "--help")
    assert ran.code == 0
    assert f"linkwright {name}" in ran.out.partition("Examples:")[2]


def test_help_lists_every_command_and_the_exit_codes(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    for name in (*COMMANDS, "lab"):
        assert f"\n  {name} " in ran.out
    assert "4 waits for a person" in ran.out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from linkwright.cli.main import main; main(['--help']); "
        "print([m for m in ('rich', 'msgspec', 'yaml', 'http.client', 'sqlite3', 'asyncio', 'uvicorn', 'pydantic',"
        " 'linkwright.kernel', 'linkwright.agent', 'linkwright.firmware', 'hostlab') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_status_imports_no_server_and_no_kernel() -> None:
    code = (
        "import sys; from linkwright.cli.main import main; main(['status']); "
        "print([m for m in ('rich', 'yaml', 'sqlite3', 'asyncio', 'uvicorn', 'pydantic', 'linkwright.kernel',"
        " 'linkwright.agent') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_typo_is_answered_with_the_nearest_command(run: Run) -> None:
    ran = run("stats")
    assert ran.code == 2
    assert "Did you mean 'status'?" in ran.err


def test_wrong_options_end_with_2(run: Run) -> None:
    assert run("apply").code == 2
    assert run("nics", "--nope").code == 2
    assert run("status", "-o", "xml").code == 2


def test_version(run: Run) -> None:
    assert run("--version").out.startswith("linkwright 0.")


def test_a_fault_of_ours_keeps_its_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from linkwright.cli.api import Agent

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Agent, "get", broken)
    with pytest.raises(ZeroDivisionError):
        run("status")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m linkwright.cli.main --help | head -1"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
