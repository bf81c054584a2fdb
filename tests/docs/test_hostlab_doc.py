"""docs/hostlab.md is true: its host file is read; every fault, persona, command and field of the lab is in it."""

from __future__ import annotations

import re
from pathlib import Path

from hostlab import faults, personas, spec
from hostlab.cli import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/hostlab.md").read_text(encoding="utf-8")


def test_the_example_host_file_is_read() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    host = spec.parse(text, "docs/hostlab.md")
    assert [a["address"] for a in host["adapters"]] == ["0000:3b:00", "0000:81:00"]


def test_every_fault_is_listed_with_what_it_is_of() -> None:
    rows = re.findall(r"^\| (card|adapter|host|fabric) \| `(\w+)` \|", PAGE, flags=re.MULTILINE)
    assert sorted(rows) == sorted((kind, name) for kind, names in faults.known().items() for name in names)


def test_every_persona_is_listed() -> None:
    listing = re.search(r"# linkwright lab personas\n(.*?)```", PAGE, flags=re.DOTALL)
    assert listing is not None
    assert [line.split()[0] for line in listing[1].splitlines()[1:-1]] == personas.names()


def test_every_command_is_listed() -> None:
    commands = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    assert set(re.findall(r"^\| `lab (\w+)", PAGE, flags=re.MULTILINE)) == commands


def test_every_field_of_the_host_file_is_described() -> None:
    fields = {
        field.encode_name
        for struct in (spec.HostFile, spec.Adapter, spec.Port, spec.Fabric)
        for field in spec.msgspec.structs.fields(struct)
    } - {"fabrics", "adapters", "ports"}
    described = set(re.findall(r"^\| `[\w.\[\]]*?(\w+)` \|", PAGE, flags=re.MULTILINE))
    assert fields <= described
