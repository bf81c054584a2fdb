"""Maintenance windows by example: cron fields, durations over midnight, and both ends of daylight saving."""

from datetime import UTC, datetime

import pytest

from linkwright.model.documents import Window
from linkwright.planner.windows import next_opening, open_now


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def window(schedule: str, duration: str = "4h", zone: str = "UTC") -> tuple[Window, ...]:
    return (Window(schedule=schedule, duration=duration, time_zone=zone),)


def utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


SATURDAY_NIGHT = window("0 2 * * 6", "4h", "Europe/Berlin")


@pytest.mark.parametrize(
    ("now", "is_open"),
    [
        ("2026-12-05 00:59", False),
        ("2026-12-05 01:00", True),  # 02:00 in Berlin
        ("2026-12-05 04:59", True),
        ("2026-12-05 05:00", False),  # the end is not part of it
        ("2026-12-06 02:00", False),
    ],
)
def test_a_weekly_window(now: str, is_open: bool) -> None:
    assert (open_now(SATURDAY_NIGHT, at(now)) is not None) is is_open


def test_the_next_opening_is_named_in_its_own_time_zone() -> None:
    found = next_opening(SATURDAY_NIGHT, at("2026-11-30 11:00"))
    assert found is not None
    assert (utc(found.start), found.text) == ("2026-12-05 01:00", "Sat 5 Dec 2026 02:00 (Europe/Berlin)")


def test_a_window_stays_open_over_midnight_and_over_days() -> None:
    assert open_now(window("0 23 * * *", "3h"), at("2026-12-05 01:30"))
    assert open_now(window("0 22 * * 5", "60h"), at("2026-12-07 09:59"))
    assert not open_now(window("0 22 * * 5", "60h"), at("2026-12-07 10:00"))


@pytest.mark.parametrize(
    ("schedule", "now", "expected"),
    [
        ("*/15 * * * *", "2026-01-01 10:01", "2026-01-01 10:15"),
        ("0 8-18/2 * * 1-5", "2026-01-02 18:00", "2026-01-05 08:00"),  # Friday evening → Monday
        ("30 4 1,15 * *", "2026-01-02 00:00", "2026-01-15 04:30"),
        ("0 0 13 * 5", "2026-01-10 00:00", "2026-01-13 00:00"),  # the 13th or a Friday, as cron has it
        ("0 0 * * 7", "2026-01-01 00:00", "2026-01-04 00:00"),  # 7 is Sunday
        ("0 0 29 2 *", "2026-01-01 00:00", "2028-02-29 00:00"),
        ("5/20 0 * * *", "2026-01-01 00:06", "2026-01-01 00:25"),
    ],
)
def test_cron_fields(schedule: str, now: str, expected: str) -> None:
    found = next_opening(window(schedule), at(now))
    assert found is not None
    assert utc(found.start) == expected


def test_a_schedule_that_never_comes() -> None:
    assert next_opening(window("0 0 30 2 *"), at("2026-01-01 00:00")) is None


def test_spring_a_skipped_local_time_opens_after_the_gap_and_lasts_its_real_hours() -> None:
    """Berlin, 29 March 2026: 02:00 becomes 03:00, so 02:30 does not exist."""
    found = next_opening(window("30 2 * * *", "1h", "Europe/Berlin"), at("2026-03-28 12:00"))
    assert found is not None
    assert utc(found.start) == "2026-03-29 01:30"  # 03:30 local
    assert found.end - found.start == 3600


def test_autumn_a_doubled_local_time_opens_once() -> None:
    """Berlin, 25 October 2026: 03:00 becomes 02:00, so 02:30 comes twice (00:30 and 01:30 UTC)."""
    nights = window("30 2 * * *", "30m", "Europe/Berlin")
    found = next_opening(nights, at("2026-10-24 12:00"))
    assert found is not None
    assert utc(found.start) == "2026-10-25 00:30"
    assert not open_now(nights, at("2026-10-25 01:45"))
    after = next_opening(nights, found.start)
    assert after is not None
    assert utc(after.start) == "2026-10-26 01:30"


def test_a_window_over_the_change_of_clocks_lasts_its_real_hours() -> None:
    night = window("0 1 * * 0", "3h", "Europe/Berlin")  # 25 October: 01:00 summer time is 23:00 UTC on the 24th
    assert open_now(night, at("2026-10-25 01:59"))
    assert not open_now(night, at("2026-10-25 02:00"))


def test_of_several_windows_any_counts_and_the_longest_is_named() -> None:
    both = (*window("0 2 * * *", "1h"), *window("30 2 * * *", "2h"))
    found = open_now(both, at("2026-01-01 02:40"))
    assert found is not None
    assert utc(found.end) == "2026-01-01 04:30"
    following = next_opening(both, at("2026-01-01 02:40"))
    assert following is not None
    assert utc(following.start) == "2026-01-02 02:00"
