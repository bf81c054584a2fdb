"""Restart the host: by logind over D-Bus, or by the command that the environment names (emulated hosts).

By logind, because it is the one that knows inhibitor locks. Its plain Reboot ignores block inhibitors for root
before systemd 257; RebootWithFlags with SD_LOGIND_ROOT_CHECK_INHIBITORS (systemd 247) respects them, and we list
them first so that the refusal has names. Never kexec: it starts a new kernel without resetting the cards, so
the firmware would not load its new mode; with a kexec image loaded some distributions turn every reboot into one.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

from linkwright.model.errors import Busy, HardwareFault, NeedsPerson

from . import sysfs
from .system import System

if TYPE_CHECKING:
    from jeepney.io.blocking import DBusConnection  # type: ignore[import-untyped]

_ROOT_CHECK_INHIBITORS = 1 << 0  # src/basic/login-util.h: SD_LOGIND_ROOT_CHECK_INHIBITORS
_LIMIT_S = 20.0
_BY_HAND = "Restart the host by hand; the change goes on afterwards by itself."


def restart_host(system: System, reason: str) -> None:
    """Begin an orderly restart and return; the host goes down soon after. ``reason`` is for the log.

    Raises Busy ``restart-inhibited`` with the names of those who hold a block inhibitor, NeedsPerson when a kexec
    image is loaded, logind cannot restart or is not there, HardwareFault when it or the command fails.
    """
    if system.restart_command is not None:
        _run(system.restart_command)
        return
    if sysfs.text(system.sys / "kernel/kexec_loaded") == "1":
        raise NeedsPerson(
            "a kexec image is loaded, so a restart might start it without resetting the cards.",
            code="kexec-loaded",
            next_step="Unload it (kexec --unload), then: linkwright retry.",
        )
    _logind(reason)


def _run(command: tuple[str, ...]) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise _failed(" ".join(command), str(problem)) from problem
    if done.returncode != 0:
        raise _failed(" ".join(command), (done.stderr or done.stdout).strip() or f"exit code {done.returncode}")


def _failed(command: str, said: str) -> HardwareFault:
    return HardwareFault(
        f"the host could not be restarted: {said}.",
        code="restart-failed",
        said=said,
        command=command,
        next_step=_BY_HAND,
    )


def _logind(reason: str) -> None:
    from jeepney import DBusErrorResponse  # type: ignore[import-untyped]
    from jeepney.io.blocking import open_dbus_connection

    try:
        with open_dbus_connection(bus="SYSTEM") as bus:
            _refuse_inhibited(_call(bus, "ListInhibitors")[0])
            can = _call(bus, "CanReboot")[0]
            if can not in ("yes", "challenge"):
                raise NeedsPerson(
                    f"logind says that this host cannot be restarted (CanReboot: {can}).",
                    code="restart-not-possible",
                    next_step=_BY_HAND,
                )
            _call(bus, "SetWallMessage", "sb", (reason, True))
            _call(bus, "RebootWithFlags", "t", (_ROOT_CHECK_INHIBITORS,))
    except DBusErrorResponse as problem:
        said = f"{problem.name}: {' '.join(map(str, problem.data))}"
        if "BlockedByInhibitorLock" in problem.name:
            raise _inhibited(said) from problem
        raise _failed("logind RebootWithFlags", said) from problem
    except (OSError, TimeoutError, EOFError) as problem:
        raise NeedsPerson(
            f"logind cannot be reached over D-Bus ({problem}), so the host cannot be restarted in order.",
            code="no-logind",
            next_step=_BY_HAND,
        ) from problem


def _call(bus: DBusConnection, method: str, signature: str | None = None, body: tuple[Any, ...] = ()) -> Any:
    from jeepney import DBusAddress, new_method_call
    from jeepney.wrappers import unwrap_msg  # type: ignore[import-untyped]

    manager = DBusAddress(
        "/org/freedesktop/login1", bus_name="org.freedesktop.login1", interface="org.freedesktop.login1.Manager"
    )
    call = new_method_call(manager, method, signature, body)
    return unwrap_msg(bus.send_and_get_reply(call, timeout=_LIMIT_S))


def _refuse_inhibited(inhibitors: list[tuple[str, str, str, str, int, int]]) -> None:
    """ListInhibitors: (what, who, why, mode, uid, pid). Delay locks only delay; logind itself waits for them."""
    holders = [
        f"{who} (pid {pid}: {why})"
        for what, who, why, mode, _, pid in inhibitors
        if mode.startswith("block") and "shutdown" in what.split(":")
    ]
    if holders:
        raise _inhibited(", ".join(holders))


def _inhibited(holders: str) -> Busy:
    return Busy(
        f"a restart of the host is inhibited by {holders}.",
        code="restart-inhibited",
        next_step="Look: systemd-inhibit --list. The change waits until it is released.",
    )
