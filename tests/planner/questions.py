"""Short makers of planner questions, so that each test shows only what it is about."""

from __future__ import annotations

from typing import Any

import msgspec

from linkwright.model.documents import (
    Activation,
    Allow,
    Container,
    Functions,
    HostConfig,
    HostConfigSpec,
    Interface,
    LinkPolicy,
    LinkPolicySpec,
    Metadata,
    NicSelector,
    Target,
    TargetSpec,
)
from linkwright.model.inventory import Adapter, Function, Holder, Identity, Inventory, Netdev, Port
from linkwright.model.plan import Desired, Plan, Problem, Question, Records, TargetState
from linkwright.model.records import Attachment, AttachmentState, ModeChange
from linkwright.model.values import LinkMode, PciAddress, PortId

IB, ROCE = LinkMode.INFINIBAND, LinkMode.ROCE
CARD = "0000:3b:00"
P1, P2 = PortId(f"{CARD}.0/1"), PortId(f"{CARD}.1/2")
ALL = Allow(firmware=True, functions=True, reset=True, restart=True)


def netdev(name: str, mode: LinkMode = ROCE, **more: Any) -> Netdev:
    kind = 32 if mode is IB else 1
    return Netdev(name=name, ifindex=7, link_type=kind, address="aa:bb:cc:00:00:01", mtu=1500, **more)


def function(address: str, vf: int | None = None, *holders: Holder, away: bool = False, **more: Any) -> Function:
    return Function(
        address=PciAddress(address),
        vf_index=vf,
        driver="mlx5_core",
        netdev=None if away else netdev(f"en{address[5:7]}{address[-1]}{'' if vf is None else f'v{vf}'}"),
        net_elsewhere=away,
        holders=holders,
        **more,
    )


def port(number: int = 1, mode: LinkMode | None = ROCE, *, card: str = CARD, vfs: int = 0, **more: Any) -> Port:
    pf = f"{card}.{number - 1}"
    fields: dict[str, Any] = {
        "total_vfs": 16,
        "next_mode": mode,
        "current_mode": mode,
        "observed_mode": mode,
        "can_change": True,
        "pf": function(pf),
        "vfs": tuple(function(f"{card[:-2]}{number:02x}.{i}", i) for i in range(vfs)),
    }
    return Port(id=PortId(f"{pf}/{number}"), number=number, num_vfs=vfs, **(fields | more))


def adapter(*ports: Port, **more: Any) -> Adapter:
    fields: dict[str, Any] = {
        "id": ports[0].pf.address,
        "identity": Identity(part_number="MCX653106A-ECAT", psid="MT_0000000223", serial="MT1", device_id="101b"),
        "sriov_enabled_next": True,
        "sriov_enabled_current": True,
        "num_vfs_next": 16,
        "num_vfs_current": 16,
        "num_vfs_limit": 127,
    }
    return Adapter(ports=ports, **(fields | more))


def policy(
    name: str = "training",
    mode: LinkMode = IB,
    *,
    assign: Any = "Auto",
    num_vfs: int | None = None,
    activation: Activation | None = None,
    **selector: Any,
) -> LinkPolicy:
    return LinkPolicy(
        metadata=Metadata(name=name),
        spec=LinkPolicySpec(
            nic_selector=NicSelector(**(selector or {"pci_addresses": (f"{CARD}.0",)})),
            link_mode=mode,
            functions=Functions(assign=assign, num_vfs=num_vfs),
            activation=activation or Activation(),
        ),
    )


AUTO = Activation(approval="Auto")


def target(
    name: str, policy_name: str = "training", *interfaces: Interface | str, group: str | None = None
) -> Target:
    named = [Interface(name=i) if isinstance(i, str) else i for i in interfaces or ("net1",)]
    return Target(
        metadata=Metadata(name=name),
        spec=TargetSpec(
            policy=policy_name, interfaces=tuple(named), container=Container(name=name), group=group
        ),
    )


def running(inode: int = 1) -> TargetState:
    return TargetState(state="running", netns_path=f"/proc/{inode}/ns/net", netns_inode=inode, pid=inode)


STOPPED = TargetState(state="stopped")


def attached(name: str, port_id: str = P1, vf: int | None = None, *, inode: int = 1, **more: Any) -> Attachment:
    fields: dict[str, Any] = {
        "interface": "net1",
        "policy": "training",
        "generation": 1,
        "state": AttachmentState.ATTACHED,
        "netns_inode": inode,
        "boot_id": "boot-1",
    }
    return Attachment(target=name, port=PortId(port_id), vf_index=vf, **(fields | more))


def question(
    *adapters: Adapter,
    policies: tuple[LinkPolicy, ...] = (),
    targets: tuple[Target, ...] = (),
    states: dict[str, TargetState] | None = None,
    records: tuple[Attachment, ...] = (),
    changes: tuple[ModeChange, ...] = (),
    approvals: tuple[str, ...] = (),
    allow: Allow = ALL,
    frozen_by: str = "",
    generations: dict[str, int] | None = None,
    **host: Any,
) -> Question:
    return Question(
        desired=Desired(
            policies=policies,
            targets=targets,
            host=HostConfig(spec=HostConfigSpec(allow=allow, **host)),
            generations=generations or {p.name: 1 for p in policies},
            frozen_by=frozen_by,
        ),
        inventory=Inventory(host="gpu-01", boot_id="boot-1", adapters=adapters),
        targets=states if states is not None else {t.name: running(n + 1) for n, t in enumerate(targets)},
        records=Records(attachments=records, changes=changes, approvals=frozenset(approvals)),
        now=1000.0,
    )


def problem(made: Plan, code: str) -> Problem:
    """The first problem of this code; the test fails with the codes there are."""
    found = [p for p in made.problems if p.code == code]
    assert found, [p.code for p in made.problems]
    return found[0]


def away(old: Port, vf: int | None, target_name: str) -> Port:
    """The same port with one function moved into a target's namespace."""
    holder = Holder(kind="target", detail=f"{target_name} net1", ours=True, target=target_name)

    def moved(f: Function) -> Function:
        if f.vf_index != vf:
            return f
        return msgspec.structs.replace(f, netdev=None, net_elsewhere=True, holders=(holder,))

    return msgspec.structs.replace(old, pf=moved(old.pf), vfs=tuple(moved(f) for f in old.vfs))


def kinds(made: Plan) -> list[str]:
    return [type(s).__name__ for s in made.steps]


def in_use(mode: LinkMode = ROCE) -> dict[str, Any]:
    """Two targets with a VF each on port 1."""
    return {
        "policies": (policy(mode=IB if mode is ROCE else ROCE),),
        "targets": (target("a"), target("b")),
        "records": (attached("a", vf=0), attached("b", vf=1, inode=2)),
    }


def busy_port(mode: LinkMode = ROCE, **more: Any) -> Port:
    """Port 1 with two VFs, held by a and b."""
    return away(away(port(1, mode, vfs=2, **more), 0, "a"), 1, "b")
