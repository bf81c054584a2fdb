"""Commands to a real host, from outside: the other end of ``guest/channel.py``, over the socket that QEMU gives
the port.

QEMU serves one connection at a time; whoever comes second waits until the first has its answer. A connection lasts
for one request, so that several programs can use one host.
"""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from linkwright.model.errors import LinkwrightError, Vanished

PORT = "org.linkwright.lab"
_ASK_AGAIN_S = 3.0


class Channel:
    """``path``: the socket. ``name``: of the host, for messages."""

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name

    def wait_up(self, limit_s: float, *, not_boot: str | None = None) -> dict[str, Any]:
        """Wait until the host answers, and with another boot id than ``not_boot``. Returns what it says of itself:
        ``hello`` (the boot id), ``kernel``, ``uptime_s``. Raises Vanished(host-does-not-answer, host-is-off)."""
        end = time.monotonic() + limit_s
        with self._connected(limit_s) as (sock, lines):
            while True:
                # A question that reaches a host on its way down is lost; the next boot says hello by itself.
                sock.sendall(b'\n{"op": "hello"}\n')
                again = time.monotonic() + _ASK_AGAIN_S
                while (now := time.monotonic()) < min(again, end):
                    sock.settimeout(min(again, end) - now)
                    try:
                        said = next(lines)
                    except TimeoutError:
                        break
                    except StopIteration:
                        raise Vanished("it went off", code="host-is-off", where=self._name) from None
                    if said.get("hello", not_boot) != not_boot:
                        return said
                if time.monotonic() >= end:
                    raise Vanished(
                        f"it did not answer within {limit_s:.0f} s", code="host-does-not-answer", where=self._name,
                        next_step="Look at its console.",
                    )  # fmt: skip

    def exec(
        self,
        command: Sequence[str],
        *,
        check: bool = True,
        stdin: str = "",
        environ: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``command`` as root and wait. Raises LinkwrightError: command-failed when ``check`` and it fails,
        command-late when the limit ran out (it is killed), Vanished when the host is off."""
        answer = self._ask(
            timeout_s + 60, op="exec", argv=list(command), stdin=_b64(stdin.encode()), environ=dict(environ or {}),
            timeout_s=timeout_s,
        )  # fmt: skip
        out, err = (base64.b64decode(answer[key]).decode(errors="replace") for key in ("out", "err"))
        if answer["late"]:
            raise LinkwrightError(
                f"{' '.join(command)}: not done within {timeout_s:.0f} s: {(out + err).strip()[-500:]}",
                code="command-late", where=self._name,
            )  # fmt: skip
        if check and answer["rc"] != 0:
            raise LinkwrightError(
                f"{' '.join(command)}: exit {answer['rc']}: {(err or out).strip()}", code="command-failed",
                where=self._name,
            )  # fmt: skip
        return subprocess.CompletedProcess(list(command), answer["rc"], out, err)

    def put(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file inside, with the folders above it."""
        self._ask(60, op="put", path=path, data=_b64(text.encode()), mode=mode)

    def get(self, path: str) -> str:
        """Read a file inside."""
        return base64.b64decode(self._ask(60, op="get", path=path)["data"]).decode(errors="replace")

    def _ask(self, limit_s: float, **request: Any) -> dict[str, Any]:
        number = time.monotonic_ns()
        with self._connected(limit_s) as (sock, lines):
            # The first line end closes what a sender before us may have left unfinished.
            sock.sendall(b"\n" + json.dumps(request | {"id": number}).encode() + b"\n")
            sock.settimeout(limit_s)
            try:
                answer = next(said for said in lines if said.get("id") == number)
            except (TimeoutError, StopIteration) as problem:
                raise Vanished(
                    f"no answer to {request['op']} {request.get('argv') or request.get('path')}",
                    code="host-does-not-answer", where=self._name, next_step="Look at its console.",
                ) from problem  # fmt: skip
        if "error" in answer:
            raise LinkwrightError(answer["error"], code="command-failed", where=self._name)
        return answer

    @contextmanager
    def _connected(self, limit_s: float) -> Iterator[tuple[socket.socket, Iterator[dict[str, Any]]]]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock:
            sock.settimeout(limit_s)
            try:
                sock.connect(str(self._path))
            except (FileNotFoundError, ConnectionRefusedError) as problem:
                raise Vanished(
                    "it is off", code="host-is-off", where=self._name, next_step="linkwright lab up --real"
                ) from problem
            yield sock, _Lines(sock)


class _Lines:
    """The messages that come; goes on after a TimeoutError, which a generator would not."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._left = b""
        self._said: deque[dict[str, Any]] = deque()

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> dict[str, Any]:
        while not self._said:
            data = self._sock.recv(1 << 16)
            if not data:
                raise StopIteration
            *lines, self._left = (self._left + data).split(b"\n")
            for line in lines:
                try:
                    self._said.append(json.loads(line))
                except ValueError:
                    continue  # the end of an answer to somebody who did not wait for it
        return self._said.popleft()


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
