"""docs/errors.md has a section for every reason code of the source, and none for a code that does not exist."""

from __future__ import annotations

import re

import pytest
from reason_codes import ROOT, codes

PARTS = ("Meaning", "How to see it in the lab", "What to do")
PAGE = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
SECTIONS = {
    title: body for title, _, body in (s.partition("\n") for s in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:])
}


def test_every_code_has_its_section() -> None:
    missing = {code: sorted(places) for code, places in codes().items() if code not in SECTIONS}
    assert not missing


def test_every_section_has_its_code() -> None:
    assert sorted(set(SECTIONS) - set(codes())) == []


def test_sections_are_in_order_and_there_once() -> None:
    titles = re.findall(r"^## (.*)$", PAGE, flags=re.MULTILINE)
    assert titles == sorted(set(titles))


@pytest.mark.parametrize("part", PARTS)
def test_every_section_says_everything(part: str) -> None:
    assert [title for title, body in SECTIONS.items() if not re.search(rf"\b{part}\b.{{0,4}} ?\S", body)] == []


def test_the_collector_sees_codes_in_every_form() -> None:
    """One example each: keyword, condition, default, table, parameter, f-string, positional field of a table."""
    found = codes()
    for code, module in (
        ("no-subnet-manager", "agent/verify.py"),
        ("container-unknown", "planner/attach.py"),
        ("invalid-input", "model/errors.py"),
        ("reset-secure-boot", "firmware/faults.py"),
        ("group-mode", "planner/groups.py"),
        ("address-refused", "targets/addressing.py"),
        ("port-protected", "planner/untouchable.py"),
    ):
        assert any(module in place for place in found[code]), code
