"""``linkwright status``: policies, targets and mode changes as the agent knows them; ``--watch`` goes on."""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from typing import Any

import click

from .. import output as out
from ..api import Agent

AGAIN_S = 2.0  # elapsed times move at least this often, and an agent that went away is looked for this often


@click.command("status")
@click.option(
    "-w", "--watch", is_flag=True, help="Keep showing it until Ctrl-C, also over a restart of the agent."
)
@out.output_option
def status(watch: bool, output: str) -> None:
    """Policies, targets and their interfaces, mode changes in progress, and why something waits or failed.

    \b
    Examples:
      linkwright status
      linkwright status --watch
      linkwright status -o json
    """
    agent = Agent.from_environment()
    if watch:
        _watch(agent, output)
        return
    raw = agent.get("/v1/status")
    if output == "table":
        out.show(_lines(raw))
    else:
        out.emit(raw, output)


def _lines(raw: Any) -> Any:
    from ..render.status import status_lines
    from ..views import StatusView, read

    return status_lines(read(raw, StatusView), time.time(), out.width())


def _watch(agent: Agent, output: str) -> None:
    """A new screen at each event and every two seconds; without a terminal, a block more when it changed."""
    from linkwright.model.errors import LinkwrightError

    screen = out.screen_of(sys.stdout)
    events = _Events(agent)
    before: Any = None
    while True:
        try:
            raw = agent.get("/v1/status")
            shown = json.dumps(raw, ensure_ascii=False) if output == "json" else ""
            lines = [] if output != "table" else _lines(raw)
        except LinkwrightError as error:
            from ..render.errors import error_lines

            raw, shown, lines = None, "", error_lines(error, out.width())
        if output != "table":
            if raw is not None and raw != before:
                sys.stdout.write(f"{shown}\n") if output == "json" else out.emit([raw], output)
                sys.stdout.flush()
        elif screen.live:
            sys.stdout.write("\x1b[H\x1b[2J")
            out.show(lines)
        elif raw != before or before is None:
            out.show([*lines, ()])
        before = raw
        try:
            events.wait(AGAIN_S)
        except KeyboardInterrupt:
            return


class _Events:
    """Wakes the screen when something happens; reconnects by itself when the agent comes back."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._queue: queue.Queue[object] = queue.Queue()
        self._thread: threading.Thread | None = None

    def wait(self, seconds: float) -> None:
        """Until an event, at most ``seconds``; a burst of events counts once."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()
        try:
            self._queue.get(timeout=seconds)
            while True:
                self._queue.get(timeout=0.05)
        except queue.Empty:
            return

    def _read(self) -> None:
        from linkwright.model.errors import LinkwrightError

        try:
            events, _ = self._agent.watch()
            for event in events:
                self._queue.put(event)
        except LinkwrightError:
            return  # the screen says it
