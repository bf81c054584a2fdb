"""Where functions stand under /sys/devices, and how links lead there and back."""

from __future__ import annotations

from hostlab.parts import FunctionState


def bridge_of(slot: str) -> tuple[str, str | None]:
    """Root bus and root port above a slot: ``pci0000:3a`` and ``0000:3a:1c.0`` for ``0000:3b:00``; bus 0 hangs
    directly."""
    domain, bus, _ = slot.split(":")
    if int(bus, 16) == 0:
        return f"pci{domain}:00", None
    above = f"{domain}:{int(bus, 16) - 1:02x}"
    return f"pci{above}", f"{above}:1c.0"


def device_path(fn: FunctionState) -> str:
    """``devices/pci0000:3a/0000:3a:1c.0/0000:3b:00.0``."""
    root, bridge = bridge_of(fn.port.slot)
    return "/".join(part for part in ("devices", root, bridge, fn.address) if part)


def to_sys(fn: FunctionState) -> str:
    """From inside the function's folder back to /sys, with a slash at the end: ``../../../../``."""
    return "../" * len(device_path(fn).split("/"))
