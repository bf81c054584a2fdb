"""Fixtures with emulated hosts: one shared by a test session, and a factory for tests that need their own.

Loaded for all tests by ``conftest.py``. Tests that use them are marked ``lab``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hostlab import needs, spec
from hostlab.lab import Host, Lab
from linkwright.model.errors import LinkwrightError

StartHost = Callable[..., Host]


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab in a temporary folder; whatever is still up at the end is taken down and erased."""
    try:
        needs.check()
    except LinkwrightError as error:
        pytest.skip(f"no emulated hosts here: {error}")
    found = Lab(tmp_path_factory.mktemp("lab"))
    yield found
    for host in found.hosts():
        found.down(host.name, erase=True)


@pytest.fixture(scope="session")
def lab_spec() -> dict[str, Any]:
    """The packaged host file gpu-01, read."""
    return spec.load(spec.find("gpu-01"))


@pytest.fixture(scope="session")
def lab_host(lab: Lab, lab_spec: dict[str, Any]) -> Host:
    """gpu-01 with three adapters and without an agent, for tests that leave it running as they found it."""
    return lab.up(lab_spec)


@pytest.fixture
def start_host(lab: Lab, lab_spec: dict[str, Any]) -> Iterator[StartHost]:
    """``start_host(name, **fields)``: a host of one's own; fields replace those of gpu-01's. Erased afterwards."""
    names: list[str] = []

    def start(name: str, **fields: Any) -> Host:
        names.append(name)
        return lab.up(copy.deepcopy(lab_spec) | {"name": name} | fields)

    yield start
    for name in names:
        lab.down(name, erase=True)
