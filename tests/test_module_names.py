"""Test modules are imported by their bare name, so that two of one name hide each other: pytest then drops one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent


def test_every_test_module_has_a_name_of_its_own() -> None:
    names = Counter(path.name for path in HERE.rglob("*.py") if path.name not in ("conftest.py", "__init__.py"))
    assert [name for name, count in names.items() if count > 1] == []
