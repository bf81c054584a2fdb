"""Stand-ins for the vendor's tools that replay recorded answers, for what the installed version cannot show:
another version's behaviour, and what must happen around a call (locks, waits, deaths)."""

from __future__ import annotations

import shlex
from pathlib import Path

from firmware_answers import PF

HELP_JSON = "-j|--json_format <file> : Save the query output to file in JSON format"


class ReplayTools:
    """Shell scripts in ``bin`` whose rules are tried in order; ``calls()`` lists the command lines so far."""

    def __init__(self, root: Path, version: str) -> None:
        self.bin = root / "bin"
        self.sys = root / "sys"
        self.run = root / "run"
        self._log = root / "calls"
        self._state = root / "state"
        self._rules: dict[str, list[str]] = {}
        self._count = 0
        for directory in (self.bin, self._state, self.sys / "bus/pci/devices" / PF):
            directory.mkdir(parents=True)
        (self.sys / "bus/pci/devices" / PF / "vendor").write_text("0x15b3\n")
        for tool in ("mstconfig", "mstreg", "mstfwreset"):
            self.rule(tool, "--version", f"{tool}, mstflint {version}.0, Git SHA Hash: N/A\n", log=False)
            self.rule(tool, "--help", HELP_JSON if version != "4.21" else "-e ", log=False)

    def rule(
        self, tool: str, pattern: str, text: str = "", *, code: int = 0, file: str | None = None, when: str = "",
        then: str = "", script: str = "", log: bool = True,
    ) -> None:  # fmt: skip
        """Answer command lines matching the glob ``pattern`` with ``text``; ``file`` goes where ``-j``/``-f``
        points; only ``when`` that state was set by an earlier rule's ``then``; ``script`` runs before it ends."""
        self._count += 1
        said = self._state / f"said-{self._count}"
        said.write_text(text)
        lines = [f"if [ -z {shlex.quote(when)} ] || [ -e {shlex.quote(str(self._state))}/{when or 'x'} ]; then"]
        lines.append(f'case "$*" in {pattern})')
        if log:
            lines.append(f'echo "{tool} $*" >> {shlex.quote(str(self._log))}')
        if file is not None:
            content = self._state / f"file-{self._count}"
            content.write_text(file)
            lines.append(f'cat {shlex.quote(str(content))} > "$out"')
        if then:
            lines.append(f"touch {shlex.quote(str(self._state))}/{then}")
        lines += [script, f"cat {shlex.quote(str(said))}; exit {code};; esac; fi"]
        self._rules.setdefault(tool, []).insert(0 if when else len(self._rules.get(tool, [])), "\n".join(lines))
        file_option = 'for a in "$@"; do case $prev in -j|-f) out=$a;; esac; prev=$a; done'
        head = ["#!/bin/sh", "prev=; out=/dev/null", file_option]
        tail = [f'echo "{tool} $*" >> {shlex.quote(str(self._log))}', 'echo "-E- no rule for $*"; exit 3']
        (self.bin / tool).write_text("\n".join([*head, *self._rules[tool], *tail]) + "\n")
        (self.bin / tool).chmod(0o755)

    def calls(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []
