"""Ways of activation on an emulated host: a reset of one adapter, External, a policy taken back, and verdicts.

One host; each test leaves port 1 of 0000:3b:00 in the mode that its name or its last line says, nothing staged.
"""

from __future__ import annotations

from typing import Any

import pytest
from managed import HOST_YAML, PF, Managed, policy, target

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("job-activation")]

PROVEN = HOST_YAML.replace(
    "  fabrics:",
    '  resetProven: [{psid: MT_0000000224, firmware: "20.41.*"}]\n'
    "  subnetManagerTimeout: 3s\n  linkTimeout: 4s\n  fabrics:",
)



def activation(**fields: str) -> str:
    words = ", ".join(f"{key}: {value}" for key, value in fields.items())
    return f"  activation: {{approval: Auto, {words}}}\n" if words else "  activation: {approval: Auto}\n"


def modes(job: Managed) -> dict[str, str]:
    port = job.port()
    return {name: port[f"{name}_mode"] for name in ("next", "current", "observed")}


def all_are(mode: str) -> dict[str, str]:
    return dict.fromkeys(("next", "current", "observed"), mode)


def boots(job: Managed) -> int:
    return int(job.host.status()["boots"])


def ended(job: Managed, *phases: str, generation: int | None = None) -> Any:
    def look(status: Any) -> bool:
        return any(
            c["phase"] in phases and (generation is None or c["generation"] == generation)
            for c in status["changes"]
            if c["policy"] == "training"
        )

    job.until(f"change in {phases}", look)
    return job.change()


@pytest.fixture(scope="module", autouse=True)
def proven(job: Managed) -> None:
    (job.host.dirs.etc / "host.yaml").write_text(PROVEN)
    job.container("trainer-0")
    job.container("other")
    job.apply(policy("InfiniBand"), target("trainer-0", "10.9.0.1/24"))
    job.apply(
        policy("InfiniBand", name="storage", pf="0000:5e:00.0"),
        target("other", "10.8.0.1/24", policy="storage"),
    )
    job.all_attached()


def test_a_proven_adapter_is_reset_and_nobody_else_is_touched(job: Managed) -> None:
    before = boots(job)
    since = next(t for t in job.status()["targets"] if t["name"] == "other")["interfaces"][0]["since"]
    job.apply(policy("RoCE", extra=activation()))
    change = ended(job, "done")
    assert change["method"] == "FirmwareReset"
    assert any("mstfwreset -d 0000:3b:00.0 -l 3 --sync 1 -y reset" in said for said in change["said"])
    assert modes(job) == all_are("RoCE")
    job.all_attached()
    assert boots(job) == before
    assert "10.9.0.1/24" in job.inside("trainer-0", "ip", "-o", "address", "show", "net1")
    after = next(t for t in job.status()["targets"] if t["name"] == "other")["interfaces"][0]["since"]
    assert after == since
    job.nothing_planned()
