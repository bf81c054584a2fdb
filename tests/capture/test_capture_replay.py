"""A capture carries a host file, and an emulated host made from it shows the same cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hostlab import spec
from hostlab.lab import Host, Lab


def _ports(host: Host) -> dict[str, tuple[Any, ...]]:
    inventory = json.loads(host.exec(["linkwright", "nics", "-o", "json"]).stdout)["inventory"]
    return {
        port["id"]: (
            port["next_mode"], port["current_mode"], port["observed_mode"], port["can_change"], port["total_vfs"],
            adapter["identity"]["part_number"], adapter["identity"]["psid"], adapter["identity"]["model"],
        )
        for adapter in inventory["adapters"]
        for port in adapter["ports"]
    }  # fmt: skip


@pytest.mark.lab
def test_an_emulated_host_replays_a_capture(lab: Lab, lab_host: Host, tmp_path: Path) -> None:
    lab_host.exec(["linkwright", "capture", "/srv/replay.capture"])
    try:
        host_file = spec.load(lab_host.dirs.disk / "srv/replay.capture/lab.yaml")
    finally:
        lab_host.exec(["rm", "-rf", "/srv/replay.capture"])
    replay = lab.up(host_file | {"name": "replay"})
    try:
        assert _ports(replay) == _ports(lab_host)
    finally:
        lab.down("replay", erase=True)


def test_a_persona_written_out_is_checked_like_the_rest() -> None:
    from linkwright.model.errors import InvalidInput

    text = """
name: gpu-01
adapters:
- {address: "0000:3b:00", persona: {name: x, model: ConnectX, link_modes: [Token Ring]}}
"""
    with pytest.raises(InvalidInput) as caught:
        spec.parse(text, "host.yaml")
    assert caught.value.code == "bad-persona"
    assert "adapters[0].persona" in str(caught.value.field)
