"""What the demonstration is made of: announce a step, type a command as a person would and show its real output,
check what came out, measure. A check that fails ends it all with exit code 1.

Commands run on a terminal of their own (pty), because what a person sees depends on there being one: colours, a
question before something is interrupted. Where our own output is no terminal, colours and moving lines are off.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hostlab.lab import Lab

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HOST = "gpu-01"
LINKWRIGHT = str(Path(sys.executable).with_name("linkwright"))
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Failed(Exception):
    """A check did not hold, or a command ended otherwise than it should."""


@dataclass
class Step:
    title: str
    seconds: float = 0.0
    checks: int = 0


@dataclass
class Stage:
    """The screen, the lab that belongs to the demonstration alone, and the steps so far."""

    console: Console = field(default_factory=lambda: Console(highlight=False))
    steps: list[Step] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.terminal = sys.stdout.isatty()
        self.width = max(80, min(shutil.get_terminal_size((150, 40)).columns, 170))
        self.console.width = self.width
        # A lab of our own: a host of the same name that somebody runs by hand is never touched.
        self.folder = ROOT / ".lab"
        self.environ = os.environ | {"LINKWRIGHT_LAB": str(self.folder)}
        self.machine = Lab(self.folder).host(HOST)

    # -- steps ----------------------------------------------------------------------------------------------------

    def step(self, title: str, why: str) -> Step:
        self._close()
        self.steps.append(Step(title, time.monotonic()))
        self.console.print()
        self.console.rule(f"[bold]{len(self.steps)}. {title}[/bold]", align="left", style="dim")
        self.console.print(why, style="italic")
        return self.steps[-1]

    def _close(self) -> None:
        if self.steps and self.steps[-1].seconds > 1000:  # still the time it began at
            self.steps[-1].seconds = time.monotonic() - self.steps[-1].seconds

    def check(self, text: str, holds: object) -> None:
        """``holds`` must be true; ``text`` says what is shown by it."""
        if not holds:
            self.console.print(f"  [red]✖ {text}[/red]")
            raise Failed(text)
        self.console.print(f"  [green]✔[/green] {text}")
        if self.steps:
            self.steps[-1].checks += 1

    def summary(self) -> None:
        self._close()
        table = Table(title="What you saw", title_justify="left", box=None, pad_edge=False)
        for title in ("STEP", "", "CHECKS", "SECONDS"):
            table.add_column(title, justify="left" if title in ("STEP", "") else "right")
        for number, step in enumerate(self.steps, 1):
            table.add_row(str(number), step.title, f"{step.checks} held", f"{step.seconds:.1f}")
        self.console.print()
        self.console.print(table)
        seconds = time.monotonic() - self.began
        checks = sum(step.checks for step in self.steps)
        self.console.print(f"\n[green]✔[/green] {checks} checks held in {seconds:.0f} s. Nothing is left running.")

    # -- commands -------------------------------------------------------------------------------------------------

    def lab(self, *words: str, **options: Any) -> str:
        """``linkwright lab WORDS`` on this machine, shown."""
        return self.type([LINKWRIGHT, "lab", *words], f"linkwright lab {shlex.join(words)}", **options)

    def host(self, *words: str, **options: Any) -> str:
        """WORDS inside the emulated host, shown with its prompt."""
        return self.type(self._in_host(words), shlex.join(words), prompt=f"{HOST}#", **options)

    def _in_host(self, words: Sequence[str]) -> list[str]:
        screen = {"COLUMNS": str(self.width), "TERM": "xterm" if self.terminal else "dumb"}
        if not self.terminal:
            screen["NO_COLOR"] = "1"
        settings = [f"{name}={value}" for name, value in screen.items()]
        return [LINKWRIGHT, "lab", "exec", HOST, "--", "env", *settings, *words]

    def run(self, *words: str, text: str = "") -> str:
        """What WORDS print inside the host; not shown, since it is only looked at or prepared."""
        return self.machine.exec(list(words), stdin=text).stdout

    def ask(self, *words: str) -> Any:
        """The JSON that WORDS print inside the host."""
        return json.loads(self.run(*words, "-o", "json"))

    def until(self, text: str, holds: Callable[[Any], bool], limit_s: float = 120.0) -> None:
        """Follow ``linkwright status --watch`` until ``holds(status)``; its end is a check like any other."""
        command = self.machine.command_line([LINKWRIGHT, "status", "--watch", "-o", "json"])
        deadline = time.monotonic() + limit_s
        nothing = subprocess.DEVNULL
        with subprocess.Popen(command, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing) as watch:
            assert watch.stdout is not None
            pending, last = b"", None
            try:
                while last is None or not holds(last):
                    left = deadline - time.monotonic()
                    if left <= 0 or not select.select([watch.stdout], [], [], left)[0]:
                        raise Failed(f"not within {limit_s:g} s: {text}. The last status: {json.dumps(last)}")
                    data = os.read(watch.stdout.fileno(), 1 << 20)
                    if not data:
                        raise Failed(f"the status ended before: {text}")
                    *lines, pending = (pending + data).split(b"\n")
                    last = json.loads(lines[-1]) if lines else last
            finally:
                watch.terminate()
        self.check(text, True)

    def put(self, name: str, path: str) -> None:
        """A file of this folder into the host, as an editor would, and its text on the screen without comments."""
        text = (HERE / name).read_text()
        self.machine.write(path, text)
        self.console.print(f"[dim]{HOST}#[/dim] [bold]cat {path}[/bold]")
        for line in text.splitlines():
            if not line.startswith("#"):
                self.console.print(f"  {line}", markup=False, style="cyan")

    def type(
        self,
        command: Sequence[str],
        shown: str,
        *,
        prompt: str = "$",
        answer: str | None = None,
        code: int | None = 0,
        at: tuple[str, Callable[[], None]] | None = None,
    ) -> str:
        """Run ``command`` on a terminal, show it and its output. ``answer`` is typed at its question. ``at``: when
        the output shows the text, call the function (once). Raises Failed when it does not end with ``code``."""
        self.console.print(f"[dim]{prompt}[/dim] ", end="")
        self.console.print(shown, style="bold", markup=False, soft_wrap=True)
        began = time.monotonic()
        child, screen = pty.fork()
        if child == 0:
            try:
                os.execvpe(command[0], list(command), self.environ)
            finally:
                os._exit(127)
        termios.tcsetwinsize(screen, (40, self.width))
        output = self._watch(screen, answer, at)
        os.close(screen)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.console.print(f"  [dim]{time.monotonic() - began:.1f} s[/dim]")
        if code is not None and ended != code:
            raise Failed(f"{shown!r} ended with {ended}, expected {code}")
        return output

    def _watch(self, screen: int, answer: str | None, at: tuple[str, Callable[[], None]] | None) -> str:
        output = ""
        while True:
            select.select([screen], [], [])
            try:
                data = os.read(screen, 65536)
            except OSError:  # EIO: the other end is closed
                data = b""
            if not data:
                return ESCAPES.sub("", output)
            text = data.decode(errors="replace")
            output += text
            sys.stdout.write(text if self.terminal else ESCAPES.sub("", text))
            sys.stdout.flush()
            if answer is not None and "[y/N]" in output:
                os.write(screen, answer.encode() + b"\n")
                answer = None
            if at is not None and at[0] in ESCAPES.sub("", output):
                act, at = at[1], None
                act()
