"""One host for all of this folder; the rig stands on the same managed host as the jobs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "job"))

from rig import Rig

from hostlab.lab import Lab


@pytest.fixture(scope="session")
def rig(lab: Lab) -> Iterator[Rig]:
    """Without targets; each test leaves it so."""
    yield Rig(lab, "crash-sample")
    lab.down("crash-sample", erase=True)
