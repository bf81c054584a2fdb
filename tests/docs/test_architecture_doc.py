"""docs/architecture.md is true: its layers are the packages there are, and imports go downward only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/linkwright"
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
LAYERS = re.findall(r"^\| `(\w+)/` \|", PAGE, flags=re.MULTILINE)


def imports(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports, also inside functions."""
    package = ("linkwright", *path.relative_to(SOURCE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *([node.module] if node.module else [])))
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def test_every_package_is_a_layer() -> None:
    assert sorted(LAYERS) == sorted(p.parent.name for p in SOURCE.glob("*/__init__.py"))


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_go_downward_only(layer: str) -> None:
    above = {f"linkwright.{name}" for name in LAYERS[: LAYERS.index(layer)]}
    upward = {
        f"{path.relative_to(SOURCE)}: {name}"
        for path in (SOURCE / layer).rglob("*.py")
        for name in imports(path)
        if name.startswith("hostlab") or ".".join(name.split(".")[:2]) in above
    }
    assert upward == set()


def test_modules_that_are_named_are_there() -> None:
    named = re.findall(rf"\b((?:{'|'.join(LAYERS)})/[\w/]+\.py)\b", PAGE)
    assert named
    assert [name for name in named if not (SOURCE / name).is_file()] == []
