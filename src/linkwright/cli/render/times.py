"""Times for people: how long ago, how long yet. JSON keeps RFC 3339 or seconds; only screens use these."""

from __future__ import annotations

import time


def span(seconds: float) -> str:
    """``12 s``, ``4 min``, ``2 h``, ``41 d``: one unit, since nobody acts on the second one."""
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"{int(seconds)} s"
    if seconds < 7200:
        return f"{int(seconds // 60)} min"
    if seconds < 172800:
        return f"{int(seconds // 3600)} h"
    return f"{int(seconds // 86400)} d"


def clock(at: float, now: float) -> str:
    """``12:04`` for today, ``Mon 12:04`` within six days, else ``2026-11-30 12:04``, in the reader's time zone."""
    then, today = time.localtime(at), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    if 0 <= now - at < 6 * 86400:
        return time.strftime("%a %H:%M", then)
    return time.strftime("%Y-%m-%d %H:%M", then)
