"""docs/method.md names only modules and tests that exist, and has every step of the method with both."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/method.md").read_text(encoding="utf-8")
STEPS = {
    title: body for title, _, body in (s.partition("\n") for s in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:])
}
TESTS = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("step", ["S1", "S2", "S21", "S221", "S222", "PF or VF", "1:N", "S3", "S4", "The choice"])
def test_each_step_names_its_modules_and_its_tests(step: str) -> None:
    body = next(body for title, body in STEPS.items() if title == step or title.startswith(f"{step}:"))
    assert re.search(r"`src/linkwright/[\w/]+\.py`", body)
    assert re.search(r"`tests/[\w/]+\.py::test_\w+`", body)


def test_every_module_is_there() -> None:
    named = set(re.findall(r"`((?:src|packaging)/[\w/.-]+)`", PAGE))
    assert sorted(path for path in named if not (ROOT / path).is_file()) == []


@pytest.mark.parametrize(("path", "name"), TESTS, ids=[name for _, name in TESTS])
def test_every_test_is_there(path: str, name: str) -> None:
    assert name in functions(ROOT / path)
