"""Any request to the agent's API: an answer of ours in JSON, and no effect unless it succeeded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from test_fuzz_documents import JSON, mutated

from linkwright.agent.api import application
from linkwright.agent.world import World
from linkwright.kernel.netlink.transport import NoTransport
from linkwright.kernel.system import System
from linkwright.store import Store

ROUTES = ("plan", "apply", "approve", "retry", "freeze", "unfreeze")
FIELDS = st.sampled_from(["documents", "approvals", "keys", "policy", "why", "x"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A host without cards, as a captured tree."""
    root = tmp_path_factory.mktemp("host")
    for folder in ("sys/bus/pci/devices", "proc", "dev", "etc"):
        (root / folder).mkdir(parents=True)
    system = System(
        sys=root / "sys", proc=root / "proc", dev=root / "dev", etc=root / "etc", run=root / "run",
        state=root / "state", netlink=NoTransport(), captured=True,
    )  # fmt: skip
    store = Store(Path(root / "state" / "state.db"))
    yield World(system, store)
    store.close()


def stored(world: World) -> Any:
    store = world.store
    return store.policies(), store.targets(), store.approvals(), store.frozen_by(), store.history(10_000)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    route=st.sampled_from(ROUTES),
    body=st.dictionaries(FIELDS, JSON | st.lists(mutated() | JSON, max_size=2), max_size=3),
)
def test_any_body(world: World, route: str, body: dict[str, Any]) -> None:
    before = stored(world)
    with TestClient(application(world)) as client:
        answer = client.post(f"/v1/{route}", json=_finite(body))
    said = answer.json()
    if answer.status_code != 200:
        assert 400 <= answer.status_code < 500, said
        assert said["code"]
        assert said["message"]
        assert stored(world) == before
    world.store.unfreeze()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=200), route=st.sampled_from(ROUTES))
def test_any_bytes(world: World, raw: bytes, route: str) -> None:
    with TestClient(application(world)) as client:
        answer = client.post(f"/v1/{route}", content=raw)
    assert answer.status_code < 500, answer.text
    world.store.unfreeze()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(min_size=1, max_size=30), query=st.text(max_size=20))
def test_any_name_and_query(world: World, name: str, query: str) -> None:
    from urllib.parse import quote

    with TestClient(application(world)) as client:
        for method, path in (
            ("DELETE", f"/v1/policies/{quote(name, safe='')}"), ("GET", f"/v1/history?limit={quote(query)}"),
        ):  # fmt: skip
            assert client.request(method, path).status_code < 500


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and value - value != 0 else value
