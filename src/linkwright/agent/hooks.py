"""Programs of the site that take part in a mode change: ``hooks/{pre-drain,post-verify,power-cycle}`` in
``/etc/linkwright``.

The programs of a directory are run one after the other by name, each as its own argument list, never by a shell.
Its answer is its exit code: 0 go on, 75 (EX_TEMPFAIL) not yet: ask again later, anything else: stop and wait for a
person, who reads its last line. A program that could be changed by anybody but root stops the change as well: it
would run as root. After a crash a hook may be asked twice, so hooks say the same twice.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from ..model.plan import Question
from ..model.records import ModeChange, Phase
from .ledger import Ledger
from .world import World

Event = Literal["pre-drain", "post-verify", "power-cycle"]
Outcome = Literal["go", "news", "same"]

NOT_YET = os.EX_TEMPFAIL  # 75
LIMIT_S = 60.0  # the loop stands still meanwhile, so a hook that has to wait answers 75 instead
FIRST_S, MOST_S = 5.0, 300.0  # until it is asked again; doubled each time
OUTPUT_LIMIT = 64 << 10


class Answer(Struct, frozen=True, kw_only=True):
    """``said``: the last line that the hook printed, or what was wrong with it."""

    kind: Literal["go", "later", "stop"]
    hook: str = ""
    said: str = ""


class Hooks:
    """Asks hooks in a change's name; remembers when to ask again. Used from the reconcile loop only."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger
        self._later: dict[tuple[str, int, str], tuple[int, float]] = {}  # tries so far, and when the next is due

    def present(self, event: Event) -> bool:
        return bool(programs(self._world.system.etc / "hooks" / event))

    def ask(self, change: ModeChange, event: Event, question: Question, at: Phase) -> Outcome:
        """``go``: every hook said so. Else the change waits at ``at``; ``news`` when that was just stored."""
        key = (change.policy, change.generation, event)
        tries, due = self._later.get(key, (0, 0.0))
        left = due - time.monotonic()
        retried = change.phase is Phase.STAGED and event == "pre-drain"
        if left > 0 and not retried:
            self._ledger.look_within(left)
            return "same"
        if self.present(event):
            subject = f"policy {change.policy}"
            self._world.progress.emit("step", subject, f"{event} hooks", phase=change.phase.value)
        answer = run(self._world.system.etc / "hooks" / event, facts(change, event, question))
        if answer.kind == "go":
            self._later.pop(key, None)
            return "go"
        text = f"{change.cause} {event} hook {answer.hook}: {answer.said}".lstrip()
        if answer.kind == "later":
            pause = min(FIRST_S * 2**tries, MOST_S)
            self._later[key] = (tries + 1, time.monotonic() + pause)
            self._ledger.look_within(pause)
            if at is Phase.RESTARTING:  # everybody was released for it, so it is no time to give anything back
                self._ledger.awaits(change, text, f"the {event} hook {answer.hook}")
                return "same"
            next_step = "It is asked again by itself."
            return "news" if self._ledger.wait(change, at, "hook-not-yet", text, next_step) else "same"
        self._later.pop(key, None)
        next_step = f'Settle what it says, then: linkwright retry {change.policy} --reason "…"'
        return "news" if self._ledger.wait(change, at, "hook-stopped", text, next_step) else "same"


def facts(change: ModeChange, event: Event, question: Question) -> dict[str, object]:
    """What a hook reads as JSON on its standard input."""
    return {
        "event": event,
        "host": question.inventory.host,
        "bootId": question.inventory.boot_id,
        "policy": change.policy,
        "generation": change.generation,
        "linkMode": change.wanted.value,
        "method": change.method,
        "rollback": change.returning_from is not None,
        "ports": list(change.ports),
        "cards": sorted({s.pf for s in change.settings}),
        "targets": list(change.targets),
        "approvedBy": change.approved_by,
        "reasonCode": change.reason_code,
        "detail": change.detail or change.cause,
    }


def programs(directory: Path) -> list[Path]:
    """The executable entries by name; a missing directory has none, and a README is no hook."""
    try:
        found = sorted(directory.iterdir())
    except FileNotFoundError:
        return []
    return [p for p in found if not p.name.startswith(".") and (p.is_symlink() or os.access(p, os.X_OK))]


def run(directory: Path, told: dict[str, object], *, limit_s: float = LIMIT_S) -> Answer:
    """Run the hooks of one event until one does not say "go on"."""
    for program in programs(directory):
        wrong = untrusted(program)
        answer = Answer(kind="stop", hook=program.name, said=wrong) if wrong else _ask(program, told, limit_s)
        if answer.kind != "go":
            return answer
    return Answer(kind="go")


def untrusted(program: Path) -> str:
    """Why it must not run as root; empty when it may."""
    directory = program.parent
    for path in (directory, program):
        found = path.lstat()
        if path is program and not stat.S_ISREG(found.st_mode):
            return f"{path} is not a regular file, so it is not run"
        if found.st_uid != 0:
            return f"{path} does not belong to root, so it is not run"
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"{path} can be written by others than root, so it is not run"
    return ""


def _ask(program: Path, told: dict[str, object], limit_s: float) -> Answer:
    with tempfile.TemporaryFile() as words, tempfile.TemporaryFile() as output:
        words.write(msgspec.json.encode(told) + b"\n")
        words.seek(0)
        try:
            child = subprocess.Popen(
                [str(program)],
                stdin=words,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(told),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            return Answer(kind="stop", hook=program.name, said=f"cannot be run: {error.strerror}")
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            late = f"did not answer within {limit_s:.0f} s and was ended; one that has to wait answers {NOT_YET}"
            return Answer(kind="stop", hook=program.name, said=late)
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - OUTPUT_LIMIT))
        lines = output.read().decode(errors="replace").splitlines()
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if code == 0:
        return Answer(kind="go", hook=program.name, said=said)
    if code == NOT_YET:
        return Answer(kind="later", hook=program.name, said=said or "not yet")
    ended = f"was ended by signal {-code}" if code < 0 else f"exit code {code}"
    return Answer(kind="stop", hook=program.name, said=f"{said} ({ended})" if said else ended)


def _environment(told: dict[str, object]) -> dict[str, str]:
    """A few words for shell scripts; the rest is in the JSON."""
    ports, targets = told["ports"], told["targets"]
    assert isinstance(ports, list)
    assert isinstance(targets, list)
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C",
        "LINKWRIGHT_EVENT": str(told["event"]),
        "LINKWRIGHT_HOST": str(told["host"]),
        "LINKWRIGHT_POLICY": str(told["policy"]),
        "LINKWRIGHT_GENERATION": str(told["generation"]),
        "LINKWRIGHT_LINK_MODE": str(told["linkMode"]),
        "LINKWRIGHT_METHOD": str(told["method"]),
        "LINKWRIGHT_PORTS": " ".join(ports),
        "LINKWRIGHT_TARGETS": " ".join(targets),
    }
