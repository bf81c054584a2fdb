"""A client of the agent's HTTP API on its unix socket, on the standard library (httpx costs 90 ms to import).

Every failure becomes a LinkwrightError that says what to type: the agent does not run, you may not talk to
it, it did not answer in time; and what the agent itself refused comes back as the error that it raised.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from linkwright.model.errors import (
    Busy,
    HardwareFault,
    InvalidInput,
    LinkwrightError,
    NeedsPerson,
    Refused,
    Vanished,
)

# A plan may ask every adapter's firmware first (0.1 to 1 s each on hardware), an apply waits for nothing more.
ANSWER_TIMEOUT_S = 60.0


class AgentAway(LinkwrightError):
    """The agent's socket is missing, closed, or was closed while it was read."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float | None) -> None:
        super().__init__("linkwright", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Agent:
    """The agent behind ``path``. One connection a request; a watch keeps its own until it is closed."""

    def __init__(self, path: Path, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self.path = path
        self.timeout_s = timeout_s

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Agent:
        return cls(Path(environ.get("LINKWRIGHT_RUN", "/run/linkwright")) / "agent.sock")

    def runs(self) -> bool:
        """Does something listen there? False also when it may not be asked: then reading goes its own way."""
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            probe.settimeout(self.timeout_s)
            probe.connect(str(self.path))
        except OSError:
            return False
        finally:
            probe.close()
        return True

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None)

    def post(self, path: str, body: Any) -> Any:
        return self._ask("POST", path, body)

    def delete(self, path: str) -> Any:
        return self._ask("DELETE", path, None)

    def watch(self, after: int | None = None) -> tuple[Iterator[Any], Callable[[], None]]:
        """Progress events after number ``after`` (None: from now on) until the agent closes, and what ends the
        reading from another thread. The iterator raises AgentAway when the connection breaks; an orderly end
        just ends it."""
        path = "/v1/watch" if after is None else f"/v1/watch?after={after}"
        connection, response = self._open("GET", path, None, None)

        def events() -> Iterator[Any]:
            try:
                for raw in response:
                    if raw.strip():
                        yield json.loads(raw)
            except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
                raise self._away(f"the connection to the agent broke: {error}") from error
            finally:
                connection.close()

        def stop() -> None:
            if connection.sock is not None:
                try:
                    connection.sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    connection.close()

        return events(), stop

    def _ask(self, method: str, path: str, body: Any) -> Any:
        connection, response = self._open(method, path, body, self.timeout_s)
        try:
            text = response.read()
        except TimeoutError as error:
            raise self._late() from error
        except (OSError, http.client.HTTPException) as error:
            raise self._away(f"the agent went away before it answered: {error}") from error
        finally:
            connection.close()
        if response.status == 204 or not text.strip():
            return None
        try:
            return json.loads(text)
        except ValueError as error:
            raise LinkwrightError(
                "answered something that is not JSON",
                code="agent-answer",
                where=str(self.path),
                next_step="Is another program listening there? Look: systemctl status linkwright",
            ) from error

    def _open(
        self, method: str, path: str, body: Any, timeout_s: float | None
    ) -> tuple[_Connection, http.client.HTTPResponse]:
        connection = _Connection(self.path, timeout_s)
        headers = {"Accept": "application/json", "User-Agent": f"linkwright-cli ({user()})"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            refusal = response.read() if response.status >= 400 else b""
        except TimeoutError as error:
            connection.close()
            raise self._late() from error
        except (FileNotFoundError, ConnectionRefusedError) as error:
            connection.close()
            raise self._away("the agent does not run") from error
        except PermissionError as error:
            connection.close()
            raise LinkwrightError(
                "you may not talk to the agent: its socket is for root and the group linkwright",
                code="agent-permission",
                where=str(self.path),
                next_step="Use sudo, or join the group: usermod -aG linkwright USER, then log in again.",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._away(f"the agent went away before it answered: {error}") from error
        if response.status >= 400:
            connection.close()
            raise error_of(response.status, refusal)
        return connection, response

    def _away(self, what: str) -> AgentAway:
        return AgentAway(
            what,
            code="agent-not-running",
            where=str(self.path),
            next_step="Start it: systemctl start linkwright (or, in the foreground: linkwright agent).",
        )

    def _late(self) -> LinkwrightError:
        return Busy(
            f"the agent did not answer within {self.timeout_s:g} s",
            code="agent-timeout",
            where=str(self.path),
            next_step="A slow card may keep it busy. Look: journalctl -u linkwright -n 50",
        )


def user() -> str:
    """Who types this; only for the agent's log: it takes the caller's uid from the socket itself."""
    return os.environ.get("SUDO_USER") or f"uid {os.getuid()}"


def error_of(status: int, body: bytes) -> LinkwrightError:
    """The error that the agent answered, as the class it was raised as: the reverse of LinkwrightError.to_json."""
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict) or "message" not in said:
        text = body.decode(errors="replace").strip()[:200] or "no text"
        return LinkwrightError(
            f"the agent answered HTTP {status}: {text}",
            code="agent-answer",
            next_step="Look: journalctl -u linkwright -n 50",
        )
    message = str(said["message"])
    code, where, following = (str(said.get(key) or "") for key in ("code", "where", "next"))
    match said.get("kind"):
        case "Refused":
            return Refused(
                message,
                rule=int(said.get("rule") or 0),
                code=code,
                where=where,
                holder=str(said.get("holder") or ""),
                next_step=following,
            )
        case "Waiting":
            return NeedsPerson(message, code=code, where=where, next_step=following)
        case "Busy":
            return Busy(message, code=code, where=where, next_step=following)
        case "Vanished":
            return Vanished(message, code=code, where=where, next_step=following)
        case "FAILED":
            return HardwareFault(
                message,
                code=code,
                where=where,
                said=str(said.get("said") or ""),
                command=str(said.get("command") or ""),
                next_step=following,
            )
    if "field" in said:
        return InvalidInput(message, code=code, where=where, field=str(said["field"] or ""), next_step=following)
    return LinkwrightError(message, code=code, where=where, next_step=following)
