"""What an interruption left: decided at the start of the agent, by the boot id, before anything else is done.

After a restart of the host the kernel has nothing of what was begun: records become slots and the journal is
closed. In the same boot a record that says ATTACHING or DETACHING stays: the reconcile loop carries it on from
what the kernel shows. Only what no record speaks of is closed here, since nobody would come back to it.
"""

from __future__ import annotations

import logging
import time

from msgspec.structs import replace

from linkwright.kernel import sriov
from linkwright.kernel.system import System
from linkwright.model.errors import LinkwrightError
from linkwright.model.records import Attachment, AttachmentState, HistoryEntry
from linkwright.store import Store

log = logging.getLogger(__name__)

REBIND = "driver anew of "  # begins the name of a step that unbinds and binds a driver; its PCI address follows
UNDER_WAY = (AttachmentState.ATTACHING, AttachmentState.DETACHING)


def slot_only(attachment: Attachment, *, reason: str = "") -> Attachment:
    """The record when nothing of the attachment exists any more: only its slot is left."""
    return replace(
        attachment,
        state=AttachmentState.ASSIGNED,
        netns_inode=None,
        netns_path=None,
        before=None,
        rdma_moved=False,
        reason=reason,
    )


def finish_rebinds(system: System, store: Store) -> list[str]:
    """Functions that an interruption left between unbinding and binding their driver get one again; in words.

    Nobody else would: an unbound function has no netdev by which it is found, and may be unbound on purpose.
    """
    said: list[str] = []
    for operation in store.open_operations():
        for step in operation.steps:
            address = step.name.removeprefix(REBIND)
            if address == step.name or step.state not in ("begun", "interrupted"):
                continue
            if not sriov.device(system, address).exists() or sriov.driver(system, address) is not None:
                continue
            try:
                sriov.probe(system, address, want_net=False)
            except LinkwrightError as error:
                log.error("%s: its driver could not be bound again: %s", address, error)
                continue
            said.append(f"{address} had lost its driver in an interrupted {operation.kind}; it is bound again")
    return said


def recover(store: Store, boot_id: str) -> list[str]:
    """Bring records and journal to this boot; what was done, in words (also in the history). Idempotent.

    ``boot_id`` empty (it cannot be read): nothing is concluded.
    """
    if not boot_id:
        return []
    said: list[str] = []
    with store.transaction():
        for attachment in store.attachments():
            lost = attachment.boot_id not in (None, boot_id)
            if lost and attachment.state is not AttachmentState.ASSIGNED:
                store.put_attachment(replace(slot_only(attachment), boot_id=boot_id, since=time.time()))
                said.append(f"{_name(attachment)} was {attachment.state.value}; a restart of the host undid it")
        records = {_name(a): a for a in store.attachments()}
        for operation in store.open_operations():
            record = records.get(operation.subject)
            carried_on = record is not None and record.state in UNDER_WAY and operation.boot_id == boot_id
            if not carried_on:
                store.close_operation(operation.id)
                said.append(f"{operation.kind} of {operation.subject} was interrupted and leaves nothing to do")
        for text in said:
            store.add_history(HistoryEntry(at=time.time(), who="agent", what=f"recovered: {text}"))
    return said


def _name(attachment: Attachment) -> str:
    return f"{attachment.target}/{attachment.interface}"
