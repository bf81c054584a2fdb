"""Maintenance windows: is one open at a moment, and when does the next one open? Pure in (windows, moment).

A window opens at each local time that its schedule names (crontab(5): minute, hour, day of month, month, day of
week; when both day fields are restricted, either is enough) and stays open for its duration in real hours.
Daylight saving: a local time that is skipped in spring opens the window that much later (02:30 becomes 03:30); one
that comes twice in autumn opens it the first time only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from ..model.documents import Window
from ..model.values import parse_duration

HORIZON_DAYS = 366 * 8 + 1  # 29 February comes at least every eight years
_LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


@dataclass(frozen=True)
class Opening:
    """``start`` and ``end`` in seconds since the epoch; ``text``: ``Sat 5 Dec 2026 02:00 (Europe/Berlin)``."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class _Cron:
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    either_day: bool

    def on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either_day else of_month and of_week

    def times(self) -> Iterator[time]:
        return (time(hour, minute) for hour in self.hours for minute in self.minutes)


def open_now(windows: Sequence[Window], now: float) -> Opening | None:
    """The opening that ``now`` lies in and that ends last; None when every window is closed."""
    found = [o for w in windows if (o := _latest(w, now)) is not None and now < o.end]
    return max(found, key=lambda o: o.end, default=None)


def next_opening(windows: Sequence[Window], now: float) -> Opening | None:
    """The first opening after ``now``; None when no window ever opens (30 February)."""
    found = [o for w in windows if (o := _next(w, now)) is not None]
    return min(found, key=lambda o: o.start, default=None)


def _latest(window: Window, now: float) -> Opening | None:
    cron, zone, duration = _read(window.schedule), _zone(window.time_zone), parse_duration(window.duration)
    today = datetime.fromtimestamp(now, zone).date()
    for back in range(-1, int(duration // 86400) + 3):
        day = today - timedelta(days=back)
        if cron.on(day):
            before = [s for at in cron.times() if (s := _moment(day, at, zone)) <= now]
            if before:
                return _opening(max(before), duration, zone, window.time_zone)
    return None


def _next(window: Window, now: float) -> Opening | None:
    cron, zone, duration = _read(window.schedule), _zone(window.time_zone), parse_duration(window.duration)
    first = datetime.fromtimestamp(now, zone).date() - timedelta(days=1)
    for ahead in range(HORIZON_DAYS):
        day = first + timedelta(days=ahead)
        if cron.on(day):
            after = [s for at in cron.times() if (s := _moment(day, at, zone)) > now]
            if after:
                return _opening(min(after), duration, zone, window.time_zone)
    return None


def _moment(day: date, at: time, zone: tzinfo) -> float:
    """With fold 0 a skipped time counts with the offset from before, which puts it after the gap, and a doubled
    one means the first (PEP 495)."""
    return datetime.combine(day, at, tzinfo=zone).timestamp()


def _opening(start: float, duration: float, zone: tzinfo, name: str) -> Opening:
    local = datetime.fromtimestamp(start, zone)
    return Opening(start=start, end=start + duration, text=f"{local:%a} {local.day} {local:%b %Y %H:%M} ({name})")


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


def _read(schedule: str) -> _Cron:
    """``schedule`` was checked when the document was read (model/checks.py)."""
    fields = schedule.split()
    minutes, hours, days, months, weekdays = (
        _numbers(text, *limits) for text, limits in zip(fields, _LIMITS, strict=True)
    )
    return _Cron(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        months=months,
        weekdays=frozenset(n % 7 for n in weekdays),
        either_day=not (fields[2].startswith("*") or fields[4].startswith("*")),
    )


def _numbers(text: str, low: int, high: int) -> frozenset[int]:
    """``*``, ``5``, ``1-5``, ``*/15``, ``10/5`` (from 10 on), and lists of these."""
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        begin, dash, end = span.partition("-")
        if span == "*":
            first, last = low, high
        else:
            first = int(begin)
            last = int(end) if dash else high if step else first
        found.update(range(first, last + 1, int(step or 1)))
    return frozenset(found)
