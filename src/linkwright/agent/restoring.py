"""``onDelete: Restore``: a deleted policy goes back to the values from before its first write, then it is gone.

Until then it stays under its name, with those modes and VF counts as what it wants: so approvals, windows, the
restart, the verification and every message are those of any other mode change. Deleted once more while it does, it
is gone at once and what is there stays.
"""

from __future__ import annotations

import time

import msgspec

from ..firmware.base import mode_of_link_type
from ..model.documents import Functions, LinkPolicy, NicSelector
from ..model.inventory import Adapter, Port
from ..model.plan import Plan, Question, SetVfs, Step, WriteFirmware
from ..model.records import HistoryEntry, Setting
from ..model.values import LinkMode, PortId, port_label
from ..planner.undo import AsFound, undo_steps
from ..store.db import Store
from . import backup
from .asfound import as_found, taken_back
from .world import World

NOTE = "restoring:"


def restoring(store: Store) -> frozenset[str]:
    """Policies that are deleted and on their way back."""
    return frozenset(store.notes(NOTE))


def way_back(policy: LinkPolicy, ports: list[PortId], found: AsFound, question: Question) -> list[LinkPolicy]:
    """The policy as it has to be to bring back what was there: one document for each mode and VF count.

    Empty when nothing of its ports was changed by it.
    """
    wanted: dict[tuple[LinkMode, int | None], list[str]] = {}
    for port_id in ports:
        adapter, port = question.inventory.adapter_of(port_id), question.inventory.port(port_id)
        if adapter is None or port is None:
            continue
        before, count = _mode_before(adapter, port, found.settings), found.vfs.get(port_id)
        if before is not None or count is not None:
            key = (before or policy.spec.link_mode, count)
            wanted.setdefault(key, []).append(port.pf.address)
    documents = []
    for number, ((mode, count), addresses) in enumerate(sorted(wanted.items(), key=lambda each: each[1])):
        spec = msgspec.structs.replace(
            policy.spec,
            nic_selector=NicSelector(pci_addresses=tuple(addresses)),
            link_mode=mode,
            functions=Functions() if count is None else Functions(assign="VF", num_vfs=count),
            roce=policy.spec.roce if mode is policy.spec.link_mode else None,
            infiniband=policy.spec.infiniband if mode is policy.spec.link_mode else None,
            on_delete="Keep",
        )
        name = policy.name if number == 0 else f"{policy.name}.{number + 1}"
        metadata = msgspec.structs.replace(policy.metadata, name=name)
        documents.append(msgspec.structs.replace(policy, metadata=metadata, spec=spec))
    return documents


def _mode_before(adapter: Adapter, port: Port, settings: tuple[Setting, ...]) -> LinkMode | None:
    pfs = {p.pf.address for p in adapter.ports}
    name = f"LINK_TYPE_P{port.number}"
    return next((mode_of_link_type(s.before) for s in settings if s.pf in pfs and s.name == name), None)


def in_words(document: LinkPolicy) -> str:
    """What one way back brings: ``goes back to RoCE, 0 VFs: 0000:3b:00.0``."""
    spec = document.spec
    functions = "" if spec.functions.num_vfs is None else f", {spec.functions.num_vfs} VFs"
    return f"goes back to {spec.link_mode.value}{functions}: {', '.join(spec.nic_selector.pci_addresses)}"


def what_stays(ports: list[PortId], question: Question) -> list[str]:
    """What is left as it is, in words: for ``onDelete: Keep``."""
    said = []
    for port_id in ports:
        port = question.inventory.port(port_id)
        if port is not None:
            mode = port.current_mode or port.observed_mode
            functions = f" with {port.num_vfs} VFs" if port.num_vfs else ""
            said.append(f"{port_label(port_id)} stays {mode.value if mode else 'as it is'}{functions}")
    return said


def finish(world: World, made: Plan, question: Question) -> bool:
    """Let go of each policy whose way back is complete. True when something was done.

    VF settings in firmware belong to the adapter: they go back with the last policy of its ports.
    """
    if question.desired.frozen_by:
        return False
    for name in sorted(restoring(world.store)):
        if _under_way(name, made, question):
            continue
        ports = {d.port for d in made.decisions if d.policy == name}
        for step in _adapter_settings(world, name, ports, made, question):
            backup.keep(world, step.pf)
            values = " ".join(f"{s.name}={s.value}" for s in step.settings)
            world.progress.emit("step", step.pf, f"put back {values}")
            world.firmware.write(step.pf, {s.name: s.value for s in step.settings})
        with world.store.transaction():
            world.store.delete_policy(name)
            world.store.drop_note(f"{NOTE}{name}")
            taken_back(world.store, name, {str(port) for port in ports})
            said = "; ".join(what_stays(sorted(ports), question)).replace(" stays ", " is ")
            world.store.add_history(
                HistoryEntry(
                    at=time.time(),
                    who="agent",
                    what=f"LinkPolicy {name} is gone",
                    why="onDelete: Restore is done",
                    after=said,
                )
            )
        world.progress.emit("done", f"policy {name}", "restored, and gone")
        return True
    return False


def _under_way(name: str, made: Plan, question: Question) -> bool:
    """Is anything still to be done, agreed to or settled for it?"""
    ports = {d.port for d in made.decisions if d.policy == name}
    pfs: set[str] = {p.pf.address for p in (question.inventory.port(port) for port in ports) if p is not None}
    if any(c.policy == name and c.open for c in question.records.changes):
        return True
    if any(p.subject == f"policy {name}" and p.severity != "note" for p in made.problems):
        return True
    return any(_concerns(step, ports, pfs) for step in (*made.steps, *made.withheld))


def _concerns(step: Step, ports: set[PortId], pfs: set[str]) -> bool:
    if isinstance(step, WriteFirmware):
        return step.pf in pfs
    return isinstance(step, SetVfs) and step.port in ports


def _adapter_settings(
    world: World, name: str, ports: set[PortId], made: Plan, question: Question
) -> list[WriteFirmware]:
    """SRIOV_EN and NUM_OF_VFS of cards on which no other policy has a port."""
    others = {d.port for d in made.decisions if d.policy not in (None, name)}
    alone = {
        p.pf.address
        for a in question.inventory.adapters
        if not others & {p.id for p in a.ports} and ports & {p.id for p in a.ports}
        for p in a.ports
    }
    found = as_found(world.store, name)
    mine = tuple(s for s in found.settings if s.pf in alone and not s.name.startswith("LINK_TYPE"))
    steps, _ = undo_steps(question, AsFound(settings=mine))
    return [s for s in steps if isinstance(s, WriteFirmware)] if question.desired.host.spec.allow.firmware else []
