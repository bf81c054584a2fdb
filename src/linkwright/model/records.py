"""What is stored: intent and before-values. Everything else is read from the kernel when needed."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from .values import Guid, LinkMode, PciAddress, PortId


class AttachmentState(StrEnum):
    """``ASSIGNED`` holds its slot (port, VF index) without being in a namespace: the target does not run."""

    ASSIGNED = "assigned"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    QUARANTINED = "quarantined"


class Before(Struct, frozen=True, kw_only=True):
    """A function as it was before the first effect; written once per life of an attachment."""

    name: str
    mtu: int
    address: str
    up: bool = False
    alias: str = ""
    altnames: tuple[str, ...] = ()
    rdma_name: str | None = None
    rdma_guid: Guid | None = None  # node GUID: finds the RDMA device inside a namespace, whatever its name


class Attachment(Struct, frozen=True, kw_only=True):
    """Interface × function × policy generation. Key: (target, interface). Slot: (port, vf_index)."""

    target: str
    interface: str
    policy: str
    generation: int
    port: PortId
    vf_index: int | None = None  # None: the PF
    adapter: str = ""  # Adapter.id when assigned
    function: PciAddress | None = None  # where the slot was last seen
    state: AttachmentState = AttachmentState.ASSIGNED
    netns_inode: int | None = None
    netns_path: str | None = None
    boot_id: str | None = None  # the boot in which the current state was reached
    rdma_moved: bool = False
    mac: str | None = None  # kept over restarts, so that a target keeps its address in RoCE mode
    before: Before | None = None
    reason: str = ""
    since: float = 0.0


class Phase(StrEnum):
    """A mode change's stations in order; FAILED and WAITING carry a reason and the next step."""

    PLANNED = "planned"
    APPROVED = "approved"
    INTENT = "intent"
    STAGED = "staged"
    DRAINING = "draining"
    RESTARTING = "restarting"
    BOOTED = "booted"
    VERIFY_MODE = "verify-mode"
    VERIFY_FABRIC = "verify-fabric"
    FUNCTIONS = "functions"
    REATTACH = "reattach"
    DONE = "done"
    FAILED = "failed"
    WAITING = "waiting"


class Setting(Struct, frozen=True, kw_only=True):
    """One firmware parameter of one adapter: ``LINK_TYPE_P1``, values as the tool takes them (``1``, ``2``)."""

    pf: PciAddress  # the function through which it is written
    name: str
    value: str
    before: str | None = None  # Next Boot before our first write


class ModeChange(Struct, frozen=True, kw_only=True):
    """The record of one flip (or of one change of the VF settings in firmware) for one policy generation."""

    policy: str
    generation: int
    wanted: LinkMode
    method: str = "Reboot"  # Reboot | FirmwareReset
    ports: tuple[PortId, ...] = ()
    settings: tuple[Setting, ...] = ()
    phase: Phase = Phase.PLANNED
    boot_id: str | None = None  # stored with the intent, before the first effect
    uptime_before: dict[str, int] = {}  # adapter id -> firmware uptime in seconds at the intent
    intent_at: float | None = None  # wall clock of the intent
    approved_by: str = ""
    reason_code: str = ""
    detail: str = ""
    next_step: str = ""
    said: tuple[str, ...] = ()  # command lines and the tool's words, in order
    activations: int = 0  # 0 or 1: interlock rule 3
    targets: tuple[str, ...] = ()  # whom it interrupts
    started: float = 0.0
    phase_since: float = 0.0

    @property
    def open(self) -> bool:
        return self.phase not in (Phase.DONE, Phase.FAILED)


class HistoryEntry(Struct, frozen=True, kw_only=True):
    """Who changed what, when, why."""

    at: float
    who: str  # "uid 0 (pid 4711)", "agent"
    what: str  # "apply LinkPolicy training generation 7"
    why: str = ""
    before: str = ""
    after: str = ""
