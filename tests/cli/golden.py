"""Compare a screen with the one that was looked at and found right (golden/NAME.txt).

``LINKWRIGHT_GOLDEN=write pytest tests/cli`` writes them anew: read the difference before it is committed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from linkwright.cli.render.text import Line, paint

FOLDER = Path(__file__).parent / "golden"


def check(name: str, lines: Iterable[Line]) -> None:
    text = paint(lines, colour=False)
    path = FOLDER / f"{name}.txt"
    if os.environ.get("LINKWRIGHT_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()
