"""The agent's answers as values: GET /v1/status, /v1/nics, /v1/history and the events of /v1/watch.

Unknown fields are ignored and missing ones have defaults, so that a command line of one version reads an
agent of the next.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from linkwright.model.documents import Allow
from linkwright.model.inventory import Inventory
from linkwright.model.plan import Approval, Plan, PortDecision, Problem, SetVfs, WriteFirmware
from linkwright.model.records import HistoryEntry, ModeChange, Phase
from linkwright.model.values import LinkMode

T = TypeVar("T")


class PolicyView(Struct, frozen=True, kw_only=True):
    name: str
    generation: int = 0
    link_mode: LinkMode | None = None
    ports: tuple[str, ...] = ()
    state: str = ""
    problems: tuple[Problem, ...] = ()


class InterfaceView(Struct, frozen=True, kw_only=True):
    """One interface of a target and the function it has; ``since`` is seconds since the epoch."""

    name: str
    port: str | None = None
    function: str | None = None
    vf_index: int | None = None
    mode: LinkMode | None = None
    state: str = ""
    reason: str = ""
    since: float | None = None


class TargetView(Struct, frozen=True, kw_only=True):
    """``running`` is what the runtime says: running, stopped, absent, host-network, unknown."""

    name: str
    policy: str = ""
    interfaces: tuple[InterfaceView, ...] = ()
    running: str = "unknown"
    state: str = ""
    reason: str = ""


class Station(Struct, frozen=True, kw_only=True):
    """One station of a mode change; ``at`` is when it was reached, in seconds since the epoch."""

    phase: Phase
    state: Literal["done", "now", "todo", "failed", "waiting"] = "todo"
    at: float | None = None
    detail: str = ""


class ChangeView(ModeChange, frozen=True, kw_only=True):
    stations: tuple[Station, ...] = ()


class StatusView(Struct, frozen=True, kw_only=True):
    host: str = ""
    boot_id: str = ""
    version: str = ""
    allow: Allow = Allow()
    frozen_by: str = ""
    policies: tuple[PolicyView, ...] = ()
    targets: tuple[TargetView, ...] = ()
    changes: tuple[ChangeView, ...] = ()
    approvals: tuple[Approval, ...] = ()
    problems: tuple[Problem, ...] = ()


class NicsView(Struct, frozen=True, kw_only=True):
    """``allow`` is None where the host has no configuration file: then Linkwright only observes."""

    inventory: Inventory
    decisions: tuple[PortDecision, ...] = ()
    allow: Allow | None = None


class UninstallView(Struct, frozen=True, kw_only=True):
    """GET /v1/uninstall: what would go, whom it interrupts, what would be put back and what cannot be."""

    policies: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    interrupts: tuple[str, ...] = ()
    steps: tuple[SetVfs | WriteFirmware, ...] = ()
    problems: tuple[Problem, ...] = ()
    running: bool = False
    key: str = ""


class HistoryView(Struct, frozen=True, kw_only=True):
    history: tuple[HistoryEntry, ...] = ()


class Event(Struct, frozen=True, kw_only=True):
    """One line of /v1/watch. ``seq`` counts up in one life of the agent. ``awaited`` is what is waited for since
    ``since``, at most ``limit_s`` seconds; ``settled``: nothing more happens until somebody or something asks."""

    seq: int = 0
    at: float = 0.0
    kind: str = ""
    subject: str = ""
    text: str = ""
    phase: str | None = None
    awaited: str | None = None
    since: float | None = None
    limit_s: float | None = None
    settled: bool = False


class Applied(Struct, frozen=True, kw_only=True):
    """The answer to POST /v1/apply; ``cursor`` is the event number after which its effects are told."""

    generations: dict[str, int] = {}
    plan: Plan = Plan()
    cursor: int = 0


def read(value: Any, kind: type[T]) -> T:
    """An answer as a value; raises msgspec.ValidationError where it does not fit."""
    return msgspec.convert(value, kind, strict=False)
