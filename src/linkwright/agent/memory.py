"""Firmware readings kept between passes, because a query costs a tool run and the firmware's settings change
only by a write, a reset or a restart of the host.

Three of these are ours and drop the entry; another program's ``mstconfig set`` is seen after ``ttl_s`` at the
latest, and before every plan that is shown to a person or that writes (``forget``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from ..firmware.base import CardReading, FirmwareDriver, ResetDone, ResetOffer, Written


class RememberedFirmware:
    """A FirmwareDriver in front of another one; failures are not remembered."""

    def __init__(self, driver: FirmwareDriver, ttl_s: float = 60.0) -> None:
        self._driver = driver
        self._ttl_s = ttl_s
        self._lock = threading.Lock()
        self._readings: dict[tuple[str, tuple[str, ...]], tuple[float, CardReading]] = {}
        self._uptimes: dict[str, tuple[float, int | None]] = {}
        self.wants_uptime = False  # only evidence after an activation needs it, and it costs a tool run a card

    def forget(self) -> None:
        """The next question goes to the cards."""
        with self._lock:
            self._readings.clear()
            self._uptimes.clear()

    def query(self, pf: str, names: Sequence[str] = ()) -> CardReading:
        key = (pf, tuple(names))
        with self._lock:
            kept = self._readings.get(key)
        if kept is not None and time.monotonic() - kept[0] < self._ttl_s:
            return kept[1]
        reading = self._driver.query(pf, names)
        with self._lock:
            self._readings[key] = (time.monotonic(), reading)
        return reading

    def write(self, pf: str, settings: Mapping[str, str]) -> Written:
        try:
            return self._driver.write(pf, settings)
        finally:
            self.forget()

    def backup(self, pf: str) -> str:
        return self._driver.backup(pf)

    def uptime_s(self, pf: str) -> int | None:
        """Unknown unless wanted; a kept value is advanced by the time since its reading."""
        if not self.wants_uptime:
            return None
        with self._lock:
            kept = self._uptimes.get(pf)
        if kept is not None and time.monotonic() - kept[0] < self._ttl_s:
            return None if kept[1] is None else kept[1] + int(time.monotonic() - kept[0])
        return self.measure_uptime_s(pf)

    def measure_uptime_s(self, pf: str) -> int | None:
        """Ask the card, wanted or not."""
        value = self._driver.uptime_s(pf)
        with self._lock:
            self._uptimes[pf] = (time.monotonic(), value)
        return value

    def reset_offer(self, pf: str) -> ResetOffer:
        return self._driver.reset_offer(pf)

    def reset(self, pf: str) -> ResetDone:
        try:
            return self._driver.reset(pf)
        finally:
            self.forget()

    def version(self) -> str | None:
        return self._driver.version()
