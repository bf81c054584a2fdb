"""Every relative link of the pages leads somewhere, and every path in backticks that looks like a file is one.

A path counts when its first part is a folder of this repository (``src/…``, ``tests/…``, ``docs/…``); other words
in backticks are names, commands, or files of a host.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
FOLDERS = ("src", "tests", "docs", "scripts", "packaging", "benchmarks", "examples", ".ci")


def prose(page: Path) -> str:
    """The page without its fenced blocks: those show commands and output."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """As the usual renderers make them: small letters, punctuation dropped, blanks to hyphens."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_paths_in_backticks_are_there(page: Path) -> None:
    gone = []
    for word in re.findall(r"`([^`\n]+)`", prose(page)):
        path = word.partition("::")[0].rstrip("/")
        looks_like_one = re.fullmatch(r"[\w.-]+(/[\w.-]+)+", path) and path.split("/")[0] in FOLDERS
        if looks_like_one and not (ROOT / path).exists():
            gone.append(word)
    assert gone == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages == set(re.findall(r"\]\(([\w-]+\.md)\)", index))
