"""The host's own traffic, other owners, functions that vanish or are meddled with: one host, one story.

Each test leaves the main card (3b:00) with its targets as it found it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from managed import HOST_YAML, PF, PORT, Managed, managed, policy, target

from hostlab.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("job-owners")]

OFFICE = "0000:81:00.0"
SMALL = "0000:30:00.0"  # a card that takes 8 VFs


@pytest.fixture(scope="module")
def job(lab: Lab, lab_spec: dict[str, Any]) -> Iterator[Managed]:
    small = {"persona": "cx5-vpi-4vfs", "address": SMALL[:-2], "ports": [{"fabric": "rail-0"}]}
    kept = [adapter for adapter in lab_spec["adapters"] if not adapter["address"].startswith("0000:5e")]
    yield managed(lab, lab_spec, "job-owners", adapters=[*kept, small])
    lab.down("job-owners", erase=True)


def host_yaml(job: Managed, *lines: str, text: str = HOST_YAML) -> None:
    (job.host.dirs.etc / "host.yaml").write_text(text + "".join(f"  {line}\n" for line in lines))


def problems(job: Managed, *documents: str) -> dict[str, Any]:
    """What a plan of these documents says, by code."""
    for index, text in enumerate(documents):
        job.host.write(f"/run/documents/plan-{index}.yaml", text)
    files = [word for index in range(len(documents)) for word in ("-f", f"/run/documents/plan-{index}.yaml")]
    done = job.host.exec(["linkwright", "plan", *files, "-o", "json"], check=False)
    made = json.loads(done.stdout)
    return {p["code"]: p for p in made["problems"]} | {"plan": made}


def selecting(mode: str, selector: str, name: str = "other", extra: str = "") -> str:
    plain = policy(mode, name=name, extra=extra)
    return plain.replace(f'{{pciAddresses: ["{PF}"]}}', selector)


def test_more_vfs_than_the_firmware_takes_fail_before_anybody_is_interrupted(job: Managed) -> None:
    many = "  functions: {assign: VF, numVfs: 9}\n"
    boots = job.host.status()["boots"]
    job.apply(selecting("InfiniBand", '{pciAddresses: ["0000:30:00.0"]}', extra=many), code=None)
    change = job.phase_reached("failed", policy="other")["changes"]
    failed = next(c for c in change if c["policy"] == "other")
    assert "NUM_OF_VFS" in failed["detail"]
    assert "8" in failed["detail"]
    assert job.host.status()["boots"] == boots
    job.run("linkwright", "delete", "policy/other", code=None)


# -- other owners ------------------------------------------------------------------------------------------------


def test_another_tool_is_respected_by_name_until_host_yaml_takes_over(job: Managed) -> None:
    job.host.write(f"/etc/sriov-operator/pci/{PF}", "{}")
    try:
        said = problems(job, policy("InfiniBand"))
        refused = said["managed-elsewhere"]
        assert refused["text"].endswith(f"sriov-network-operator manages its VFs (/etc/sriov-operator/pci/{PF}).")
        assert not said["plan"]["decisions"]
        assert f"sriov-network-operator manages VFs (/etc/sriov-operator/pci/{PF})" in job.run(
            "linkwright", "nics"
        )
        host_yaml(job, "takeOver: [sriov-network-operator]")
        assert [d["port"] for d in problems(job, policy("InfiniBand"))["plan"]["decisions"]] == [PORT]
    finally:
        host_yaml(job)
        job.run("rm", "-r", "/etc/sriov-operator")


def test_host_setup_is_shown_written_and_undone(job: Managed) -> None:
    job.run("mkdir", "-p", "/etc/systemd")
    shown = job.run("linkwright", "host", "setup")
    assert "write /etc/udev/rules.d/70-linkwright.rules" in shown
    assert f'KERNELS=="{PF}"' in shown
    assert OFFICE not in shown
    job.run("test", "!", "-e", "/etc/udev/rules.d/70-linkwright.rules")
    job.run("linkwright", "host", "setup", "--yes")
    assert "Everything is in place" in job.run("linkwright", "host", "setup")
    assert f'KERNELS=="{PF}"' in job.run("cat", "/etc/udev/rules.d/70-linkwright.rules")
    job.run("linkwright", "host", "setup", "--undo", "--yes")
    job.run("test", "!", "-e", "/etc/udev/rules.d/70-linkwright.rules")
    assert "Nothing to take away" in job.run("linkwright", "host", "setup", "--undo")


def test_without_host_yaml_it_only_observes_and_says_the_line(job: Managed) -> None:
    (job.host.dirs.etc / "host.yaml").unlink()
    try:
        said = problems(job, policy("RoCE"), target("trainer-0", "10.9.0.1/24"))
        assert not said["plan"]["steps"]
        assert said["plan"]["withheld"]
        lines = [p["next_step"] for p in said["plan"]["problems"] if p["code"] == "not-allowed"]
        assert any("allow: {firmware: true}" in line for line in lines)
        assert any("allow: {restart: true}" in line for line in lines)
        assert "observing only" in job.run("linkwright", "nics")
    finally:
        host_yaml(job)


# -- functions that vanish, come back, and are meddled with ------------------------------------------------------


def test_a_driver_reload_under_a_pf_is_rebuilt_without_a_restart(job: Managed) -> None:
    boots = job.host.status()["boots"]
    job.container("trainer-0")
    job.apply(policy("InfiniBand"), target("trainer-0", "10.9.0.1/24"))
    job.all_attached()
    job.host.fault("0000:3b:00", "driver_reload", True)
    _inside_again(job, "trainer-0", "10.9.0.1/24")
    assert job.host.status()["boots"] == boots
    job.nothing_planned()


def test_a_driver_reload_under_vfs_makes_them_anew(job: Managed) -> None:
    job.container("trainer-1")
    job.apply(target("trainer-1", "10.9.0.2/24"))
    job.all_attached()
    slots = job.slots()
    job.host.fault("0000:3b:00", "driver_reload", True)
    _inside_again(job, "trainer-0", "10.9.0.1/24")
    _inside_again(job, "trainer-1", "10.9.0.2/24")
    assert job.slots() == slots
    assert job.port()["num_vfs"] == 2
    job.nothing_planned()


def test_a_card_that_goes_away_in_the_middle_and_comes_back(job: Managed) -> None:
    slots = job.slots()
    job.host.fault("0000:3b:00", "vanished", True)
    gone = job.until("the port is gone", lambda s: "port-absent" in json.dumps(s) or not job.slots())
    assert gone["host"] == "job-owners"
    job.host.fault("0000:3b:00", "vanished", False)
    job.until("attached again", lambda s: job.slots() == slots)
    _inside_again(job, "trainer-0", "10.9.0.1/24")


@pytest.mark.parametrize("delay_s", [0.0, 0.05])
def test_a_network_manager_that_meddles_does_not_stop_it(job: Managed, delay_s: float) -> None:
    slots = job.slots()
    job.host.fault("job-owners", "meddler", delay_s or True)
    try:
        job.run("podman", "restart", "--time", "0", "trainer-0")
        job.until("back", lambda s: job.slots() == slots)
        _inside_again(job, "trainer-0", "10.9.0.1/24")
        assert "192.0.2." not in job.inside("trainer-0", "ip", "-o", "address")
    finally:
        job.host.fault("job-owners", "meddler", False)
    job.nothing_planned()


def _inside_again(job: Managed, name: str, address: str) -> None:
    def there(_: Any) -> bool:
        return address in job.inside(name, "ip", "-o", "address", "show", "net1", code=None)

    job.until(f"{name} has its interface", there)


# -- freeze, and another card ------------------------------------------------------------------------------------


def test_a_freeze_holds_everything_also_over_a_restart_and_says_who_and_why(job: Managed) -> None:
    boots = job.host.status()["boots"]
    job.run("linkwright", "freeze", "--why", "incident 42")
    job.run("podman", "stop", "--time", "0", "trainer-1")
    job.host.restart()
    job.host.wait_ready(boots + 1)
    status = job.until("it looked", lambda s: bool(s["boot_id"]))
    assert status["frozen_by"].startswith("uid 0 (")
    assert status["frozen_by"].endswith(": incident 42")
    said = job.run("linkwright", "status", code=None)
    assert "incident 42" in said
    assert job.slots() == {}
    made = job.ask("plan")
    assert not made["steps"]
    assert "incident 42" in next(p["text"] for p in made["problems"] if p["code"] == "frozen")
    job.run("podman", "start", "trainer-1")
    job.run("linkwright", "unfreeze")
    _inside_again(job, "trainer-0", "10.9.0.1/24")
    _inside_again(job, "trainer-1", "10.9.0.2/24")


def test_another_card_is_left_alone_until_a_person_accepts_it(job: Managed) -> None:
    other = selecting("InfiniBand", f'{{pciAddresses: ["{SMALL}"]}}')
    assert "adapter-replaced" not in problems(job, other)
    job.host.fault(SMALL, "swapped", True)
    said = problems(job, other)
    assert "serial " in said["adapter-replaced"]["text"]
    assert "linkwright adapter replace 0000:30:00.0" in said["adapter-replaced"]["next_step"]
    assert not [d for d in said["plan"]["decisions"] if d["port"].startswith("0000:30")]
    assert "another card than the one that was known here" in job.run("linkwright", "nics")
    accepted = job.run("linkwright", "adapter", "replace", SMALL, "--why", "RMA 4711")
    assert "Accepted at 0000:30:00.0: ConnectX-5" in accepted
    assert "InfiniBand" in accepted
    assert "adapter-replaced" not in problems(job, other)
    assert "is the card that is known" in job.run("linkwright", "adapter", "replace", SMALL[:-2], code=2)
    history = job.ask("history")["history"]
    assert any(h["what"] == "adapter replace 0000:30:00.0" and h["why"] == "RMA 4711" for h in history)
