"""Run the tests and end with one plain line, ``N passed, N failed, N skipped``, whatever pytest's version prints.

Errors (a fixture or an import that fails) count as failed; no test at all is a failure too.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", "-o", "junit_logging=no", *arguments]
        code = subprocess.run(command, check=False).returncode
        passed, failed, skipped = counts(report) if report.exists() else (0, 1, 0)
    if code != 0 and failed == 0:
        failed = 1  # pytest itself failed: wrong usage, interrupted, nothing collected
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def counts(report: Path) -> tuple[int, int, int]:
    """Passed, failed and skipped tests of a JUnit report; a test with a failure and an error counts once."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
