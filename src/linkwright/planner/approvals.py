"""Approval keys: each names exactly what it agrees to, so that a yes given for one impact never covers another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ..model.plan import Approval
from ..model.records import ModeChange
from ..model.values import port_label


def change_key(change: ModeChange) -> str:
    """``change:<policy>:<generation>:<mode>:<hash of the interrupted targets>``; pure in the change's fields."""
    names = "\n".join(sorted(change.targets))
    digest = hashlib.sha256(names.encode()).hexdigest()[:12] if names else "none"
    return f"change:{change.policy}:{change.generation}:{change.wanted.value}:{digest}"


def convert_key(port: str, form: str, targets: Iterable[str]) -> str:
    """``convert:<port>:<PF, or VF and their number>:<interrupted targets>``."""
    return f"convert:{port}:{form}:{','.join(sorted(targets))}"


def change_approval(change: ModeChange, what: str, beside: Iterable[str]) -> Approval:
    """``what``: the change in words. ``beside``: what else stops with the host (its own traffic), named."""
    text = f"restart this host for {what} (policy {change.policy}, generation {change.generation})"
    text += f"; interrupts {', '.join(change.targets)}" if change.targets else "; no target is attached"
    others = ", ".join(beside)
    if others:
        text += f"; this host's own traffic stops meanwhile: {others}"
    return Approval(key=change_key(change), text=text, interrupts=change.targets, restarts=True)


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
