"""Cards that are not like the others, all on one host without an agent: what `nics` and `plan` say of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from managed import HOST_YAML, policy

from hostlab import disk
from hostlab.lab import Host, Lab

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("job-owners-cards")]

SLOTS = {
    "cx6-vpi-p1": "0000:10:00",
    "cx6-socket-direct": "0000:20:00",
    "cx5-vpi-4vfs": "0000:30:00",
    "cx6dx-roce-off": "0000:40:00",
    "bf3-dpu": "0000:50:00",
}
OFFICE = "0000:81:00.0"
LIMIT_S = 300.0  # seven cards are asked by the vendor's tool, each in a second or many on a busy machine


@pytest.fixture(scope="module")
def host(lab: Lab, lab_spec: dict[str, Any]) -> Iterator[Host]:
    rail = [{"fabric": "rail-0"}, {"fabric": "rail-0"}]
    cards: list[dict[str, Any]] = [
        {"persona": name, "address": slot, "ports": rail[: 1 + ("direct" not in name)], "serial": "MT2331X00001"}
        for name, slot in SLOTS.items()
    ]
    cards[1]["connectors"] = ["0000:a0:00"]
    cards[0]["ports"] = [rail[0], {"fabric": "rail-0", "address": "0001:10:00.0"}]
    kept = [adapter for adapter in lab_spec["adapters"] if not adapter["address"].startswith("0000:5e")]
    dirs = lab.host("cards").dirs
    disk.prepare(dirs.disk, "cards")
    dirs.etc.mkdir(exist_ok=True)
    (dirs.etc / "host.yaml").write_text(HOST_YAML)
    yield lab.up(lab_spec | {"name": "cards", "adapters": [*kept, *cards]})
    lab.down("cards", erase=True)


def selecting(name: str, mode: str, selector: str) -> str:
    return policy(mode, name=name).replace('{pciAddresses: ["0000:3b:00.0"]}', selector)


def planned(host: Host, *documents: str) -> Any:
    file = "/run/documents/all.yaml"
    host.write(file, "---".join(documents))
    done = host.exec(["linkwright", "plan", "-f", file, "-o", "json"], check=False, timeout_s=LIMIT_S)
    made = json.loads(done.stdout)
    return made.get("plan", made)


def said(made: Any, code: str) -> list[str]:
    return [p["text"] for p in made["problems"] if p["code"] == code]


def test_each_kind_of_card_is_shown_as_what_it_is(host: Host) -> None:
    done = host.exec(["linkwright", "nics", "-o", "json"], timeout_s=LIMIT_S)
    shown = json.loads(done.stdout)["inventory"]
    cards = {a["ports"][0]["pf"]["address"].rpartition(".")[0]: a for a in shown["adapters"]}
    first, second = cards[SLOTS["cx6-vpi-p1"]]["ports"]
    assert (first["can_change"], second["can_change"]) == (True, False)
    assert (second["id"], second["observed_mode"]) == ("0001:10:00.0/2", "RoCE")
    assert [(p["id"], p["secondary_of"]) for p in cards[SLOTS["cx6-socket-direct"]]["ports"]] == [
        ("0000:20:00.0/1", None),
        ("0000:a0:00.0/1", "0000:20:00.0/1"),
    ]
    assert cards[SLOTS["cx6dx-roce-off"]]["roce_off"] is True
    assert cards[SLOTS["bf3-dpu"]]["dpu"] is True
    assert cards[SLOTS["cx5-vpi-4vfs"]]["num_vfs_current"] == 4
    assert len({a["id"] for a in shown["adapters"]}) == len(shown["adapters"]) == 7
    assert [a["faults"] for a in shown["adapters"]] == [[]] * 7


def test_one_serial_of_five_cards_and_a_part_number_that_names_the_management_nic(host: Host) -> None:
    made = planned(
        host,
        selecting("serial", "InfiniBand", '{serialNumbers: ["MT2331X00001"]}'),
        selecting("parts", "RoCE", '{partNumbers: ["MCX631435AN-GDAB", "MCX653106A-ECAT"]}'),
    )
    (note,) = said(made, "serial-not-unique")
    assert note.startswith("serial number MT2331X00001 is that of 5 cards of this host; all of them are named")
    assert "0000:a0:00.0/1" not in [d["port"] for d in made["decisions"]]
    (refused,) = [p for p in made["problems"] if p["code"] == "port-protected"]
    assert refused["text"].startswith(f"{OFFICE} p1 is never touched: this host's own: default route")
    assert f'allowOwnTraffic: ["{OFFICE}"]' in refused["next_step"]
    assert OFFICE not in json.dumps(made["steps"])


def test_every_special_card_has_its_verdict_and_stops_no_other(host: Host) -> None:
    host.fault("0000:30:00", "unreadable", True)
    host.fault("0000:3b:00", "current_unreadable", True)
    made = planned(
        host,
        selecting("dpu", "InfiniBand", '{pciAddresses: ["0000:50:00.0"]}'),
        selecting("off", "RoCE", '{pciAddresses: ["0000:40:00.0"]}'),
        selecting("one", "RoCE", '{psids: ["MT_0000000999"]}'),
        selecting("direct", "RoCE", '{psids: ["MT_0000000228"]}'),
        selecting("blind", "RoCE", '{pciAddresses: ["0000:30:00.0"]}'),
        selecting("next", "RoCE", '{pciAddresses: ["0000:3b:00.0"]}'),
    )
    assert said(made, "dpu-mode")[0].startswith("0000:50:00.0 p1 is on a BlueField in DPU mode")
    assert said(made, "roce-off")[0].startswith("0000:40:00.0 p1 is Ethernet without RDMA: RoCE is switched off")
    assert not said(made, "mode-fault")
    unknown = said(made, "mode-unknown")
    assert any("0000:3b:00.0 p1" in text for text in unknown)
    settings = {(s["pf"], s["name"]) for c in made["changes"] for s in c["settings"]}
    assert settings == {("0000:10:00.0", "LINK_TYPE_P1"), ("0000:20:00.0", "LINK_TYPE_P1")}
