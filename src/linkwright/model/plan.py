"""A plan: ordered steps with reasons, exact commands and impact, and what stands in the way. Pure values."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from .documents import HostConfig, Interface, LinkPolicy, Target
from .inventory import Inventory
from .records import Attachment, ModeChange, Setting
from .values import LinkMode, PciAddress, PortId


class TargetState(Struct, frozen=True, kw_only=True):
    """What the runtime says of a target now. ``netns_inode`` identifies the namespace while it runs."""

    state: Literal["running", "stopped", "absent", "host-network", "unknown"]
    netns_path: str | None = None
    netns_inode: int | None = None
    pid: int | None = None
    detail: str = ""


class Desired(Struct, frozen=True, kw_only=True):
    """Everything people asked for. ``generations``: policy name -> generation (counts up on each change)."""

    policies: tuple[LinkPolicy, ...] = ()
    targets: tuple[Target, ...] = ()
    host: HostConfig = HostConfig()
    generations: dict[str, int] = {}
    frozen_by: str = ""


class Records(Struct, frozen=True, kw_only=True):
    """What is stored of earlier work. ``changes``: the newest of each policy, open or ended.
    ``approvals``: the approval keys that a person gave."""

    attachments: tuple[Attachment, ...] = ()
    changes: tuple[ModeChange, ...] = ()
    approvals: frozenset[str] = frozenset()


class _Step(Struct, frozen=True, kw_only=True, tag_field="step"):
    """``needs``: the approval key without which the step is not taken; ``interrupts``: targets."""

    reason: str = ""
    needs: str | None = None
    interrupts: tuple[str, ...] = ()


class WriteFirmware(_Step, frozen=True, kw_only=True, tag="write"):
    pf: PciAddress
    settings: tuple[Setting, ...]
    command: tuple[str, ...]


class SetVfs(_Step, frozen=True, kw_only=True, tag="vfs"):
    """Change a port's VF count; the executor writes 0 in between where the kernel wants it."""

    port: PortId
    count: int
    before: int
    command: tuple[str, ...] = ()


class Detach(_Step, frozen=True, kw_only=True, tag="detach"):
    """Take one interface back. ``forget``: the slot is freed too (target or interface is gone)."""

    target: str
    interface: str
    port: PortId
    vf_index: int | None = None
    forget: bool = False


class Attach(_Step, frozen=True, kw_only=True, tag="attach"):
    """Give one interface. The function's identity is set through the PF first when it is a VF."""

    target: str
    interface: Interface
    policy: str
    generation: int
    port: PortId
    vf_index: int | None = None
    mode: LinkMode | None = None
    mtu: int | None = None


class ResetAdapter(_Step, frozen=True, kw_only=True, tag="reset"):
    pf: PciAddress
    command: tuple[str, ...] = ()


class RestartHost(_Step, frozen=True, kw_only=True, tag="restart"):
    pass


class Verify(_Step, frozen=True, kw_only=True, tag="verify"):
    port: PortId
    mode: LinkMode


Step = WriteFirmware | SetVfs | Detach | Attach | ResetAdapter | RestartHost | Verify


class Problem(Struct, frozen=True, kw_only=True):
    """Why something is not done. ``severity``: refused (a rule), waiting (resolves by itself or by a yes),
    note (nothing is wrong). ``subject``: "policy training", "target trainer-0", "port 0000:3b:00.0/1"."""

    severity: Literal["refused", "waiting", "note"]
    code: str
    subject: str
    text: str
    rule: int | None = None
    holder: str = ""
    next_step: str = ""


class Approval(Struct, frozen=True, kw_only=True):
    """A yes the plan asks for. The key names exactly what is interrupted: another impact is another key."""

    key: str
    text: str
    interrupts: tuple[str, ...] = ()
    restarts: bool = False


class PortDecision(Struct, frozen=True, kw_only=True):
    """What the planner decided for one port."""

    port: PortId
    policy: str | None = None
    desired: LinkMode | None = None
    form: Literal["PF", "VF"] | None = None
    num_vfs: int | None = None


class FieldMatch(Struct, frozen=True, kw_only=True):
    """One given field of a nicSelector beside the port's own value. ``has`` None: it has none, or (with ``answer``
    None) it cannot be read now."""

    field: str  # as people write it: "partNumbers"
    wanted: tuple[str, ...]
    has: str | None = None
    answer: bool | None = None


class PortMatch(Struct, frozen=True, kw_only=True):
    """One port beside one policy's nicSelector: every field must say yes. ``why_not``: why the port is left alone
    all the same (protected, named by two policies, …)."""

    port: PortId
    policy: str
    answer: bool | None = None
    fields: tuple[FieldMatch, ...] = ()
    why_not: str = ""


class Plan(Struct, frozen=True, kw_only=True):
    """``steps`` in order. ``changes``: the mode changes these steps carry out (phase PLANNED); a write that
    belongs to none of them puts Next Boot back to what is current and needs no restart.
    ``assignments``: slots of every declared interface, kept by the executor before it takes a step; an interface
    that is to get another slot has its old one here until its Detach (``forget``) is done.
    ``approvals``: only those that are asked for and not given yet."""

    steps: tuple[Step, ...] = ()
    decisions: tuple[PortDecision, ...] = ()
    changes: tuple[ModeChange, ...] = ()
    assignments: tuple[Attachment, ...] = ()
    problems: tuple[Problem, ...] = ()
    approvals: tuple[Approval, ...] = ()
    untouched: tuple[str, ...] = ()  # protected ports, with why
    withheld: tuple[Step, ...] = ()  # what would be done if host.yaml allowed it, or nobody had frozen the host
    matches: tuple[PortMatch, ...] = ()  # every port beside every policy: plan --explain

    @property
    def interrupts(self) -> tuple[str, ...]:
        return tuple(sorted({t for s in self.steps for t in s.interrupts}))

    @property
    def restarts(self) -> bool:
        return any(isinstance(s, RestartHost) for s in self.steps)


class Question(Struct, frozen=True, kw_only=True):
    """All inputs of one planning: ``plan(question)`` is a pure function of this value."""

    desired: Desired
    inventory: Inventory
    targets: dict[str, TargetState] = {}
    records: Records = Records()
    now: float = 0.0
