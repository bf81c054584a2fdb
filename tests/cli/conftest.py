"""A small agent on a unix socket: answers what a test told it, and keeps what it was asked."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import samples

from linkwright.cli.main import main
from linkwright.model.errors import LinkwrightError

Reply = Any  # a JSON value, a LinkwrightError, or what makes one of the request's body


class FakeAgent:
    """``replies["GET /v1/status"]``; ``events`` are what /v1/watch sends before it ends or stays open."""

    def __init__(self, path: Path) -> None:
        self.replies: dict[str, Reply] = {"GET /v1/status": samples.status()}
        self.events: list[dict[str, Any]] = [{"seq": 1, "at": samples.NOW, "kind": "settled", "settled": True}]
        self.asked: list[tuple[str, Any]] = []
        self.after_watch: Callable[[], None] = lambda: None
        agent = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def address_string(self) -> str:
                return "unix"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def _do(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                path = self.path.partition("?")[0]
                agent.asked.append((f"{self.command} {self.path}", body))
                if path == "/v1/watch":
                    self.send_response(200)
                    self.send_header("Connection", "close")
                    self.end_headers()
                    for event in agent.events:
                        self.wfile.write(json.dumps(event).encode() + b"\n")
                        self.wfile.flush()
                    agent.after_watch()
                    self.close_connection = True
                    return
                reply = agent.replies.get(f"{self.command} {path}")
                reply = reply(body) if callable(reply) else reply
                status = 200
                if isinstance(reply, LinkwrightError):
                    status, reply = 409, reply.to_json()
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _do  # noqa: N815

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        self.server = Server(str(path), Handler)
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def bodies(self, what: str) -> list[Any]:
        return [body for asked, body in self.asked if asked.partition("?")[0] == what]


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No agent, no state and no configuration of the machine that runs the tests."""
    for name, folder in (("RUN", "run"), ("STATE", "state"), ("ETC", "etc")):
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(f"LINKWRIGHT_{name}", str(tmp_path / folder))
    for name in ("LINKWRIGHT_SYSROOT", "LINKWRIGHT_NETLINK", "COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    fake = FakeAgent(tmp_path / "run" / "agent.sock")
    yield fake
    fake.stop()


class Ran:
    """What a command printed, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """``run("status", "-o", "json")``."""

    def call(*argv: str) -> Ran:
        code = main(list(argv))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call
