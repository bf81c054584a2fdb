"""Known failures of similar tools: the table of tests/README.md names tests that exist; small ones are here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from linkwright.model.errors import InvalidInput
from linkwright.model.load import load_documents
from linkwright.store import Store

TESTS = Path(__file__).parents[1]
FILE = re.compile(r"\b([a-z]+/test_\w+\.py)")
NAME = re.compile(r"`(test_\w+)`")


def test_every_test_of_the_table_exists():
    page = (TESTS / "README.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "test_" in line]
    assert len(rows) >= 20
    defined = {path: set(re.findall(r"^def (test_\w+)", path.read_text(), re.M)) for path in TESTS.glob("*/*.py")}
    every = set().union(*defined.values())
    for row in rows:
        assert [file for file in FILE.findall(row) if not (TESTS / file).is_file()] == []
        assert [name for name in NAME.findall(row) if name not in every] == []


def _target(name: str) -> str:
    return f"""
apiVersion: linkwright.dev/v1alpha1
kind: Target
metadata: {{name: a}}
spec: {{policy: p, container: {{name: a}}, interfaces: [{{name: {name}}}]}}
"""


def test_a_name_of_16_characters_is_refused_with_its_length_and_15_are_taken():
    """IFNAMSIZ is 16 with the final zero (include/uapi/linux/if.h); cut, two targets may get one name."""
    load_documents(_target("a" * 15), "f.yaml")
    with pytest.raises(InvalidInput, match="has 16 characters; Linux allows 15"):
        load_documents(_target("a" * 16), "f.yaml")


WRITES = """
import sys
from pathlib import Path
from linkwright.model.errors import NeedsPerson
from linkwright.store import Store
try:
    Store(Path(sys.argv[1])).freeze("somebody")
except NeedsPerson as error:
    print(error.code, error.message)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_a_state_file_on_a_read_only_file_system_is_said(tmp_path: Path) -> None:
    Store(tmp_path / "state.db").close()
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" -c "$3" "$1/state.db"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, WRITES],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("state-unwritable ")
    assert "nothing is changed on this host" in done.stdout
