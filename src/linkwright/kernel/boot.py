"""This boot: its id, how long it lasts, and the names of kernel and host."""

from __future__ import annotations

from .system import System


def boot_id(system: System) -> str:
    """The random id that the kernel makes at each boot; empty when it cannot be read (a captured tree)."""
    return _read(system, "sys/kernel/random/boot_id")


def uptime_s(system: System) -> float | None:
    """Seconds since the kernel started; not the firmware's uptime, and not changed by kexec's missing reset."""
    text = _read(system, "uptime").split()
    return float(text[0]) if text else None


def kernel_release(system: System) -> str:
    """``6.12.48``: what uname -r prints."""
    return _read(system, "sys/kernel/osrelease")


def host_name(system: System) -> str:
    return _read(system, "sys/kernel/hostname")


def _read(system: System, name: str) -> str:
    try:
        return (system.proc / name).read_text().strip()
    except OSError:
        return ""
