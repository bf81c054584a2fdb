"""What people may ask of the agent: check it, store it, wake the loop. The HTTP layer only translates.

Nothing here touches a card or the kernel beyond reading. A request is either stored whole, with its history
line, in one transaction, or refused with no effect.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from ..model import load
from ..model.documents import Document, HostConfig, LinkPolicy, Target
from ..model.errors import InvalidInput, NeedsPerson, Refused
from ..model.plan import Approval, Desired, Plan, Problem, Question
from ..model.records import HistoryEntry, ModeChange
from ..planner import plan
from . import engine, replaced, restoring, uninstalling
from .asfound import as_found
from .world import World

# What cannot be carried out as it is written is refused when it is applied, not after a drain.
REFUSED_ON_APPLY = frozenset({"fixed-mode", "fabric-lacks-mode", "num-vfs-limit", "rdma-name-taken", "dpu-mode"})


class Requests:
    """Thread-safe: every method reads, decides and stores in one go."""

    def __init__(self, world: World) -> None:
        self._world = world

    def plan(self, objects: list[Any]) -> Plan:
        """What would happen; stores nothing."""
        return self._plan(_documents(objects))[1]

    def apply(self, objects: list[Any], approvals: Iterable[str], who: str, why: str) -> dict[str, Any]:
        """Store the documents and the yeses given; returns generations, plan and the progress cursor."""
        documents = _documents(objects)
        asked = uninstalling.running(self._world.store)
        if asked:
            raise Refused(
                f"this host is being given back as it was found ({asked})",
                rule=4,
                code="uninstalling",
                holder=asked,
                next_step="Look: linkwright uninstall. When it is done, apply again.",
            )
        made = self._plan(documents)[1]
        _refuse(documents, made.problems)
        keys = set(approvals)
        unknown = keys - {a.key for a in made.approvals}
        if unknown:
            raise Refused(
                "the plan changed since it was shown: " + ", ".join(sorted(unknown)),
                rule=1,
                code="plan-changed",
                next_step="Look at the new plan (linkwright plan) and apply again.",
            )
        store, cursor = self._world.store, self._world.progress.last
        generations: dict[str, int] = {}
        with store.transaction():
            for document in documents:
                old: LinkPolicy | Target | None
                if isinstance(document, LinkPolicy):
                    before = store.generations().get(document.name, 0)
                    old = next((p for p in store.policies() if p.name == document.name), None)
                    store.drop_note(f"{restoring.NOTE}{document.name}")
                    generations[f"LinkPolicy/{document.name}"] = generation = store.put_policy(document)
                elif isinstance(document, Target):
                    before = store.target_generations().get(document.name, 0)
                    old = next((t for t in store.targets() if t.name == document.name), None)
                    generations[f"Target/{document.name}"] = generation = store.put_target(document)
                if before != generation:
                    what = f"apply {type(document).__name__} {document.name} generation {generation}"
                    store.add_history(
                        HistoryEntry(
                            at=time.time(),
                            who=who,
                            what=what,
                            why=why,
                            before=_text(old),
                            after=_text(document),
                        )
                    )
            if keys:
                store.add_approvals(keys, who)
        self._world.ask("apply")
        return {"generations": generations, "plan": msgspec.to_builtins(made), "cursor": cursor}

    def delete(self, kind: str, name: str, who: str, why: str) -> dict[str, Any]:
        store, cursor = self._world.store, self._world.progress.last
        users = [t.name for t in store.targets() if t.spec.policy == name] if kind == "LinkPolicy" else []
        if users:
            raise Refused(
                f"targets use it: {', '.join(users)}",
                rule=1,
                code="policy-in-use",
                where=f"policy {name}",
                holder=", ".join(users),
                next_step=f"Detach them first: linkwright detach {users[0]}",
            )
        if kind == "LinkPolicy":
            return self._delete_policy(name, who, why, cursor)
        old = next((t for t in store.targets() if t.name == name), None)
        if old is None:
            raise _not_found(kind, name)
        with store.transaction():
            store.delete_target(name)
            store.add_history(_deleted(kind, old, who, why, ""))
        self._world.ask("delete")
        return {"deleted": f"{kind}/{name}", "cursor": cursor}

    def _delete_policy(self, name: str, who: str, why: str, cursor: int) -> dict[str, Any]:
        """``onDelete: Keep``: gone, and what is there stays. ``Restore``: it stays until the way back is complete;
        deleted once more meanwhile, it is gone at once."""
        store = self._world.store
        old = next((p for p in store.policies() if p.name == name), None)
        if old is None:
            raise _not_found("LinkPolicy", name)
        question, made = self._plan([])
        ports = [d.port for d in made.decisions if d.policy == name]
        back: list[LinkPolicy] = []
        if old.spec.on_delete == "Restore" and name not in restoring.restoring(store):
            back = restoring.way_back(old, ports, as_found(store, name), question)
        said = restoring.what_stays(ports, question)
        if back:
            said = [restoring.in_words(document) for document in back]
        with store.transaction():
            store.drop_note(f"{restoring.NOTE}{name}")
            if back:
                for document in back:
                    store.put_policy(document)
                    store.put_note(f"{restoring.NOTE}{document.name}", who)
            else:
                store.delete_policy(name)
            store.add_history(_deleted("LinkPolicy", old, who, why, "; ".join(said)))
        self._world.ask("delete")
        return {"deleted": f"LinkPolicy/{name}", "restoring": bool(back), "said": said, "cursor": cursor}

    def uninstall_offer(self) -> dict[str, Any]:
        """What an uninstall would do now; changes nothing."""
        made: dict[str, Any] = msgspec.to_builtins(uninstalling.offer(self._world, self._world.look(fresh=True)))
        return made

    def uninstall(self, key: str, who: str, why: str) -> dict[str, Any]:
        """Begin it; ``key`` is the offer's and names whom it interrupts."""
        cursor = self._world.progress.last
        uninstalling.begin(self._world, self._world.look(fresh=True), key, who, why)
        self._world.ask("uninstall")
        return {"cursor": cursor}

    def approve(self, policy: str | None, keys: Iterable[str], who: str, why: str) -> dict[str, Any]:
        """Say yes to what the present plan asks for: all of one policy, or exact keys."""
        made, cursor = self._plan([])[1], self._world.progress.last
        asked = {a.key: a for a in made.approvals}
        wanted = set(keys) or {k for k, a in asked.items() if policy and policy_of(a, made) == policy}
        if not wanted or wanted - set(asked):
            raise InvalidInput(
                "nothing waits for this yes" if not wanted else "not asked for: " + ", ".join(wanted - set(asked)),
                code="nothing-to-approve",
                where=policy or "",
                next_step="Look: linkwright status",
            )
        with self._world.store.transaction():
            self._world.store.add_approvals(wanted, who)
            for key in sorted(wanted):
                self._world.store.add_history(
                    HistoryEntry(at=time.time(), who=who, what=f"approve: {asked[key].text}", why=why)
                )
        self._world.ask("approve")
        return {"approved": sorted(wanted), "cursor": cursor}

    def retry(self, policy: str, who: str, why: str) -> dict[str, Any]:
        if not why.strip():
            raise InvalidInput("a retry needs a reason", field="reason", next_step='Add --reason "…".')
        question, cursor = self._world.look(fresh=True), self._world.progress.last
        change = next((c for c in question.records.changes if c.policy == policy), None)
        if change is None:
            raise NeedsPerson(
                "has no change to retry",
                code="nothing-to-retry",
                where=f"policy {policy}",
                next_step="Look: linkwright status",
            )
        again: ModeChange = engine.retry(change, question)
        with self._world.store.transaction():
            self._world.store.put_change(again)
            self._world.store.add_history(
                HistoryEntry(
                    at=time.time(),
                    who=who,
                    what=f"retry policy {policy} generation {change.generation}",
                    why=why,
                    before=f"{change.phase.value}: {change.detail}",
                    after=again.phase.value,
                )
            )
        self._world.ask("retry")
        return {"phase": again.phase.value, "cursor": cursor}

    def freeze(self, frozen: bool, who: str, why: str) -> dict[str, Any]:
        store, cursor = self._world.store, self._world.progress.last
        with store.transaction():
            if frozen:
                store.freeze(f"{who}: {why}" if why else who)
            else:
                store.unfreeze()
            store.add_history(
                HistoryEntry(at=time.time(), who=who, what="freeze" if frozen else "unfreeze", why=why)
            )
        self._world.ask("freeze")
        return {"frozen_by": store.frozen_by(), "cursor": cursor}

    def replace_adapter(self, address: str, who: str, why: str) -> dict[str, Any]:
        """Accept another card in the place of the known one."""
        return replaced.accept(self._world, address, who, why)

    def _plan(self, documents: list[LinkPolicy | Target]) -> tuple[Question, Plan]:
        desired = with_documents(self._world.desired(), documents)
        question = self._world.look(desired, fresh=True)
        return question, plan(question)


def with_documents(desired: Desired, documents: Iterable[LinkPolicy | Target]) -> Desired:
    """What would be desired if the documents were applied; a changed policy counts as the next generation."""
    policies = {p.name: p for p in desired.policies}
    targets = {t.name: t for t in desired.targets}
    generations = dict(desired.generations)
    for document in documents:
        if isinstance(document, LinkPolicy):
            if policies.get(document.name) != document:
                generations[document.name] = generations.get(document.name, 0) + 1
            policies[document.name] = document
        else:
            targets[document.name] = document
    return msgspec.structs.replace(
        desired,
        policies=tuple(policies.values()),
        targets=tuple(targets.values()),
        generations=generations,
    )


def _deleted(kind: str, old: LinkPolicy | Target, who: str, why: str, after: str) -> HistoryEntry:
    return HistoryEntry(
        at=time.time(), who=who, what=f"delete {kind} {old.name}", why=why, before=_text(old), after=after
    )


def _not_found(kind: str, name: str) -> InvalidInput:
    return InvalidInput(
        f"there is no {kind} of this name", code="not-found", where=name, next_step="Look: linkwright status"
    )


def _text(document: LinkPolicy | Target | None) -> str:
    return "" if document is None else msgspec.json.encode(document).decode()


def policy_of(approval: Approval, made: Plan) -> str | None:
    """Whom a yes belongs to: keys are ``change:<policy>:…`` or ``convert:<port>:…``."""
    kind, _, rest = approval.key.partition(":")
    if kind == "change":
        return rest.split(":", 1)[0]
    return next((d.policy for d in made.decisions if rest.startswith(d.port)), None)


def _documents(objects: list[Any]) -> list[LinkPolicy | Target]:
    documents: list[Document] = load.documents_from_json(objects)
    kept: list[LinkPolicy | Target] = []
    for document in documents:
        if isinstance(document, HostConfig):
            raise InvalidInput(
                "HostConfig is this host's own file and is not applied",
                code="host-config-not-applied",
                field="kind",
                next_step="Edit /etc/linkwright/host.yaml; it is read at every look.",
            )
        kept.append(document)
    return kept


def _refuse(documents: list[LinkPolicy | Target], problems: tuple[Problem, ...]) -> None:
    names = {f"{'policy' if isinstance(d, LinkPolicy) else 'target'} {d.name}" for d in documents}
    for problem in problems:
        if problem.severity == "refused" and problem.code in REFUSED_ON_APPLY and problem.subject in names:
            raise Refused(
                problem.text,
                rule=problem.rule or 4,
                code=problem.code,
                where=problem.subject,
                holder=problem.holder,
                next_step=problem.next_step,
            )
