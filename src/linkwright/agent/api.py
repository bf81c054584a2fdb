"""HTTP on the agent's unix socket: JSON in, JSON out, one NDJSON stream. Translation only; see requests.py.

Whoever can connect may ask (socket mode 0660, group linkwright); who it was is read from the peer's
credentials (SO_PEERCRED) and stands in the history. uvicorn does not hand these on: hence PeerProtocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..model.errors import Busy, InvalidInput, LinkwrightError, NeedsPerson, Refused, Vanished
from . import auditing
from .requests import Requests
from .status import status
from .world import World

GROUP = "linkwright"
MOST_BYTES = 4 << 20  # a request body; a thousand documents are far below
_HTTP = (
    (InvalidInput, 422),
    (Refused, 409),
    (NeedsPerson, 409),
    (Busy, 503),
    (Vanished, 404),
    (LinkwrightError, 500),
)


class PeerProtocol(H11Protocol):
    """Puts ``(uid, pid)`` of the peer where ASGI keeps the client address."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = transport.get_extra_info("socket")
        raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", raw)
        self.client = (f"uid {uid} ({_command(pid)}pid {pid})", uid)


def _command(pid: int) -> str:
    """``linkwright, `` or ``curl, ``: the peer's own name for itself, while it lives."""
    try:
        return f"{Path(f'/proc/{pid}/comm').read_text().strip()}, "
    except OSError:
        return ""


def application(world: World) -> Starlette:
    """Every route; handlers that look at the host run in worker threads."""
    requests = Requests(world)

    def route(path: str, method: str, work: Callable[[Request, dict[str, Any], str], Any]) -> Route:
        async def endpoint(request: Request) -> Response:
            who = request.client.host if request.client else "unknown"
            try:
                body = await _body(request) if method == "POST" else {}
                return _json(await run_in_threadpool(work, request, body, who))
            except LinkwrightError as error:
                code = next(c for kind, c in _HTTP if isinstance(error, kind))
                return _json(error.to_json(), code)

        return Route(path, endpoint, methods=[method])

    def nics(request: Request, body: dict[str, Any], who: str) -> dict[str, Any]:
        question = world.look()
        return {
            "inventory": question.inventory,
            "decisions": world.plan.decisions if world.plan else (),
            "allow": question.desired.host.spec.allow,
        }

    async def watch(request: Request) -> StreamingResponse:
        after = int(request.query_params.get("after", world.progress.last))
        return StreamingResponse(_events(world, after, request), media_type="application/x-ndjson")

    return Starlette(
        routes=[
            route("/v1/status", "GET", lambda r, b, w: status(world)),
            route("/v1/nics", "GET", nics),
            route("/v1/history", "GET", lambda r, b, w: {"history": world.store.history(_limit(r))}),
            Route("/v1/watch", watch, methods=["GET"]),
            route("/v1/plan", "POST", lambda r, b, w: requests.plan(_list(b, "documents"))),
            route(
                "/v1/apply",
                "POST",
                lambda r, b, w: requests.apply(
                    _list(b, "documents"), _list(b, "approvals", str), w, _text(b, "why")
                ),
            ),
            route(
                "/v1/approve",
                "POST",
                lambda r, b, w: requests.approve(
                    _text(b, "policy") or None, _list(b, "keys", str), w, _text(b, "why")
                ),
            ),
            route("/v1/audit", "GET", lambda r, b, w: auditing.findings(world)),
            route(
                "/v1/audit",
                "POST",
                lambda r, b, w: auditing.repair(world, _list(b, "keys", str), w, _text(b, "why")),
            ),
            route("/v1/uninstall", "GET", lambda r, b, w: requests.uninstall_offer()),
            route(
                "/v1/uninstall",
                "POST",
                lambda r, b, w: requests.uninstall(_text(b, "key"), w, _text(b, "why")),
            ),
            route("/v1/retry", "POST", lambda r, b, w: requests.retry(_text(b, "policy"), w, _text(b, "why"))),
            route("/v1/freeze", "POST", lambda r, b, w: requests.freeze(True, w, _text(b, "why"))),
            route("/v1/unfreeze", "POST", lambda r, b, w: requests.freeze(False, w, _text(b, "why"))),
            route(
                "/v1/adapters/replace",
                "POST",
                lambda r, b, w: requests.replace_adapter(_text(b, "pci"), w, _text(b, "why")),
            ),
            route(
                "/v1/policies/{name}",
                "DELETE",
                lambda r, b, w: requests.delete("LinkPolicy", r.path_params["name"], w, _query(r, "why")),
            ),
            route(
                "/v1/targets/{name}",
                "DELETE",
                lambda r, b, w: requests.delete("Target", r.path_params["name"], w, _query(r, "why")),
            ),
        ]
    )


class Server:
    """uvicorn in a thread of its own, on a unix socket with mode 0660."""

    def __init__(self, world: World, path: Path) -> None:
        self._path = path
        config = uvicorn.Config(
            application(world),
            http=PeerProtocol,
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="api", daemon=True)
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Bind and serve; the socket accepts connections when this returns."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        old = os.umask(0o117)
        try:
            listener.bind(os.fspath(self._path))
        finally:
            os.umask(old)
        with contextlib.suppress(KeyError, PermissionError):
            os.chown(self._path, -1, grp.getgrnam(GROUP).gr_gid)
        listener.listen(128)
        self._socket = listener
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(3)
        self._path.unlink(missing_ok=True)

    def _run(self) -> None:
        assert self._socket is not None
        asyncio.run(self._server.serve(sockets=[self._socket]))


async def _events(world: World, after: int, request: Request) -> AsyncIterator[bytes]:
    while not world.wakeups.stopping:
        events = await run_in_threadpool(world.progress.after, after, 1.0)
        if not events:
            if await request.is_disconnected():
                return
            continue
        for event in events:
            after = event.seq
            yield msgspec.json.encode(event) + b"\n"


async def _body(request: Request) -> dict[str, Any]:
    raw = b""
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MOST_BYTES:
            raise InvalidInput(f"the request is larger than {MOST_BYTES} bytes", code="request-too-large")
    try:
        body = msgspec.json.decode(raw or b"{}")
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the request is not JSON: {error}", code="request-not-json") from None
    if not isinstance(body, dict):
        raise InvalidInput("the request is not a JSON object", code="request-not-json")
    return cast(dict[str, Any], body)


def _json(value: Any, code: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=code, media_type="application/json")


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name) or ""
    if not isinstance(value, str):
        raise InvalidInput("must be text", field=name)
    return value


def _list(body: dict[str, Any], name: str, kind: type = object) -> list[Any]:
    value = body.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise InvalidInput(f"must be a list{' of texts' if kind is str else ''}", field=name)
    return value


def _query(request: Request, name: str) -> str:
    return request.query_params.get(name, "")


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", "100")
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise InvalidInput(f"{text!r} is not a number from 1 to 10000", field="limit")
    return int(text)
