"""What attaching and detaching need of their surroundings, as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from linkwright.kernel.links import Links
from linkwright.kernel.rdma import Rdma
from linkwright.kernel.system import System
from linkwright.store import Store

from .steps import Moment


def _silent(moment: Moment, subject: str, step: str) -> None:
    pass


@dataclass(frozen=True)
class Context:
    """``host_rdma_netns``: ``exclusive``, ``shared`` or None (no RDMA). ``wait_s``: how long a device that the
    kernel gives back is awaited, by events, before its driver is bound anew; the kernel's own clean-up of a dead
    namespace may lag by seconds. ``watch(moment, subject, step)`` is called around every effect."""

    system: System
    store: Store
    links: Links
    rdma: Rdma
    boot_id: str
    host_rdma_netns: str | None = None
    wait_s: float = 15.0
    watch: Callable[[Moment, str, str], None] = _silent
