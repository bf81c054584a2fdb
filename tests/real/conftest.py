"""One real host for all tests of a run, started when the first asks for it; its console is shown with failed
tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostlab.layout import LabDirs
from hostlab.real.machine import RealHost

ASKED_FOR = "LINKWRIGHT_REAL"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(ASKED_FOR):
        return
    skip = pytest.mark.skip(reason="takes minutes under software emulation: make test-real")
    for item in items:
        if item.get_closest_marker("real"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHost]:
    """Up, with a disk of its own that was empty. LINKWRIGHT_REAL=keep leaves it running, below $LINKWRIGHT_LAB."""
    keep = os.environ.get(ASKED_FOR) == "keep"
    directory = None if keep else tmp_path_factory.mktemp("lab", numbered=False)
    real = RealHost(LabDirs.find(directory).host("real-01"), lambda text: print(f"\n{text}"))
    if not (keep and real.pid()):
        real.up(fresh=True)
    yield real
    if not keep:
        real.down()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    real = getattr(item, "funcargs", {}).get("host")
    if isinstance(real, RealHost) and report.failed and real.dirs.console_log.exists():  # type: ignore[attr-defined]
        text = real.dirs.console_log.read_text(errors="replace")
        report.sections.append(("console of the host", text[-8000:]))  # type: ignore[attr-defined]
    return report


@pytest.fixture(scope="session")
def console_log(host: RealHost) -> Path:
    return host.dirs.console_log
