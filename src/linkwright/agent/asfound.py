"""What this host had before our first change, from the store: kept before the effect, used to go back to it.

Firmware values stand in the first mode change that wrote them (``Setting.before``); VF counts, and Next Boot where
it was put right without a change, in notes. After a way back is complete, what follows counts as new:
``before-since`` ends the older values.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from ..model.records import Setting
from ..model.values import PortId
from ..planner.undo import AsFound, first_settings
from ..store.db import Store

VFS = "vfs-before:"
WRITTEN = "next-boot-before:"
SINCE = "before-since:"
EVERYBODY = "*"


def keep_vfs(store: Store, port: str, count: int) -> None:
    """The VF count of before our first change of it; later ones leave it alone."""
    store.put_note(f"{VFS}{port}", str(count), keep=True)


class _Written(msgspec.Struct, frozen=True):
    at: float
    setting: Setting


def keep_settings(store: Store, settings: Iterable[Setting]) -> None:
    """Next Boot of before our first write, for writes that belong to no mode change."""
    for setting in settings:
        text = msgspec.json.encode(_Written(time.time(), setting)).decode()
        store.put_note(f"{WRITTEN}{setting.pf}/{setting.name}", text, keep=True)


def as_found(store: Store, policy: str | None = None) -> AsFound:
    """Of the whole host, or only what the changes of one policy wrote; VF counts are of every port."""
    since = {name: float(text) for name, text in store.notes(SINCE).items()}
    changes = store.every_change() if policy is None else store.change_history(policy, limit=10_000)
    after = max(since.get(EVERYBODY, 0.0), since.get(policy or EVERYBODY, 0.0))
    vfs = {PortId(port): int(count) for port, count in store.notes(VFS).items()}
    plain = [msgspec.json.decode(text, type=_Written) for text in store.notes(WRITTEN).values()]
    extra = [(each.at, each.setting) for each in plain] if policy is None else []
    return AsFound(settings=first_settings(changes, after, extra), vfs=vfs)


def taken_back(store: Store, policy: str | None, ports: set[str] | None = None) -> None:
    """The way back is complete: the next first write has before-values of its own."""
    store.put_note(f"{SINCE}{policy or EVERYBODY}", str(time.time()))
    for name in store.notes(WRITTEN) if policy is None else ():
        store.drop_note(f"{WRITTEN}{name}")
    for port in store.notes(VFS):
        if ports is None or port in ports:
            store.drop_note(f"{VFS}{port}")
