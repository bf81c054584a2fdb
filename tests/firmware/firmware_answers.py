"""The tools' own words, as the unmodified 4.21 and 4.31 printed them on emulated cards.

``data/<version>/<what>.txt``; ``.json`` for the file that ``-j`` wrote."""

from __future__ import annotations

from pathlib import Path

from linkwright.firmware.tool import Answer

DATA = Path(__file__).parent / "data"
VERSIONS = ("4.21", "4.31")
PF = "0000:3b:00.0"


def said(version: str, what: str, suffix: str = ".txt") -> str:
    return (DATA / version / f"{what}{suffix}").read_text()


def answer(text: str, code: int = 3, tool: str = "mstconfig") -> Answer:
    return Answer(command=(tool, "-d", PF, "query"), code=code, text=text)
