"""Firmware readings kept between passes, because a query costs a tool run and the firmware's settings change
only by a write, a reset or a restart of the host.

Three of these are ours and drop the entry; another program's ``mstconfig set`` of a link mode is seen after
``ttl_s`` at the latest, and before every plan that is shown to a person or that writes (``forget``). The VF
settings are kept longer: mstconfig reads a card's PCI capabilities 126 times to show them (counted with 4.21 on an
emulated card), eight times the cost of LINK_TYPE, and they are read back whenever they are written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ..firmware.base import CardReading, FirmwareDriver, ResetDone, ResetOffer, Written


class RememberedFirmware:
    """A FirmwareDriver in front of another one; failures are not remembered."""

    def __init__(self, driver: FirmwareDriver, ttl_s: float = 60.0, lasting_ttl_s: float = 600.0) -> None:
        self._driver = driver
        self._ttl_s = ttl_s
        self._lasting_ttl_s = lasting_ttl_s
        self._lock = threading.Lock()
        self._readings: dict[tuple[str, tuple[str, ...]], tuple[float, CardReading]] = {}  # when it ends
        self._uptimes: dict[str, tuple[float, int | None]] = {}
        self.wants_uptime = False  # only evidence after an activation needs it, and it costs a tool run a card

    def forget(self, *, everything: bool = False) -> None:
        """The next question about a link mode goes to the cards; ``everything``: any question."""
        with self._lock:
            kept = {} if everything else {key: v for key, v in self._readings.items() if _lasting(key[1], v[1])}
            self._readings = kept
            self._uptimes.clear()

    def query(self, pf: str, names: Sequence[str] = ()) -> CardReading:
        if not names:
            return self._driver.query(pf, names)
        modes = tuple(name for name in names if name.startswith("LINK_TYPE"))
        parts = [part for part in (modes, tuple(name for name in names if name not in modes)) if part]
        found = {part: self._kept(pf, part) for part in parts}
        asked = [part for part in parts if found[part] is None]
        if asked:
            fresh = self._driver.query(pf, [name for name in names if any(name in part for part in asked)])
            for part in asked:
                found[part] = self._keep(pf, part, _part(fresh, part))
        whole = [reading for reading in found.values() if reading is not None]
        params = {name: value for reading in whole for name, value in reading.params.items()}
        lacking = {name for reading in whole for name in reading.missing}
        return replace(whole[0], params=params, missing=tuple(name for name in names if name in lacking))

    def _kept(self, pf: str, names: tuple[str, ...]) -> CardReading | None:
        with self._lock:
            until, reading = self._readings.get((pf, names), (0.0, None))
        return reading if time.monotonic() < until else None

    def _keep(self, pf: str, names: tuple[str, ...], reading: CardReading) -> CardReading:
        ttl_s = self._lasting_ttl_s if _lasting(names, reading) else self._ttl_s
        with self._lock:
            self._readings[(pf, names)] = (time.monotonic() + ttl_s, reading)
        return reading

    def write(self, pf: str, settings: Mapping[str, str]) -> Written:
        try:
            return self._driver.write(pf, settings)
        finally:
            self.forget(everything=True)

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
            self.forget(everything=True)

    def version(self) -> str | None:
        return self._driver.version()


def _part(reading: CardReading, names: Sequence[str]) -> CardReading:
    params = {name: value for name, value in reading.params.items() if name in names}
    return replace(reading, params=params, missing=tuple(name for name in reading.missing if name in names))


def _lasting(names: Sequence[str], reading: CardReading) -> bool:
    """VF settings, and what the card does not have at all."""
    return not names[0].startswith("LINK_TYPE") or set(names) <= set(reading.missing)
