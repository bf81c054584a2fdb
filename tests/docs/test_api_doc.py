"""docs/api.md has every route of the agent, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

from linkwright.agent.api import application

PAGE = (Path(__file__).parents[2] / "docs/api.md").read_text(encoding="utf-8")


def routes() -> set[tuple[str, str]]:
    """Method and path of each; the routes are made without looking at the world."""
    found = cast(Any, application(cast(Any, None))).routes
    return {(method, route.path) for route in found for method in route.methods if method != "HEAD"}


def test_the_table_lists_every_route() -> None:
    assert set(re.findall(r"^\| `(GET|POST|DELETE) (/v1/[\w/{}]+)` \|", PAGE, flags=re.MULTILINE)) == routes()


def test_every_route_has_its_chapter() -> None:
    heads = re.findall(r"^## (.*)$", PAGE, flags=re.MULTILINE)
    assert {pair for head in heads for pair in re.findall(r"(GET|POST|DELETE) (/v1/[\w/{}]+)", head)} == routes()
