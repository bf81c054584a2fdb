"""Back to what a host had before our first change: VF counts, and the firmware's Next Boot. Pure.

Nothing here restarts anything: Next Boot is written, and the cards load it at whatever restart comes next.
Functions that somebody else holds are never touched for it (interlock rule 2).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from ..firmware.base import link_type_of, same_value
from ..model.inventory import Adapter, Port
from ..model.plan import Problem, Question, SetVfs, WriteFirmware
from ..model.records import Attachment, ModeChange, Setting
from ..model.values import PortId, port_label
from .reshape import set_vfs
from .restart import writes
from .untouchable import untouchable
from .view import View, foreign, view

WHY = "as it was before Linkwright's first change"


class AsFound(Struct, frozen=True, kw_only=True):
    """``settings``: each with ``before``, the Next Boot of before our first write. ``vfs``: port → VF count."""

    settings: tuple[Setting, ...] = ()
    vfs: dict[PortId, int] = {}


def first_settings(
    changes: Iterable[ModeChange], since: float = 0.0, extra: Iterable[tuple[float, Setting]] = ()
) -> tuple[Setting, ...]:
    """Of each parameter its first write. ``changes`` in any order; only those that began after ``since`` count,
    and only those whose intent was stored: nothing was written for the others. ``extra``: writes that belonged to
    no change, with their times."""
    written = [
        (change.started, setting)
        for change in changes
        if change.started > since and change.intent_at is not None and change.returning_from is None
        for setting in change.settings
    ]
    found: dict[tuple[str, str], Setting] = {}
    for _, setting in sorted([*written, *extra], key=lambda each: each[0]):
        found.setdefault((setting.pf, setting.name), setting)
    return tuple(found[key] for key in sorted(found))


def undo_steps(question: Question, found: AsFound) -> tuple[list[SetVfs | WriteFirmware], list[Problem]]:
    """What is still different from what was found, VF counts first, and what cannot be put back now and why."""
    seen = view(question)
    steps: list[SetVfs | WriteFirmware] = []
    problems: list[Problem] = []
    for port_id, count in sorted(found.vfs.items()):
        port = seen.ports.get(port_id)
        if port is None or port.num_vfs == count:
            continue
        why = _kept(seen, port) or _held(port, question.records.attachments)
        if why:
            problems.append(_stays(port, f"its VFs stay {port.num_vfs} instead of {count}: {why}"))
        else:
            steps.append(msgspec.structs.replace(set_vfs(port, count, ""), reason=WHY))
    back: list[Setting] = []
    for setting in found.settings:
        place = _place(seen, setting)
        if place is None:
            continue  # the card is gone, and its settings with it
        adapter, port = place
        now, why = _next(adapter, port, setting.name), _kept(seen, port)
        if setting.before is None:
            problems.append(_stays(port, f"{setting.name} before our first write was not readable"))
        elif now is not None and same_value(now, setting.before):
            continue
        elif now is None or why:
            problems.append(_stays(port, f"{setting.name} is not put back: {why or 'it cannot be read now'}"))
        else:
            back.append(Setting(pf=setting.pf, name=setting.name, value=setting.before, before=now))
    return [*steps, *writes(back, WHY, needs=None)], problems


def _place(seen: View, setting: Setting) -> tuple[Adapter, Port] | None:
    """The card of a setting, and the port that it is about: that of LINK_TYPE_P2 is the card's second one."""
    cards = {p.pf.address: a for a in seen.question.inventory.adapters for p in a.ports}
    adapter = cards.get(setting.pf)
    if adapter is None:
        return None
    number = setting.name.removeprefix("LINK_TYPE_P")
    port = next((p for p in adapter.ports if str(p.number) == number), None)
    return adapter, port or next(p for p in adapter.ports if p.pf.address == setting.pf)


def _next(adapter: Adapter, port: Port, name: str) -> str | None:
    if name.startswith("LINK_TYPE_P"):
        return link_type_of(port.next_mode) if port.next_mode is not None else None
    if name == "SRIOV_EN":
        return None if adapter.sriov_enabled_next is None else str(int(adapter.sriov_enabled_next))
    return None if adapter.num_vfs_next is None else str(adapter.num_vfs_next)


def _kept(seen: View, port: Port) -> str:
    found = untouchable(seen, seen.adapters[port.id], port) if port.id in seen.adapters else None
    return found.why if found is not None else ""


def _held(port: Port, records: Iterable[Attachment]) -> str:
    others = [h.detail for f in port.functions for h in foreign(f)]
    ours = [f"{r.target} {r.interface}" for r in records if r.port == port.id]
    return f"{(others + ours)[0]} uses a function of this port" if others or ours else ""


def _stays(port: Port, text: str) -> Problem:
    return Problem(
        severity="waiting",
        code="not-as-found",
        subject=f"port {port.id}",
        text=f"{port_label(port.id)}: {text}.",
        next_step="The card's configuration from before is kept in /var/lib/linkwright/backup; look: mstconfig "
        f"-d {port.pf.address} query",
    )
