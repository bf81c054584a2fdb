"""Restart through a D-Bus of our own that plays logind, and through a command."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jeepney import HeaderFields, Message, MessageType, new_error, new_method_return
from jeepney.low_level import Parser

from linkwright.kernel.restart import restart_host
from linkwright.kernel.system import System
from linkwright.model.errors import Busy, HardwareFault, NeedsPerson

Inhibitor = tuple[str, str, str, str, int, int]


class Logind:
    """A message bus with one service on it. ``calls``: the methods that were called, with their arguments."""

    def __init__(self, path: Path) -> None:
        self.inhibitors: list[Inhibitor] = []
        self.can = "yes"
        self.refusal: str | None = None
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(os.fspath(path))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # ends an accept that nobody answered
        self._socket.close()

    def _serve(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        with connection:
            data = b""
            while b"BEGIN\r\n" not in data:
                data += connection.recv(1024)
                if b"AUTH EXTERNAL" in data and data.endswith(b"\r\n") and b"BEGIN" not in data:
                    connection.sendall(b"OK 0123456789abcdef\r\n")
                    data = b""
            data = data.partition(b"BEGIN\r\n")[2]  # the first call may have come in the same packet
            parser = Parser()
            serial = 0
            while True:
                parser.add_data(data)
                while (message := parser.get_next_message()) is not None:
                    if message.header.message_type is MessageType.method_call:
                        serial += 1
                        connection.sendall(self._answer(message).serialise(serial))
                if not (data := connection.recv(65536)):
                    return

    def _answer(self, call: Message) -> Message:
        method = call.header.fields[HeaderFields.member]
        if method == "Hello":
            return new_method_return(call, "s", (":1.1",))
        self.calls.append((method, call.body))
        if method == "ListInhibitors":
            return new_method_return(call, "a(ssssuu)", (self.inhibitors,))
        if method == "CanReboot":
            return new_method_return(call, "s", (self.can,))
        if method == "RebootWithFlags" and self.refusal:
            return new_error(call, self.refusal, "s", ("somebody objects",))
        return new_method_return(call)


@pytest.fixture
def logind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Logind]:
    path = tmp_path / "bus"
    bus = Logind(path)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={path}")
    yield bus
    bus.close()


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(sys=tmp_path / "sys")


def test_a_restart_checks_inhibitors_also_for_root(logind: Logind, system: System) -> None:
    logind.inhibitors = [
        ("sleep", "laptop", "lid", "block", 0, 1),
        ("shutdown", "NetworkManager", "turns links off", "delay", 0, 2),
    ]
    restart_host(system, "linkwright: training: RoCE")
    assert [name for name, _ in logind.calls] == [
        "ListInhibitors",
        "CanReboot",
        "SetWallMessage",
        "RebootWithFlags",
    ]
    assert logind.calls[-1][1] == (1,)
    assert logind.calls[-2][1] == ("linkwright: training: RoCE", True)


def test_a_block_inhibitor_refuses_with_its_name(logind: Logind, system: System) -> None:
    logind.inhibitors = [("shutdown:sleep", "apt", "packages are installed", "block", 0, 812)]
    with pytest.raises(Busy, match=r"apt \(pid 812: packages are installed\)") as caught:
        restart_host(system, "why")
    assert caught.value.code == "restart-inhibited"
    assert "RebootWithFlags" not in dict(logind.calls)


def test_an_inhibitor_taken_meanwhile(logind: Logind, system: System) -> None:
    logind.refusal = "org.freedesktop.login1.BlockedByInhibitorLock"
    with pytest.raises(Busy):
        restart_host(system, "why")


def test_a_host_that_cannot_restart(logind: Logind, system: System) -> None:
    logind.can = "na"
    with pytest.raises(NeedsPerson, match="CanReboot: na"):
        restart_host(system, "why")


def test_logind_refuses(logind: Logind, system: System) -> None:
    logind.refusal = "org.freedesktop.DBus.Error.AccessDenied"
    with pytest.raises(HardwareFault, match="AccessDenied: somebody objects") as caught:
        restart_host(system, "why")
    assert caught.value.code == "restart-failed"


def test_no_bus(system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    with pytest.raises(NeedsPerson, match="logind cannot be reached"):
        restart_host(system, "why")


def test_never_with_a_kexec_image(logind: Logind, system: System) -> None:
    (system.sys / "kernel").mkdir(parents=True)
    (system.sys / "kernel/kexec_loaded").write_text("1\n")
    with pytest.raises(NeedsPerson, match="kexec"):
        restart_host(system, "why")
    assert logind.calls == []


def test_a_command_instead(tmp_path: Path) -> None:
    mark = tmp_path / "restarted"
    code = f"open({str(mark)!r}, 'w')"
    restart_host(System(restart_command=(sys.executable, "-c", code)), "why")
    assert mark.exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((sys.executable, "-c", "raise SystemExit('no way')"), "no way"),
        (("/nonexistent/restart",), "No such file"),
    ],
)
def test_a_command_that_fails(command: tuple[str, ...], said: str) -> None:
    with pytest.raises(HardwareFault, match=said) as caught:
        restart_host(System(restart_command=command), "why")
    assert caught.value.command == " ".join(command)
