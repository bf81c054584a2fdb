"""A fresh lab for each test: the test's own thread stands in a new "host" network namespace."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from netlab import Lab, host_namespace


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with host_namespace():
        made = Lab(tmp_path)
        try:
            yield made
        finally:
            made.close()
