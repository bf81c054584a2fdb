"""Approval keys: each names exactly what it agrees to, so that a yes given for one impact never covers another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ..model.documents import Activation
from ..model.plan import Approval
from ..model.records import ModeChange
from ..model.values import port_label


def change_key(change: ModeChange) -> str:
    """``change:<policy>:<generation>:<mode>:<hash of whom it may interrupt>``; pure in the change's fields. A
    reset has a key of its own, since it also names whom the restart after a failed one would interrupt."""
    names = "\n".join(sorted(change.targets))
    if change.method == "FirmwareReset":
        names += "\nreset, else:\n" + "\n".join(change.also_interrupts)
    digest = hashlib.sha256(names.encode()).hexdigest()[:12] if names else "none"
    return f"change:{change.policy}:{change.generation}:{change.wanted.value}:{digest}"


def convert_key(port: str, form: str, targets: Iterable[str]) -> str:
    """``convert:<port>:<PF, or VF and their number>:<interrupted targets>``."""
    return f"convert:{port}:{form}:{','.join(sorted(targets))}"


def change_approval(
    change: ModeChange, what: str, beside: Iterable[str], activation: Activation
) -> Approval:
    """``what``: the change in words. ``beside``: what else stops with the host (its own traffic), named."""
    of = f"for {what} (policy {change.policy}, generation {change.generation})"
    if change.method == "External":
        return Approval(key=change_key(change), text=f"write the next boot {of}; nobody is interrupted by us")
    cards = sorted({s.pf for s in change.settings})
    text = f"restart this host {of}" if change.method == "Reboot" else f"reset the card of {', '.join(cards)} {of}"
    if activation.drain == "Wait":
        text += "; waits until nobody holds a function"
    else:
        text += f"; interrupts {', '.join(change.targets)}" if change.targets else "; no target is attached"
    if change.method == "FirmwareReset" and activation.method == "Auto" and activation.drain == "Detach":
        also = f", which also interrupts {', '.join(change.also_interrupts)}" if change.also_interrupts else ""
        text += f"; if the reset fails, restart this host{also}"
    if activation.on_failure == "Rollback":
        text += "; if it fails, once back again the same way"
    others = ", ".join(beside)
    if others:
        text += f"; this host's own traffic stops meanwhile: {others}"
    restarts = change.method == "Reboot"
    return Approval(key=change_key(change), text=text, interrupts=change.targets, restarts=restarts)


def convert_approval(key: str, port: str, before: int, count: int, targets: tuple[str, ...]) -> Approval:
    who = ", ".join(targets)
    if before == 0:
        text = f"convert {port_label(port)} from its PF to {count} VFs; interrupts {who}"
    elif count == 0:
        text = f"convert {port_label(port)} from {before} VFs to its PF; interrupts {who}"
    elif before == count:
        text = f"give {who} other functions of {port_label(port)}"
    else:
        text = f"change the VFs of {port_label(port)} from {before} to {count}; interrupts {who}"
    return Approval(key=key, text=text, interrupts=targets)
