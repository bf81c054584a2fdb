"""Which adapters offer a reset: asked of the tool only where a policy may use one, and kept for a minute.

A reset matters where host.yaml allows it, and either the card is proven or a policy asks for FirmwareReset by
name, and only for a card that some policy would change. Each question is a run of mstfwreset (a second of Python).
"""

from __future__ import annotations

import threading
import time

import msgspec

from ..model.errors import LinkwrightError
from ..model.inventory import Adapter, Inventory
from ..model.plan import Desired
from ..planner.activation import proven
from .memory import RememberedFirmware

KEEP_S = 60.0


class Offers:
    """Thread-safe; one per agent."""

    def __init__(self, firmware: RememberedFirmware) -> None:
        self._firmware = firmware
        self._kept: dict[str, tuple[float, bool | None]] = {}
        self._lock = threading.Lock()

    def added(self, inventory: Inventory, desired: Desired) -> Inventory:
        """The inventory with ``reset_offered`` where it matters."""
        if not desired.host.spec.allow.reset:
            return inventory
        adapters = tuple(
            msgspec.structs.replace(a, reset_offered=self._offered(a)) if _matters(a, desired) else a
            for a in inventory.adapters
        )
        return msgspec.structs.replace(inventory, adapters=adapters)

    def _offered(self, adapter: Adapter) -> bool | None:
        pf, now = adapter.ports[0].pf.address, time.monotonic()
        with self._lock:
            kept = self._kept.get(pf)
        if kept is not None and now - kept[0] < KEEP_S:
            return kept[1]
        try:
            found: bool | None = self._firmware.reset_offer(pf).usable
        except LinkwrightError:
            found = None
        with self._lock:
            self._kept[pf] = (now, found)
        return found


def _matters(adapter: Adapter, desired: Desired) -> bool:
    by_name = any(p.spec.activation.method == "FirmwareReset" for p in desired.policies)
    auto = any(p.spec.activation.method == "Auto" for p in desired.policies)
    wanted = {p.spec.link_mode for p in desired.policies}
    changes = any(port.can_change and wanted - {port.current_mode} for port in adapter.ports)
    return changes and (by_name or (auto and proven(desired.host.spec, adapter)))
