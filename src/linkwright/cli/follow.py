"""Follow what the agent does until it has settled: one line an event, and what is awaited while it takes long.

A reader thread feeds a queue, so that the elapsed time moves once a second while nothing else happens and
Ctrl-C is answered at once. A host that restarts ends the agent and usually us as well: then the command
says so and ends; nothing is lost, since the change lives in the agent's file.
"""

from __future__ import annotations

import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from linkwright.model.errors import LinkwrightError

from .api import Agent, AgentAway
from .output import screen_of
from .render.text import cut, line, paint, printable
from .render.times import span
from .views import Event, read

Outcome = Literal["settled", "restarting", "interrupted"]
GOES_ON = "The change goes on in the agent. Look: linkwright status --watch. Stop: linkwright freeze"
RESTARTS = "This host restarts now. The change goes on by itself. Follow with: linkwright status --watch"
PATIENCE_S = 2.0  # what takes longer shows what is awaited
AGENT_BACK_S = 30.0  # an agent that went away without a host restart is given this long to come back
RESTART_PHASES = ("restarting",)
END = object()


class _Terminated(Exception):
    """SIGTERM or SIGHUP: the host goes down, or somebody ends this command."""


class Follower:
    """``cursor`` is what the agent answered to the request whose effects are shown: events after it are read,
    so none is lost between the answer and the first look."""

    def __init__(self, agent: Agent, cursor: int, *, quiet: bool = False) -> None:
        self._agent = agent
        self._cursor = cursor
        self._screen = screen_of(sys.stderr)
        self._quiet = quiet
        self._queue: queue.Queue[Any] = queue.Queue()
        self._stop: Callable[[], None]
        self._waiting: Event | None = None
        self._shown_wait = ""
        self._phase: str | None = None
        self._connect()

    def _connect(self) -> None:
        events, self._stop = self._agent.watch(self._cursor)
        threading.Thread(target=self._read, args=(events, self._queue), daemon=True).start()

    @staticmethod
    def _read(events: Iterator[Any], into: queue.Queue[Any]) -> None:
        try:
            for event in events:
                into.put(event)
        except LinkwrightError as error:
            into.put(error)
        into.put(END)

    def close(self) -> None:
        self._stop()

    def until_settled(self) -> Outcome:
        """Shows events until the agent says that there is nothing more to do now."""
        try:
            with _termination():
                return self._follow()
        except KeyboardInterrupt:
            self._erase()
            self._say(GOES_ON)
            return "interrupted"
        except _Terminated:
            self._erase()
            if self._phase in RESTART_PHASES:
                self._say(RESTARTS)
                return "restarting"
            self._say(GOES_ON)
            return "interrupted"
        finally:
            self._erase()
            self.close()

    def _follow(self) -> Outcome:
        while True:
            try:
                item = self._queue.get(timeout=1.0)
            except queue.Empty:
                self._show_waiting()
                continue
            if item is END or isinstance(item, LinkwrightError):
                if self._phase in RESTART_PHASES:
                    self._erase()
                    self._say(RESTARTS)
                    return "restarting"
                self._reconnect()
                continue
            event = read(item, Event)
            self._cursor = max(self._cursor, event.seq)
            self._take(event)
            if event.settled:
                return "settled"

    def _take(self, event: Event) -> None:
        if event.phase:
            self._phase = event.phase
        if event.awaited:
            self._waiting = event
            self._show_waiting()
            return
        self._waiting = None
        if event.text:
            self._erase()
            self._print(event)

    def _print(self, event: Event) -> None:
        style = {"failed": "bad", "waiting": "wait", "done": "good"}.get(event.kind, "dim")
        sign = {"failed": "✖", "waiting": "…", "done": "✔"}.get(event.kind, "·")
        subject = f"{printable(event.subject)}: " if event.subject and event.subject not in event.text else ""
        self._write(line((f"  {sign} ", style), f"{subject}{printable(event.text)}"))

    def _show_waiting(self) -> None:
        event = self._waiting
        if event is None or event.awaited is None:
            return
        elapsed = time.time() - (event.since or event.at)
        if elapsed < PATIENCE_S:
            return
        limit = f" of {span(event.limit_s)}" if event.limit_s else ""
        text = f"  ▶ {printable(event.subject)}: waits for {printable(event.awaited)}"
        if self._screen.live:
            shown = cut([(f"{text}, {span(elapsed)}{limit}", "wait")], (self._screen.width or 80) - 1)
            sys.stderr.write("\r\x1b[K" + paint([shown], self._screen.colour).rstrip("\n"))
            sys.stderr.flush()
            self._shown_wait = text
        elif self._shown_wait != text:  # once, where nothing can be written over
            self._write(line(f"{text}" + (f", at most {span(event.limit_s)}" if event.limit_s else "")))
            self._shown_wait = text

    def _erase(self) -> None:
        if self._screen.live and self._shown_wait:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown_wait = ""

    def _say(self, text: str) -> None:
        sys.stderr.write(paint([line(text)], self._screen.colour))
        sys.stderr.flush()

    def _write(self, text: Any) -> None:
        if not self._quiet:
            sys.stderr.write(paint([text], self._screen.colour))
            sys.stderr.flush()

    def _reconnect(self) -> None:
        """The agent restarted alone (an update, a crash): its new process goes on with the same work."""
        deadline = time.monotonic() + AGENT_BACK_S
        self._cursor = 0  # a new process counts from the start
        said = False
        while True:
            try:
                self._connect()
                return
            except AgentAway:
                if time.monotonic() > deadline:
                    raise
                if not said:
                    self._erase()
                    self._say("  … the agent went away; waiting for it to come back (at most 30 s)")
                    said = True
                time.sleep(0.5)  # nothing announces a socket that does not exist yet


@contextmanager
def _termination() -> Iterator[None]:
    """SIGTERM and SIGHUP as an exception, in the main thread only (signals cannot be set elsewhere)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_signal: int, _frame: Any) -> None:
        raise _Terminated

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
