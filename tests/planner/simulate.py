"""A pure host for property tests: takes a plan's steps on the inventory and refuses what a real host would punish.

Each step asserts the interlock before it acts: nothing is given twice, no VF count changes and no host restarts
under somebody whom the plan did not name. ``Card`` says how the firmware behaves on a restart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from linkwright.model.inventory import Adapter, Function, Holder, Netdev, Port
from linkwright.model.plan import (
    Attach,
    Detach,
    Plan,
    Question,
    RestartHost,
    SetVfs,
    Step,
    TargetState,
    Verify,
    WriteFirmware,
)
from linkwright.model.records import Attachment, AttachmentState, ModeChange, Phase, Setting
from linkwright.model.values import LinkMode, PciAddress
from linkwright.planner import plan
from linkwright.planner.attach import wish_of
from linkwright.planner.view import strangers

MODES = {"1": LinkMode.INFINIBAND, "2": LinkMode.ROCE}
LIVE = (AttachmentState.ATTACHED, AttachmentState.ATTACHING, AttachmentState.DETACHING)


@dataclass
class Simulation:
    """``obeys``: does the card load Next Boot on a restart? ``restarts`` counts them by what they were for."""

    question: Question
    obeys: bool = True
    restarts: list[tuple[ModeChange, ...]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    # -- running -------------------------------------------------------------------------------------------

    def settle(self, approve: bool = True, rounds: int = 12) -> Plan:
        """Plan and take steps until a plan has none that may be taken; returns that plan."""
        for _ in range(rounds):
            made = plan(self.question)
            if approve and made.approvals:
                given = self.question.records.approvals | {a.key for a in made.approvals}
                self._records(approvals=frozenset(given))
                made = plan(self.question)
            self._keep_slots(made)
            if [s for s in made.steps if self._may(s)]:
                self.take(made)
            elif not self._awaited_end(made):
                return made
        raise AssertionError(f"no end: {[type(s).__name__ for s in plan(self.question).steps]}")

    def take(self, made: Plan) -> None:
        """As the executor does: slots first, then the steps in order; a restart ends the pass."""
        self._keep_slots(made)
        for step in made.steps:
            if not self._may(step):
                continue
            self.steps.append(step)
            match step:
                case WriteFirmware():
                    self._write(step)
                case Detach():
                    self._detach(step)
                case SetVfs():
                    self._set_vfs(step)
                case Attach():
                    self._attach(step)
                case RestartHost():
                    self._restart(step, made)
                    return
                case Verify():
                    pass

    def _awaited_end(self, made: Plan) -> bool:
        """``drain: Wait``: whoever is waited for ends by itself."""
        ending = {n for p in made.problems if p.code == "drain-waits" for n in p.holder.split(", ")}
        for record in self.question.records.attachments:
            if record.target in ending and record.state in LIVE:
                self._function(record.port, record.vf_index, home=True)
        stopped = dict.fromkeys(ending, TargetState(state="stopped"))
        self.question = msgspec.structs.replace(self.question, targets=self.question.targets | stopped)
        return bool(ending)

    def _keep_slots(self, made: Plan) -> None:
        for assignment in made.assignments:
            if self._record(assignment.target, assignment.interface) is None:
                self._keep(assignment)

    def _may(self, step: Step) -> bool:
        return step.needs is None or step.needs in self.question.records.approvals

    # -- steps ---------------------------------------------------------------------------------------------

    def _write(self, step: WriteFirmware) -> None:
        every = self.question.inventory.adapters
        adapter = next(a for a in every if any(p.pf.address == step.pf for p in a.ports))
        for setting in step.settings:
            adapter = told(adapter, setting)
        self._adapter(adapter)

    def _detach(self, step: Detach) -> None:
        record = self._record(step.target, step.interface)
        assert record is not None
        if record.state in LIVE and record.boot_id == self.question.inventory.boot_id:
            state = self.question.targets.get(step.target)
            if state is not None and state.state == "running" and self._away(record):
                assert step.target in step.interrupts, "an unnamed target is interrupted"
            self._function(record.port, record.vf_index, home=True)
        if step.forget:
            self._drop(record)
        else:
            self._keep(msgspec.structs.replace(record, state=AttachmentState.ASSIGNED, netns_inode=None))

    def _set_vfs(self, step: SetVfs) -> None:
        port = self._port(step.port)
        assert not [h for f in port.functions for h in f.holders], f"VFs of {step.port} change under a holder"
        assert step.before == port.num_vfs
        assert step.count <= port.total_vfs, "more VFs than the kernel allows"
        bus = port.pf.address.split(":")[1]
        vfs = tuple(
            Function(
                address=PciAddress(f"0001:{bus}:{port.number + i // 8 * 2:02x}.{i % 8}"),
                vf_index=i,
                driver="mlx5_core",
                netdev=_netdev(f"v{i}", port.observed_mode),
            )
            for i in range(step.count)
        )
        self._set_port(msgspec.structs.replace(port, num_vfs=step.count, vfs=vfs))

    def _attach(self, step: Attach) -> None:
        port = self._port(step.port)
        state = self.question.targets[step.target]
        assert state.state == "running"
        assert (step.vf_index is None) == (port.num_vfs == 0), "PF and VFs of one port at once"
        assert port.current_mode in (None, step.mode), "given in the wrong mode"
        assert port.observed_mode in (None, step.mode), "given in the wrong mode"
        function = next((f for f in port.functions if f.vf_index == step.vf_index), None)
        assert function is not None, f"{step.port} has no VF {step.vf_index}"
        assert not function.holders, "a function is given to a second holder"
        assert function.netdev is not None, "a function is given that is not here"
        others = [
            r
            for r in self.question.records.attachments
            if (r.port, r.vf_index) == (step.port, step.vf_index)
            and (r.target, r.interface) != (step.target, step.interface.name)
        ]
        assert not others, f"the slot is recorded for {others[0].target} as well"
        self._function(step.port, step.vf_index, home=False, target=step.target)
        self._keep(
            Attachment(
                target=step.target,
                interface=step.interface.name,
                policy=step.policy,
                generation=step.generation,
                port=step.port,
                vf_index=step.vf_index,
                state=AttachmentState.ATTACHED,
                netns_inode=state.netns_inode,
                rdma_name=step.interface.rdma_name,
                wish=wish_of(step.interface),
                boot_id=self.question.inventory.boot_id,
            )
        )

    def _restart(self, step: RestartHost, made: Plan) -> None:
        """Interlock rule 2: everybody who holds a function is named, nobody else's function is in use."""
        for adapter in self.question.inventory.adapters:
            for port in adapter.ports:
                assert not strangers(port), "restarted under a stranger"
                for held in (h for f in port.functions for h in f.holders if h.ours):
                    assert held.target in step.interrupts, f"{held.target} was not named"
        begun = tuple(c for c in made.changes if not any(a.key.startswith(_start(c)) for a in made.approvals))
        self.restarts.append(begun)
        inventory = self.question.inventory
        adapters = tuple(rebooted(a, self.obeys) for a in inventory.adapters)
        boot = f"boot-{len(self.restarts) + 1}"
        phase = Phase.DONE if self.obeys else Phase.FAILED
        ended = [msgspec.structs.replace(c, phase=phase, activations=1) for c in begun]
        names = {c.policy for c in ended}
        self.question = msgspec.structs.replace(
            self.question, inventory=msgspec.structs.replace(inventory, adapters=adapters, boot_id=boot)
        )
        self._records(
            attachments=tuple(
                msgspec.structs.replace(r, state=AttachmentState.ASSIGNED, netns_inode=None)
                for r in self.question.records.attachments
            ),
            changes=(*(c for c in self.question.records.changes if c.policy not in names), *ended),
        )

    # -- the state -----------------------------------------------------------------------------------------

    def _records(self, **fields: object) -> None:
        records = msgspec.structs.replace(self.question.records, **fields)
        self.question = msgspec.structs.replace(self.question, records=records)

    def _record(self, target: str, interface: str) -> Attachment | None:
        return next(
            (r for r in self.question.records.attachments if (r.target, r.interface) == (target, interface)), None
        )

    def _keep(self, record: Attachment) -> None:
        others = tuple(
            r
            for r in self.question.records.attachments
            if (r.target, r.interface) != (record.target, record.interface)
        )
        self._records(attachments=(*others, record))

    def _drop(self, record: Attachment) -> None:
        self._records(attachments=tuple(r for r in self.question.records.attachments if r != record))

    def _away(self, record: Attachment) -> bool:
        port = self.question.inventory.port(record.port)
        functions = port.functions if port is not None else ()
        return any(f.vf_index == record.vf_index and f.net_elsewhere for f in functions)

    def _port(self, port_id: str) -> Port:
        port = self.question.inventory.port(port_id)
        assert port is not None
        return port

    def _set_port(self, port: Port) -> None:
        adapter = self.question.inventory.adapter_of(port.id)
        assert adapter is not None
        ports = tuple(port if p.id == port.id else p for p in adapter.ports)
        self._adapter(msgspec.structs.replace(adapter, ports=ports))

    def _adapter(self, adapter: Adapter) -> None:
        inventory = self.question.inventory
        adapters = tuple(adapter if a.id == adapter.id else a for a in inventory.adapters)
        self.question = msgspec.structs.replace(
            self.question, inventory=msgspec.structs.replace(inventory, adapters=adapters)
        )

    def _function(self, port_id: str, vf: int | None, *, home: bool, target: str = "") -> None:
        port = self.question.inventory.port(port_id)
        if port is None:
            return
        holder = Holder(kind="target", detail=target, ours=True, target=target)

        def changed(f: Function) -> Function:
            if f.vf_index != vf:
                return f
            netdev = _netdev("back", port.observed_mode) if home else None
            holders = () if home else (holder,)
            return msgspec.structs.replace(f, netdev=netdev, net_elsewhere=not home, holders=holders)

        self._set_port(
            msgspec.structs.replace(port, pf=changed(port.pf), vfs=tuple(changed(f) for f in port.vfs))
        )


def _start(change: ModeChange) -> str:
    return f"change:{change.policy}:{change.generation}:"


def _netdev(name: str, mode: LinkMode | None) -> Netdev:
    kind = 32 if mode is LinkMode.INFINIBAND else 1
    return Netdev(name=name, ifindex=5, link_type=kind, address="02:00:00:00:00:01", mtu=1500)


def told(adapter: Adapter, setting: Setting) -> Adapter:
    """What one written parameter does to Next Boot."""
    if setting.name == "SRIOV_EN":
        return msgspec.structs.replace(adapter, sriov_enabled_next=setting.value == "1")
    if setting.name == "NUM_OF_VFS":
        assert adapter.num_vfs_limit is None or int(setting.value) <= adapter.num_vfs_limit
        return msgspec.structs.replace(adapter, num_vfs_next=int(setting.value))
    number = int(setting.name.removeprefix("LINK_TYPE_P"))
    assert any(p.number == number and p.can_change is not False for p in adapter.ports), "no such parameter"
    return msgspec.structs.replace(
        adapter,
        ports=tuple(
            msgspec.structs.replace(p, next_mode=MODES[setting.value]) if p.number == number else p
            for p in adapter.ports
        ),
    )


def rebooted(adapter: Adapter, obeys: bool) -> Adapter:
    """The adapter after a restart of the host: VFs and namespaces gone, Next Boot loaded if the card obeys."""

    def port(old: Port) -> Port:
        mode = old.next_mode if obeys and old.next_mode is not None else old.current_mode
        loaded = obeys and adapter.sriov_enabled_next
        total = adapter.num_vfs_next if loaded and adapter.num_vfs_next else old.total_vfs
        kept = tuple(h for h in old.pf.holders if not h.ours)
        pf = msgspec.structs.replace(old.pf, netdev=_netdev("pf", mode), net_elsewhere=False, holders=kept)
        seen = mode or old.observed_mode
        return msgspec.structs.replace(
            old, pf=pf, vfs=(), num_vfs=0, total_vfs=total, current_mode=mode, observed_mode=seen
        )

    fields = {}
    if obeys:
        fields = {"sriov_enabled_current": adapter.sriov_enabled_next, "num_vfs_current": adapter.num_vfs_next}
    return msgspec.structs.replace(adapter, ports=tuple(port(p) for p in adapter.ports), **fields)
