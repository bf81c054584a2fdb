"""Reading other tools' files: bounded, and nothing raised for what is missing, odd or forbidden."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

MOST = 256 << 10  # bytes read of one file


def text(path: Path) -> str:
    """The file's text; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MOST).decode(errors="replace")
    except OSError:
        return ""


def files(root: Path, folder: str, pattern: str) -> Iterator[Path]:
    """Files of a folder by name, sorted; those of Linkwright itself are left out."""
    try:
        found = sorted((root / folder).glob(pattern))
    except OSError:
        return
    for path in found:
        if "linkwright" not in path.name and path.is_file():
            yield path


def shown(root: Path, path: Path) -> str:
    """The path as a person on the host types it."""
    return f"/{path.relative_to(root)}"


def lines(content: str, comment: str = "#") -> Iterator[str]:
    """Lines with continuation lines joined, without comments and blank ones."""
    for line in content.replace("\\\n", " ").splitlines():
        if (stripped := line.strip()) and not stripped.startswith(comment):
            yield stripped


def sections(content: str) -> list[tuple[str, dict[str, list[str]]]]:
    """An ini file as networkd and NetworkManager read it: sections may repeat, and so may keys. Empty when it is
    none."""
    found: list[tuple[str, dict[str, list[str]]]] = []
    for line in lines(content):
        if line.startswith("[") and line.endswith("]"):
            found.append((line[1:-1], {}))
        elif found and "=" in line and not line.startswith(";"):
            key, _, value = line.partition("=")
            found[-1][1].setdefault(key.strip(), []).append(value.strip())
    return found
