"""What an audit finds: pure, over one look (question, plan, marks) and the journal. Changes and reads nothing.

An audit is made when the reconcile loop has come to rest: what that would do by itself is no finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model.inventory import Adapter, Function, Port
from ..model.plan import Plan, Question
from ..model.records import Attachment, AttachmentState
from ..model.values import LinkMode, port_label
from ..store import OpenOperation
from ..targets.recovery import UNDER_WAY
from ..targets.scene import spare_name
from .finding import Finding
from .look import Marked, Seen

LIVE = (*UNDER_WAY, AttachmentState.ATTACHED)
ASK = "It is not done without a yes: linkwright audit --repair --yes"
DRIVER_LOOK = "Look: linkwright nics"


def findings(
    question: Question, made: Plan, seen: Seen, journal: Sequence[OpenOperation]
) -> tuple[Finding, ...]:  # fmt: skip
    """Each thing once, by code and place. ``made``: the plan of ``question``."""
    audit = _Audit(question, made, seen)
    found = [
        *audit.records(),
        *audit.links(),
        *audit.ports(),
        *_journal(question, journal),
    ]
    return tuple(sorted({f.key: f for f in found}.values(), key=lambda f: (f.code, f.where)))


class _Audit:
    def __init__(self, question: Question, made: Plan, seen: Seen) -> None:
        self.question = question
        self.seen = seen
        self.inventory = question.inventory
        self.decided = {d.port: d for d in made.decisions}
        self.protected = {u.partition(" (")[0]: u.partition(" (")[2].rstrip(")") for u in made.untouched}
        self.records_of = {(a.port, a.vf_index): a for a in question.records.attachments}
        self.ports_of = [(a, p) for a in self.inventory.adapters for p in a.ports]
        self.slot_of = {str(f.address): (p, f) for _, p in self.ports_of for f in p.functions}

    # -- records

    def records(self) -> Iterator[Finding]:
        declared = {(t.name, i.name) for t in self.question.desired.targets for i in t.spec.interfaces}
        for record in self.question.records.attachments:
            name = _name(record)
            port = self.inventory.port(record.port)
            function = _function(port, record.vf_index)
            if record.state is AttachmentState.QUARANTINED:
                yield self._quarantined(record)
            elif record.state in LIVE and function is None:
                yield _of(
                    code="attached-function-gone", about=record,
                    text=f"{name} is recorded as {record.state.value}, and {_slot(record)} does not exist now.",
                    repair="keep only its slot: it is attached again when the function is back", safe=True,
                )  # fmt: skip
            elif record.state is AttachmentState.ATTACHED and function is not None and function.netdev is not None:
                yield _of(
                    code="attached-not-there", about=record,
                    text=f"{name} is recorded as attached, and {_slot(record)} is on the host as "
                    f"{function.netdev.name}.",
                    repair="put back what it was before; it is attached again by itself", safe=True,
                )  # fmt: skip
            elif (record.target, record.interface) not in declared:
                yield self._undeclared(record, function)
            label = port_label(record.port)
            if label in self.protected and record.state is not AttachmentState.ASSIGNED:
                yield _of(
                    code="protected-in-use", about=record,
                    text=f"{name} has a function of {label}, which is protected: {self.protected[label]}.",
                    next_step=f"Take it back (linkwright detach {record.target}), or lift the protection.",
                )  # fmt: skip

    def _quarantined(self, record: Attachment) -> Finding:
        place = next((m for m in self.seen.links if m.function == record.function), None)
        held = place is not None and place.inode is not None
        known = record.before is not None
        how = "put back what it was before" if known else "bring it home and bind its driver anew"
        return _of(
            code="quarantined", about=record,
            text=f"{_slot(record)} is quarantined: {record.reason or 'no reason is recorded'}",
            repair=f"{how}, then free it", safe=known or not held,
            next_step="" if known or not held else ASK,
        )  # fmt: skip

    def _undeclared(self, record: Attachment, function: Function | None) -> Finding:
        idle = record.state is AttachmentState.ASSIGNED or function is None
        return _of(
            code="record-without-target", about=record,
            text=f"{_slot(record)} is kept for {_name(record)}, which no target declares any more.",
            repair="forget the record" if idle else "", safe=idle,
            next_step="" if idle else "Why it stays is in: linkwright status",
        )  # fmt: skip

    # -- netdevs

    def links(self) -> Iterator[Finding]:
        names = {i.name for t in self.question.desired.targets for i in t.spec.interfaces}
        for link in self.seen.links:
            slot = self.slot_of.get(link.function)
            if slot is None:
                continue
            port, function = slot
            record = self.records_of.get((port.id, function.vf_index))
            if record is not None and record.state is not AttachmentState.ASSIGNED:
                if link.mark and link.inode is not None and record.netns_inode not in (None, link.inode):
                    yield self._elsewhere(link, record)
                continue
            if link.inode is not None:
                if link.mark:
                    yield self._held(link)
                continue
            yield from self._at_home(link, port, function, names)

    def _elsewhere(self, link: Marked, record: Attachment) -> Finding:
        return Finding(
            code="attached-elsewhere", where=f"{record.target} {record.interface}", function=link.function,
            text=f"{link.function} is in network namespace {link.inode}, not in {record.netns_inode} as recorded.",
            next_step="Look which container has it, and stop that one.",
        )  # fmt: skip

    def _held(self, link: Marked) -> Finding:
        user = f"pid {link.pid}, " if link.pid else ""
        return Finding(
            code="held-without-record", where=link.function, function=link.function,
            text=f"{link.name} ({user}network namespace {link.inode}) is marked as {link.mark}, and no record "
            "says so.",
            repair="bring it home and bind its driver anew", safe=link.pid is None,
            next_step=ASK if link.pid else "",
        )  # fmt: skip

    def _at_home(self, link: Marked, port: Port, function: Function, names: set[str]) -> Iterator[Finding]:
        idle = not function.holders and (function.vf_index is not None or port.num_vfs == 0)
        renew = "bind its driver anew, so that the kernel gives it its own name and values"
        here = link.function
        if link.mark:
            yield Finding(
                code="mark-left", where=here, function=here, repair=renew, safe=idle,
                next_step="" if idle else ASK,
                text=f"{link.name} is marked as {link.mark}, and nobody has it.",
            )  # fmt: skip
        elif link.name == spare_name(link.function) or link.name in names:
            yield Finding(
                code="name-left", where=here, function=here, repair=renew,
                safe=idle and link.name not in names,
                next_step="" if idle and link.name not in names else ASK,
                text=f"its netdev is called {link.name}, a name that only an interrupted release gives.",
            )  # fmt: skip
        if self._rdma_lost(function):
            yield Finding(
                code="rdma-elsewhere", where=here, function=here, repair=renew, safe=idle,
                next_step="" if idle else ASK,
                text=f"{link.name} is on the host, and its RDMA device is not.",
            )  # fmt: skip
        if left := [name for name in link.altnames if name in names]:
            yield Finding(
                code="altname-left", where=here, function=here,
                repair=f"take the alternative name {', '.join(left)} away",
                next_step=ASK,
                text=f"{link.name} has the alternative name {', '.join(left)}, as an interface of a target has.",
            )  # fmt: skip
        if len(link.address) == 17 and link.permanent_address not in ("", link.address) and function.is_pf:
            yield Finding(
                code="mac-left", where=here, function=here,
                repair=f"set {link.permanent_address}", next_step=ASK,
                text=f"{link.name} has the address {link.address}; its own is {link.permanent_address}.",
            )  # fmt: skip
        if function.is_pf and port.id not in self.decided and link.mtu > 1500 and len(link.address) == 17:
            yield Finding(
                code="mtu-left", where=here, function=here, repair="set 1500", next_step=ASK,
                text=f"{link.name} has an MTU of {link.mtu}, and no policy names its port.",
            )  # fmt: skip

    def _rdma_lost(self, function: Function) -> bool:
        """Its netdev is at home and its RDMA device is not, while one is somewhere that no record explains."""
        if self.inventory.rdma_netns != "exclusive" or function.rdma is not None or function.driver is None:
            return False
        explained = {
            r.before.rdma_guid
            for r in self.question.records.attachments
            if r.before is not None and r.state in LIVE
        }
        return bool(self.seen.rdma_elsewhere.keys() - explained)

    # -- ports

    def ports(self) -> Iterator[Finding]:
        changing = {p for c in self.question.records.changes if c.open for p in c.ports}
        for adapter, port in self.ports_of:
            decided, label = self.decided.get(port.id), port_label(port.id)
            users = [r for r in self.question.records.attachments if r.port == port.id]
            if port.num_vfs and decided is None and not users and not port.secondary_of:
                free = not any(f.holders for f in port.vfs)
                yield Finding(
                    code="vfs-without-policy", where=label, function=port.pf.address,
                    text=f"{label} has {port.num_vfs} VFs, and no policy names it.",
                    repair="take the VFs away" if free else "", next_step=ASK if free else DRIVER_LOOK,
                )  # fmt: skip
            if decided is not None:
                yield from (_unbound(f) for f in port.functions if f.driver is None and f.driver_override is None)
            if port.id not in changing:
                yield from self._staged(adapter, port, decided.desired if decided else None)

    def _staged(self, adapter: Adapter, port: Port, desired: LinkMode | None) -> Iterator[Finding]:
        """``next`` differs from ``current``, and no policy and no change under way wants it."""
        label = port_label(port.id)
        nxt, now = port.next_mode, port.current_mode
        if nxt is not None and now is not None and nxt is not now and nxt is not desired:
            yield Finding(
                code="staged-unwanted", where=label, function=port.pf.address,
                text=f"the next restart makes {label} {nxt.value} (now {now.value}), and nobody wants that.",
                repair=f"write {now.value} back; it needs no restart", next_step=ASK,
            )  # fmt: skip


def _unbound(function: Function) -> Finding:
    return Finding(
        code="driver-missing", where=function.address, function=function.address,
        text=f"{function.label} {function.address} has no driver, and a policy names its port.",
        repair="have the kernel choose a driver", next_step=ASK,
    )  # fmt: skip


def _journal(question: Question, journal: Sequence[OpenOperation]) -> Iterator[Finding]:
    under_way = {f"{a.target}/{a.interface}" for a in question.records.attachments if a.state in UNDER_WAY}
    for operation in journal:
        if operation.subject not in under_way:
            yield Finding(
                code="journal-open", where=operation.subject,
                text=f"{operation.kind} of {operation.subject} was begun, not ended, and nothing carries it on.",
                repair="close it in the journal", safe=True,
            )  # fmt: skip


def _function(port: Port | None, vf_index: int | None) -> Function | None:
    if port is None:
        return None
    return next((f for f in port.functions if f.vf_index == vf_index), None)


def _of(
    *, code: str, about: Attachment, text: str, repair: str = "", safe: bool = False, next_step: str = ""
) -> Finding:
    """A finding about a record."""
    return Finding(
        code=code, where=_name(about), text=text, repair=repair, safe=safe, next_step=next_step,
        target=about.target, interface=about.interface, function=about.function or "",
    )  # fmt: skip


def _name(record: Attachment) -> str:
    return f"{record.target} {record.interface}"


def _slot(record: Attachment) -> str:
    return f"{port_label(record.port)} {'PF' if record.vf_index is None else f'VF {record.vf_index}'}"
