"""After a damaged state file: the state again, from what could be read of it and from the kernel's marks.

Each netdev that we gave away carries ``linkwright:target/interface``: the kernel tells who has what. A mark with
a readable record of this boot is that record; a mark without one is QUARANTINED: its function is somebody's, and
how it was before is not known any more. Then the host is frozen, because what could not be read may matter: a
person looks, and lets it go on.
"""

from __future__ import annotations

import logging
import time

from msgspec.structs import replace

from .. import audit
from ..audit import Marked
from ..model.inventory import Inventory
from ..model.records import Attachment, AttachmentState, HistoryEntry
from ..store import damaged
from ..store.damaged import Salvaged
from ..targets.recovery import slot_only
from .world import World

log = logging.getLogger(__name__)

LOST = "the state file was damaged, and how this function was before is not known any more"


def rebuild(world: World, salvaged: Salvaged) -> str:
    """Fill the fresh store and freeze the host; what was done, in words."""
    inventory = world.look().inventory
    records = _records(salvaged, inventory, audit.look(world.system).links)
    store = world.store
    lost = sum(r.state is AttachmentState.QUARANTINED and r.reason == LOST for r in records)
    text = (
        f"state.db was damaged ({salvaged.why}) and is kept beside it; read from it: "
        f"{len(salvaged.policies)} policies, {len(salvaged.targets)} targets; "
        f"{len(records)} attachments, {lost} of them quarantined"
    )
    with store.transaction():
        for policy in salvaged.policies:
            store.put_policy(policy)
        for target in salvaged.targets:
            store.put_target(target)
        store.raise_generations(salvaged.generations)
        for change in salvaged.changes:
            store.put_change(change)
        for entry in salvaged.history:
            store.add_history(entry)
        store.put_cards(salvaged.cards)
        for record in records:
            store.put_attachment(record)
        store.freeze(f"the agent: {text}")
        store.add_history(HistoryEntry(at=time.time(), who="agent", what=f"rebuilt: {text}"))
    damaged.kept(salvaged)
    log.error("%s. The host is frozen. Look: linkwright audit; then: linkwright unfreeze", text)
    return text


def _records(salvaged: Salvaged, inventory: Inventory, links: tuple[Marked, ...]) -> list[Attachment]:
    slots = {f.address: (p.id, f.vf_index, a.id) for a in inventory.adapters for p in a.ports for f in p.functions}
    marks = {link.mark: link for link in links if link.mark and link.function in slots}
    by_name = {f"{r.target}/{r.interface}": r for r in salvaged.attachments}
    policies = {t.name: t.spec.policy for t in salvaged.targets}
    taken: dict[tuple[str, int | None], Attachment] = {}
    for name, link in sorted(marks.items()):
        port, vf_index, adapter = slots[link.function]  # type: ignore[index]
        known = by_name.pop(name, None)
        target, _, interface = name.rpartition("/")
        if known is not None and known.before is not None and known.boot_id == inventory.boot_id:
            taken[port, vf_index] = replace(known, port=port, vf_index=vf_index)
            continue
        taken[port, vf_index] = Attachment(
            target=target or name,
            interface=interface,
            policy=policies.get(target, known.policy if known else ""),
            generation=known.generation if known else 0,
            port=port,
            vf_index=vf_index,
            adapter=adapter,
            function=link.function,  # type: ignore[arg-type]
            state=AttachmentState.QUARANTINED,
            netns_inode=link.inode,
            netns_path=link.netns or None,
            boot_id=inventory.boot_id,
            mac=known.mac if known else None,
            reason=LOST,
            since=time.time(),
        )
    for record in by_name.values():  # nobody has it: the slot stays the target's, if it is free
        taken.setdefault((record.port, record.vf_index), slot_only(record))
    return list(taken.values())
