from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from replay_tools import ReplayTools


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ReplayTools]:
    def make(version: str) -> ReplayTools:
        tools = ReplayTools(tmp_path, version)
        monkeypatch.setenv("PATH", f"{tools.bin}:{os.environ['PATH']}")
        return tools

    return make
