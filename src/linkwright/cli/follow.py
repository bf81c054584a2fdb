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
from contextlib import contextmanager, suppress
from typing import Any, Literal

from msgspec.structs import replace

from linkwright.model.errors import LinkwrightError

from .api import Agent, AgentAway
from .output import screen_of
from .render.text import Line, cut, line, paint, port_labels, printable
from .render.times import span
from .views import Event, read

Outcome = Literal["settled", "restarting", "interrupted"]
GOES_ON = "The change goes on in the agent. Look: linkwright status --watch. Stop: linkwright freeze"
RESTARTS = "This host restarts now. The change goes on by itself. Follow with: linkwright status --watch"
PATIENCE_S = 2.0  # what takes longer shows what is awaited
AGENT_BACK_S = 30.0  # an agent that went away without a host restart is given this long to come back
RESTART_PHASES = ("restarting",)
END = object()
SIGNS = {"failed": ("✖", "bad"), "waiting": ("…", "wait"), "done": ("✔", "good")}


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
        self._running: Event | None = None
        self._shown = ""
        self._phase: str | None = None
        self._connect()

    def _connect(self) -> None:
        events, self._stop = self._agent.watch(self._cursor)
        threading.Thread(target=self._read, args=(events, self._queue), daemon=True).start()

    @staticmethod
    def _read(events: Iterator[Any], into: queue.Queue[Any]) -> None:
        with suppress(LinkwrightError):  # a broken connection is an end like any other
            for event in events:
                into.put(event)
        into.put(END)

    def close(self) -> None:
        self._stop()

    def until_settled(self) -> Outcome:
        """Shows events until the agent says that there is nothing more to do now."""
        try:
            with _termination():
                return self._follow()
        except KeyboardInterrupt:
            self._say(GOES_ON)
            return "interrupted"
        except _Terminated:
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
                self._show_running()
                continue
            if item is END:
                if self._phase in RESTART_PHASES:
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
        before, self._running = self._running, None
        if event.kind == "step" or event.awaited:
            self._running = event
        if event.awaited:
            self._show_running()
            return
        if event.kind == "done" and before is not None and _same(before, event):
            if event.at - before.at < PATIENCE_S:
                return  # its line stands there already
            event = replace(event, text=f"{event.text}, {span(event.at - before.at)}")
        if event.text:
            self._erase()
            self._print(event)

    def _print(self, event: Event) -> None:
        sign, style = SIGNS.get(event.kind, ("·", "dim"))
        self._write(line((f"  {sign} ", style), _words(event)))

    def _show_running(self) -> None:
        """What is awaited or done now, since when and how long at most, once it takes longer than a moment."""
        event = self._running
        if event is None:
            return
        elapsed = time.time() - (event.at if event.since is None else event.since)
        if elapsed < PATIENCE_S:
            return
        limit = f" of {span(event.limit_s)}" if event.limit_s else ""
        text = f"  ▶ {printable(event.subject)}: waits for {printable(event.awaited)}" if event.awaited else ""
        text = text or f"  ▶ {_words(event)}"
        if self._screen.live:
            shown = cut([(f"{text}, {span(elapsed)}{limit}", "wait")], (self._screen.width or 80) - 1)
            self._put("\r\x1b[K" + paint([shown], self._screen.colour).rstrip("\n"))
            self._shown = text
        elif event.awaited and self._shown != text:  # once, where nothing can be written over
            self._write(line(text + (f", at most {span(event.limit_s)}" if event.limit_s else "")))
            self._shown = text

    def _erase(self) -> None:
        if self._screen.live and self._shown:
            self._put("\r\x1b[K")
            self._shown = ""

    def _say(self, text: str) -> None:
        self._erase()
        self._put(paint([line(text)], self._screen.colour))

    def _write(self, text: Line) -> None:
        if not self._quiet:
            self._put(paint([text], self._screen.colour))

    def _put(self, text: str) -> None:
        sys.stderr.write(text)
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
                    self._say("  … the agent went away; waiting for it to come back (at most 30 s)")
                    said = True
                time.sleep(0.5)  # nothing announces a socket that does not exist yet


def _words(event: Event) -> str:
    subject = f"{event.subject}: " if event.subject and event.subject not in event.text else ""
    return printable(port_labels(f"{subject}{event.text}"))


def _same(one: Event, other: Event) -> bool:
    return (one.subject, one.text) == (other.subject, other.text)


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
