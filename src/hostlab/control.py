"""The control socket of a host's supervisor: one JSON line to it, one JSON line back.

Paths in a test's temporary folder are often longer than the 107 bytes of a unix socket address, so both ends reach
the socket through a descriptor of its folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from linkwright.model.errors import Busy, LinkwrightError, Vanished

SOCKET_NAME = "control.sock"
ANSWER_LIMIT_S = 400.0  # a stop and a boot in which everything takes as long as process 1 lets it


@contextlib.contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)


def listen(folder: Path) -> socket.socket:
    """The supervisor's end: a listening socket in ``folder``, for root only."""
    (folder / SOCKET_NAME).unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _short_path(folder) as path:
        server.bind(path)
    (folder / SOCKET_NAME).chmod(0o600)
    server.listen(16)
    server.setblocking(False)
    return server


class Channel:
    """One client of the supervisor: collects a request line, sends the answer, closes."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = b""

    def receive(self) -> dict[str, Any] | None:
        """The request if it is complete, else None. Raises ConnectionError when the client has gone."""
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionResetError
        self._buffer += data
        if b"\n" not in self._buffer:
            return None
        request = json.loads(self._buffer)
        if not isinstance(request, dict):
            raise ValueError("a request is a JSON object")
        return request

    def answer(self, body: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the client did not wait
            self.sock.setblocking(True)
            self.sock.settimeout(5)
            self.sock.sendall(json.dumps(body).encode() + b"\n")
        self.sock.close()


def ask(folder: Path, command: str, *, timeout_s: float = ANSWER_LIMIT_S, **arguments: Any) -> dict[str, Any]:
    """Send ``command`` to the supervisor whose socket is in ``folder`` and wait for its answer.

    Raises Vanished when no supervisor answers, Busy after ``timeout_s``, and what the supervisor reports.
    """
    request = json.dumps({"command": command} | arguments).encode() + b"\n"
    log = f"linkwright lab log {folder.name} --supervisor"
    try:
        data = _exchange(folder, request, timeout_s)
    except (FileNotFoundError, ConnectionRefusedError):
        raise Vanished(
            "its supervisor does not answer",
            code="host-not-up",
            where=folder.name,
            next_step=f"Start it: linkwright lab up. See what runs: linkwright lab list. ({folder})",
        ) from None
    except TimeoutError:
        raise Busy(
            f"its supervisor has not finished {command!r} after {timeout_s:g} s",
            code="lab-timeout",
            where=folder.name,
            next_step=f"Look at it: linkwright lab list; {log}",
        ) from None
    except ConnectionError:
        data = b""
    if not data.endswith(b"\n"):
        raise Vanished(
            "its supervisor ended before it answered",
            code="host-not-up",
            where=folder.name,
            next_step=f"Look at what it said last: {log}",
        )
    answer: dict[str, Any] = json.loads(data)
    if "error" in answer:
        raise error_from_json(answer["error"])
    return answer


def _exchange(folder: Path, request: bytes, timeout_s: float) -> bytes:
    """The answer as it came; without a newline at the end it is not whole."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        with _short_path(folder) as path:
            sock.connect(path)
        sock.sendall(request)
        data = b""
        while not data.endswith(b"\n"):
            part = sock.recv(65536)
            if not part:
                break
            data += part
    return data


def error_from_json(body: dict[str, Any]) -> LinkwrightError:
    error = LinkwrightError(
        body.get("message", ""),
        code=body.get("code", "lab"),
        where=body.get("where", ""),
        next_step=body.get("next", ""),
    )
    error.kind = body.get("kind", "Error")
    return error
