"""Values that the screens are drawn from: one host as the kernel and the agent would show it."""

from __future__ import annotations

from typing import Any

import msgspec

from linkwright.model.documents import Allow
from linkwright.model.inventory import Adapter, Function, Holder, Identity, Inventory, Port
from linkwright.model.plan import (
    Approval,
    Attach,
    Detach,
    Plan,
    PortDecision,
    Problem,
    RestartHost,
    SetVfs,
    Verify,
    WriteFirmware,
)
from linkwright.model.records import ModeChange, Phase, Setting
from linkwright.model.values import LinkMode, PciAddress, PortId

IB, ROCE = LinkMode.INFINIBAND, LinkMode.ROCE
NOW = 1_800_000_000.0


def pci(text: str) -> PciAddress:
    return PciAddress(text)


P1, P2, P3, P4 = (
    PortId(each) for each in ("0000:3b:00.0/1", "0000:3b:00.1/2", "0000:5e:00.0/1", "0000:81:00.0/1")
)


def ours(target: str) -> tuple[Holder, ...]:
    return (Holder(kind="target", detail=f"{target} net1", ours=True, target=target),)


def inventory() -> Inventory:
    dual = Adapter(
        id="aa:bb:cc:00:00:00:00:01",
        identity=Identity(model="ConnectX-6 VPI", psid="MT_0000000224"),
        ports=(
            Port(
                id=P1,
                number=1,
                pf=Function(address=pci("0000:3b:00.0")),
                vfs=(
                    Function(address=pci("0000:3b:00.2"), vf_index=0, holders=ours("trainer-0")),
                    Function(address=pci("0000:3b:00.3"), vf_index=1, holders=ours("trainer-1")),
                    Function(
                        address=pci("0000:3b:00.4"),
                        vf_index=2,
                        holders=(Holder(kind="vfio", detail="pid 4711 (qemu-system-x86)", pid=4711),),
                    ),
                ),
                num_vfs=8,
                total_vfs=16,
                next_mode=ROCE,
                current_mode=ROCE,
                observed_mode=ROCE,
                can_change=True,
                link="up 200G",
                fabric="rail-0",
            ),
            Port(
                id=P2,
                number=2,
                pf=Function(address=pci("0000:3b:00.1")),
                total_vfs=16,
                next_mode=ROCE,
                current_mode=IB,
                observed_mode=IB,
                can_change=True,
                link="init, no SM",
                fabric="rail-1",
            ),
        ),
    )
    single = Adapter(
        id="0000:5e:00.0",
        identity=Identity(),
        ports=(Port(id=P3, number=1, pf=Function(address=pci("0000:5e:00.0")), observed_mode=IB),),
        faults=("0000:5e:00.0: mstconfig -d 0000:5e:00.0 query failed: Failed to open the device",),
    )
    office = Adapter(
        id="0000:81:00.0",
        identity=Identity(model="ConnectX-6 Lx"),
        ports=(
            Port(
                id=P4,
                number=1,
                pf=Function(
                    address=pci("0000:81:00.0"),
                    holders=(
                        Holder(kind="route", detail="default route"),
                        Holder(kind="address", detail="10.0.0.7"),
                    ),
                ),
                total_vfs=8,
                current_mode=ROCE,
                observed_mode=ROCE,
                can_change=False,
                link="up 25G",
                fabric="office",
            ),
        ),
    )
    return Inventory(
        host="gpu-01",
        boot_id="6d3a0c2e-0000-4000-8000-000000000001",
        kernel="6.12",
        mstflint="4.31.0",
        rdma_netns="exclusive",
        adapters=(dual, single, office),
    )


def decisions() -> tuple[PortDecision, ...]:
    return (
        PortDecision(port=P1, policy="training", desired=IB, form="VF", num_vfs=8),
        PortDecision(port=P2),
        PortDecision(port=P3),
        PortDecision(port=P4),
    )


def allow() -> Allow:
    return Allow(firmware=True, functions=True, restart=True)


SETTING = Setting(pf=pci("0000:3b:00.0"), name="LINK_TYPE_P1", value="1", before="2")
WRITE = ("mstconfig", "-y", "-d", "0000:3b:00.0", "set", "LINK_TYPE_P1=1")


def change(phase: Phase = Phase.PLANNED, **more: Any) -> ModeChange:
    fields: dict[str, Any] = {
        "policy": "training",
        "generation": 7,
        "wanted": IB,
        "ports": (P1,),
        "settings": (SETTING,),
        "targets": ("trainer-0", "trainer-1"),
        "phase": phase,
        "started": NOW - 300,
        "phase_since": NOW - 12,
    }
    return ModeChange(**(fields | more))


def plan() -> Plan:
    from linkwright.model.documents import Interface

    both = ("trainer-0", "trainer-1")
    detach = [Detach(target=t, interface="net1", port=P1, vf_index=i) for i, t in enumerate(both)]
    attach = [
        Attach(
            target=t,
            interface=Interface(name="net1"),
            policy="training",
            generation=7,
            port=P1,
            vf_index=i,
            mode=IB,
        )
        for i, t in enumerate(both)
    ]
    return Plan(
        steps=(
            WriteFirmware(pf=pci("0000:3b:00.0"), settings=(SETTING,), command=WRITE),
            *(msgspec.structs.replace(each, interrupts=(each.target,)) for each in detach),
            RestartHost(
                reason="the card takes a new mode only on a reset", needs="change:training:7", interrupts=both
            ),
            Verify(port=P1, mode=IB),
            SetVfs(port=P1, count=8, before=0),
            *attach,
        ),
        decisions=decisions(),
        changes=(change(),),
        problems=(
            Problem(
                severity="refused",
                code="vfs-in-use",
                subject="policy storage",
                rule=2,
                text="0000:3b:00.1 p2 has 3 VFs in use; numVfs 8 → 4 would remove VF 5.",
                holder="pid 4711 (qemu-system-x86, guest db-2)",
                next_step="Detach it first (linkwright detach db-2), or keep numVfs at 6 or more.",
            ),
        ),
        approvals=(
            Approval(
                key="change:training:7",
                text="training: RoCE → InfiniBand on 0000:3b:00.0 p1 restarts this host",
                interrupts=both,
                restarts=True,
            ),
        ),
        untouched=("0000:81:00.0 p1 (carries this host's default route)",),
    )


def status(**more: Any) -> dict[str, Any]:
    """The agent's answer to GET /v1/status, as JSON values."""

    def interface(**fields: Any) -> dict[str, Any]:
        empty = {"port": None, "function": None, "vf_index": None, "mode": None, "reason": "", "since": None}
        return empty | {"name": "net1"} | fields

    answer: dict[str, Any] = {
        "host": "gpu-01",
        "boot_id": "6d3a0c2e-0000-4000-8000-000000000001",
        "version": "0.1.0",
        "allow": msgspec.to_builtins(allow()),
        "frozen_by": "",
        "policies": [
            {
                "name": "training",
                "generation": 7,
                "link_mode": "InfiniBand",
                "ports": [P1],
                "state": "verify-mode",
                "problems": [],
            }
        ],
        "targets": [
            {
                "name": "trainer-0",
                "policy": "training",
                "running": "running",
                "state": "attached",
                "reason": "",
                "interfaces": [
                    interface(
                        port=P1,
                        function="0000:3b:00.2",
                        vf_index=0,
                        mode="InfiniBand",
                        state="attached",
                        since=NOW - 7300,
                    )
                ],
            },
            {
                "name": "trainer-2",
                "policy": "training",
                "running": "stopped",
                "state": "waiting",
                "reason": "container does not run",
                "interfaces": [interface(state="waiting", reason="container does not run")],
            },
        ],
        "changes": [],
        "approvals": [],
        "problems": [],
    }
    return answer | more


def with_stations(record: ModeChange, reached: Phase, state: str = "now", detail: str = "") -> dict[str, Any]:
    """A mode change as the agent shows it: its record, and its stations up to the one that was reached."""
    order = [phase for phase in Phase if phase not in (Phase.FAILED, Phase.WAITING, Phase.ENDED)]
    rows = []
    for phase in order:
        done = order.index(phase) < order.index(reached) or record.phase is Phase.DONE
        row = {"phase": phase.value, "state": "done" if done else "todo", "at": None, "detail": ""}
        if phase is Phase.APPROVED:
            row["detail"] = record.approved_by
        if phase is reached and not done:
            row |= {"state": state, "at": record.phase_since, "detail": detail}
        rows.append(row)
    return msgspec.to_builtins(record) | {"stations": rows}  # type: ignore[no-any-return]
