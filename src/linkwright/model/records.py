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
    rdma_name: str | None = None  # the name its RDMA device was asked to have when it was last given
    wish: str = ""  # which version of the interface's document it was last given for (planner.attach.wish_of)
    mac: str | None = None  # kept over restarts, so that a target keeps its address in RoCE mode
    before: Before | None = None
    reason: str = ""
    since: float = 0.0


class KnownCard(Struct, frozen=True, kw_only=True):
    """Who the card behind a PF is: as first seen, or as a person accepted it. None: it did not tell yet."""

    pf: PciAddress
    serial: str | None = None
    part_number: str | None = None  # with the serial only: both stand in the VPD
    system_image_guid: Guid | None = None
    model: str | None = None
    since: float = 0.0


class Phase(StrEnum):
    """A mode change's stations in order; FAILED and WAITING carry a reason and the next step. ENDED: given up
    before its end because its policy changed or went; nothing of it is left staged."""

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
    ENDED = "ended"


class Setting(Struct, frozen=True, kw_only=True):
    """One firmware parameter of one adapter: ``LINK_TYPE_P1``, values as the tool takes them (``1``, ``2``)."""

    pf: PciAddress  # the function through which it is written
    name: str
    value: str
    before: str | None = None  # Next Boot before our first write
    current: str | None = None  # what ran at the intent: where onFailure: Rollback returns to


class ModeChange(Struct, frozen=True, kw_only=True):
    """The record of one flip (or of one change of the VF settings in firmware) for one policy generation."""

    policy: str
    generation: int
    wanted: LinkMode
    method: str = "Reboot"  # Reboot | FirmwareReset | External | PowerCycle
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
    activations: int = 0  # how many ways of ``tried`` were begun
    tried: tuple[str, ...] = ()  # "Reboot", "FirmwareReset <adapter id>": each once for one value (rule 3)
    overruled: tuple[str, ...] = ()  # reason codes that a person answered with a retry
    targets: tuple[str, ...] = ()  # whom it interrupts
    also_interrupts: tuple[str, ...] = ()  # whom the restart after a failed reset interrupts besides
    stopped_at: Phase | None = None  # the station at which it waits, failed or was given up
    returning_from: LinkMode | None = None  # a rollback under way; ``wanted`` is then the mode from before
    returned_to: LinkMode | None = None  # a rollback that is done; ``wanted`` is what failed
    cause: str = ""  # the verdict that a rollback or a power cycle answers
    started: float = 0.0
    phase_since: float = 0.0

    @property
    def open(self) -> bool:
        return self.phase not in (Phase.DONE, Phase.FAILED, Phase.ENDED)

    @property
    def station(self) -> Phase:
        """Where it stands; while it waits, the station at which it does."""
        return self.stopped_at if self.phase is Phase.WAITING and self.stopped_at else self.phase


class HistoryEntry(Struct, frozen=True, kw_only=True):
    """Who changed what, when, why."""

    at: float
    who: str  # "uid 0 (linkwright, pid 4711)": user, program, process; "agent"
    what: str  # "apply LinkPolicy training generation 7"
    why: str = ""
    before: str = ""
    after: str = ""
