"""Random hosts, policies, targets and histories for the planner's property tests.

A history is what people and containers do one after the other: documents change, containers stop and come back in
another namespace, a guest takes a function, somebody stages another mode. Between two events the host is settled
by the simulator, so every state is one that real work leads to.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from questions import ALL, IB, ROCE, adapter, function, policy, port, running, target

from linkwright.model.documents import Activation, Fabric, Functions, HostConfigSpec, Interface, LinkPolicy, Target
from linkwright.model.inventory import Adapter, Holder, Identity, Inventory, Port
from linkwright.model.plan import Desired, Question, TargetState
from linkwright.model.values import LinkMode, PortId

CARDS = ("0000:3b:00", "0000:5e:00", "0000:81:00")
NAMES = ("a", "b", "c", "d", "e")
MODES = st.sampled_from([IB, ROCE])
FABRICS = ("rail-0", "rail-1")

OWN = Holder(kind="route", detail="default route")
GUEST = Holder(kind="vfio", detail="pid 4711 (qemu)", pid=4711)
STRANGER = Holder(kind="netns", detail="netns of pid 99 (dockerd)", pid=99)


@st.composite
def ports(draw: st.DrawFn, card: str, number: int, quiet: bool) -> Port:
    mode = draw(MODES)
    can = draw(st.sampled_from([True, True, True, True, True, False, None]))
    fields: dict[str, Any] = {"can_change": can, "total_vfs": draw(st.sampled_from([0, 2, 4, 16, 16, 16]))}
    if can is False:
        fields |= {"next_mode": None, "current_mode": None}
    elif can is None:
        fields |= {"next_mode": draw(st.sampled_from([None, mode])), "current_mode": None}
    elif draw(st.integers(0, 5)) == 0:
        fields["next_mode"] = draw(st.sampled_from([None, IB, ROCE]))
    if draw(st.integers(0, 3)) == 0:
        carried = draw(st.sampled_from([(), (IB, ROCE), (IB, ROCE), (mode,)]))
        fields |= {"fabric": draw(st.sampled_from(FABRICS)), "fabric_modes": carried}
    holders = () if quiet else draw(st.sampled_from([*[()] * 10, (OWN,), (STRANGER,)]))
    pf = function(f"{card}.{number - 1}", None, *holders, away=holders == (STRANGER,))
    if draw(st.integers(0, 15)) == 0:
        fields["secondary_of"] = PortId(f"{card}.7/1")
    return port(number, mode, card=card, **(fields | {"pf": pf}))


@st.composite
def adapters(draw: st.DrawFn, card: str, quiet: bool) -> Adapter:
    count = draw(st.integers(1, 2))
    its = [draw(ports(card, n, quiet)) for n in range(1, count + 1)]
    total = max(p.total_vfs for p in its)
    firmware = draw(st.integers(0, 5)) > 0
    return adapter(
        *its,
        id=draw(st.sampled_from([f"{card}.0", f"guid-{card}"])),
        identity=Identity(part_number=draw(st.sampled_from(["MCX6", "MCX7", "MCX6", "MCX7", None])), psid="MT_1"),
        sriov_enabled_next=total > 0 if firmware else None,
        sriov_enabled_current=total > 0 if firmware else None,
        num_vfs_next=total if firmware else None,
        num_vfs_current=total if firmware else None,
        num_vfs_limit=draw(st.sampled_from([4, 16, 127, None])) if firmware else None,
    )


def inventories(quiet: bool = False) -> st.SearchStrategy[tuple[Adapter, ...]]:
    return st.integers(1, 3).flatmap(lambda n: st.tuples(*(adapters(card, quiet) for card in CARDS[:n])))


def cards(*its: str) -> dict[str, Any]:
    return {"pci_addresses": tuple(f"{c}.{n}" for c in its for n in (0, 1))}


SELECTORS = {
    "p": [cards(CARDS[0]), cards(CARDS[0]), cards(CARDS[0], CARDS[1]), {"ports": (1,)}, {"psids": ("MT_1",)}],
    "q": [cards(CARDS[1]), cards(CARDS[1], CARDS[2]), {"ports": (2,)}, {"fabrics": ("rail-0",)}],
}
FUNCTIONS = st.builds(
    Functions,
    assign=st.sampled_from(["Auto", "Auto", "Auto", "Auto", "PF", "VF"]),
    num_vfs=st.sampled_from([None, None, None, None, 1, 2, 4, 8, 200]),
)


@st.composite
def policies(draw: st.DrawFn, name: str) -> LinkPolicy:
    activation = Activation(
        approval=draw(st.sampled_from(["Auto", "Manual"])), drain=draw(st.sampled_from(["Detach"] * 5 + ["Wait"]))
    )
    made = policy(name, draw(MODES), activation=activation, **draw(st.sampled_from(SELECTORS[name])))
    return with_spec(made, functions=draw(FUNCTIONS))


def with_spec(made: LinkPolicy, **fields: Any) -> LinkPolicy:
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, **fields))


@st.composite
def targets(draw: st.DrawFn, name: str) -> Target:
    interfaces = [
        Interface(name=f"net{n}", fabric=draw(st.sampled_from([None] * 8 + [*FABRICS])))
        for n in range(1, draw(st.sampled_from([1, 1, 1, 2, 3])) + 1)
    ]
    group = draw(st.sampled_from([None, None, None, "job"]))
    return target(name, draw(st.sampled_from(["p", "p", "p", "q"])), *interfaces, group=group)


names = st.sampled_from(NAMES)
policy_names = st.sampled_from(["p", "p", "q"])


def container(kind: str, inode: int) -> TargetState:
    return running(inode) if kind == "running" else TargetState(state=kind)  # type: ignore[arg-type]


containers = st.builds(
    container,
    st.sampled_from(["running", "running", "stopped", "absent", "host-network", "unknown"]),
    st.integers(1, 999),
)
happenings = st.one_of(
    st.tuples(st.just("target"), names.flatmap(targets)),
    st.tuples(st.just("target"), names.flatmap(targets)),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("policy"), policy_names.flatmap(policies)),
    st.tuples(st.just("mode"), policy_names),
    st.tuples(st.just("functions"), policy_names, FUNCTIONS),
    st.tuples(st.just("container"), names, containers),
    st.tuples(st.just("staged"), st.integers(0, 5), MODES),
    st.tuples(st.just("guest"), st.integers(0, 5), st.integers(0, 3)),
)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Any]]:
    """A first event that declares something, and up to four more."""
    first: list[Any] = [("policy", draw(policies("p")))]
    if draw(st.booleans()):
        first.append(("policy", draw(policies("q"))))
    first += [("target", draw(targets(n))) for n in draw(st.lists(names, unique=True, min_size=1, max_size=4))]
    first += [("container", n, running(10 * i + 1)) for i, n in enumerate(NAMES)]
    return [first, *draw(st.lists(st.lists(happenings, min_size=1, max_size=2), max_size=4))]


def begin(its: tuple[Adapter, ...]) -> Question:
    host = HostConfigSpec(allow=ALL, fabrics={"rail-0": Fabric(link_modes=(IB, ROCE))})
    return Question(
        desired=Desired(host=msgspec.structs.replace(Desired().host, spec=host)),
        inventory=Inventory(host="gpu-01", boot_id="boot-1", adapters=its),
    )


def after_event(question: Question, event: list[Any]) -> Question:
    """The next question: changed policies count as new generations; ended namespaces give their function back."""
    for happening in event:
        question = _happens(question, *happening)
    return namespaces_ended(question)


def _happens(question: Question, what: str, *about: Any) -> Question:
    desired = question.desired
    wanted = {p.name: p for p in desired.policies}
    declared = {t.name: t for t in desired.targets}
    generations = dict(desired.generations)
    match what, about:
        case "target", (made,):
            declared[made.name] = made
        case "remove", (name,):
            declared.pop(name, None)
        case "policy", (made,):
            wanted[made.name] = made
        case "mode", (name,) if name in wanted:
            other = ROCE if wanted[name].spec.link_mode is IB else IB
            wanted[name] = with_spec(wanted[name], link_mode=other)
        case "functions", (name, made) if name in wanted:
            wanted[name] = with_spec(wanted[name], functions=made)
        case "container", (name, state):
            return msgspec.structs.replace(question, targets=question.targets | {name: state})
        case "staged", (number, mode):
            return _on_port(question, number, lambda p: _staged(p, mode))
        case "guest", (number, vf):
            return _on_port(question, number, lambda p: _guest(p, vf))
    for each in wanted.values():
        if {p.name: p for p in desired.policies}.get(each.name) != each:
            generations[each.name] = generations.get(each.name, 0) + 1
    desired = msgspec.structs.replace(
        desired, policies=tuple(wanted.values()), targets=tuple(declared.values()), generations=generations
    )
    return msgspec.structs.replace(question, desired=desired)


def _on_port(question: Question, number: int, change: Any) -> Question:
    every = [p.id for a in question.inventory.adapters for p in a.ports]
    return _ports(question, lambda p: change(p) if p.id == every[number % len(every)] else p)


def _ports(question: Question, change: Any) -> Question:
    its = tuple(
        msgspec.structs.replace(a, ports=tuple(change(p) for p in a.ports)) for a in question.inventory.adapters
    )
    return msgspec.structs.replace(question, inventory=msgspec.structs.replace(question.inventory, adapters=its))


def _staged(p: Port, mode: LinkMode) -> Port:
    return msgspec.structs.replace(p, next_mode=mode) if p.can_change else p


def _guest(p: Port, vf: int) -> Port:
    """A guest takes a VF that nobody has, or gives it back."""

    def one(f: Any) -> Any:
        if f.vf_index != vf or any(h.ours for h in f.holders):
            return f
        back = function(f.address, f.vf_index)
        taken = msgspec.structs.replace(f, driver="vfio-pci", netdev=None, holders=(GUEST,))
        return back if f.holders else taken

    return msgspec.structs.replace(p, vfs=tuple(one(f) for f in p.vfs))


def namespaces_ended(question: Question) -> Question:
    """The kernel gives a function back to the host when the namespace it was in has ended."""
    gone = {
        (r.port, r.vf_index)
        for r in question.records.attachments
        if r.netns_inode is not None and not _same_namespace(question, r.target, r.netns_inode)
    }

    def home(p: Port) -> Port:
        def one(f: Any) -> Any:
            if (p.id, f.vf_index) not in gone or not any(h.ours for h in f.holders):
                return f
            back = function(f.address, f.vf_index)
            return msgspec.structs.replace(f, netdev=back.netdev, net_elsewhere=False, holders=())

        return msgspec.structs.replace(p, pf=one(p.pf), vfs=tuple(one(f) for f in p.vfs))

    return _ports(question, home)


def _same_namespace(question: Question, name: str, inode: int) -> bool:
    state = question.targets.get(name, TargetState(state="absent"))
    return state.state == "unknown" or state.netns_inode == inode
