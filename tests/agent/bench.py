"""A host for tests of the mode change engine: real planner, executor, engine, store; card, kernel, hands played.

Every put into the store, every write, reset and restart is a point at which the agent can be made to crash.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from linkwright.agent import acts
from linkwright.agent.engine import Engine, retry
from linkwright.agent.executor import Executor
from linkwright.agent.progress import Progress
from linkwright.agent.wakeups import Wakeups
from linkwright.firmware.base import CardReading, Reading, ResetDone, ResetOffer, Written
from linkwright.kernel.system import System
from linkwright.model.documents import (
    Activation,
    Allow,
    Container,
    HostConfig,
    HostConfigSpec,
    Interface,
    LinkPolicy,
    LinkPolicySpec,
    Metadata,
    NicSelector,
    ResetProven,
    Target,
    TargetSpec,
)
from linkwright.model.errors import Busy, HardwareFault
from linkwright.model.inventory import Adapter, Function, Holder, Identity, Inventory, Netdev, Port, RdmaDevice
from linkwright.model.plan import Attach, Desired, Detach, Question, Records, SetVfs, TargetState
from linkwright.model.records import Attachment, AttachmentState, ModeChange, Phase
from linkwright.model.values import LinkMode, PciAddress, PortId
from linkwright.planner import plan
from linkwright.store.db import Store

IB, ROCE = LinkMode.INFINIBAND, LinkMode.ROCE
CARD = "0000:3b:00"
PF = f"{CARD}.0"
PORT = PortId(f"{PF}/1")
MODES = {"1": IB, "2": ROCE}


class Crash(BaseException):
    """The agent ends here."""


class Card:
    """Two ports' LINK_TYPE in Next Boot and Current. ``faults`` by name, as the emulated cards have them."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.next = {"LINK_TYPE_P1": "2", "LINK_TYPE_P2": "2"}
        self.current = dict(self.next)
        self.faults: dict[str, Any] = {}
        self.started = time.time() - 5000
        self.writes: list[dict[str, str]] = []
        self.resets = 0  # asked for
        self.loads = 0  # by a reset or a restart

    def forget(self) -> None:
        pass

    def backup(self, pf: str) -> str:
        return "everything"

    def query(self, pf: str, names: Sequence[str] = ()) -> CardReading:
        found = {n: Reading(current=self.current[n], next=self.next[n]) for n in names if n in self.next}
        return CardReading(params=found)

    def write(self, pf: str, settings: Mapping[str, str]) -> Written:
        if self.faults.get("busy", 0) > 0:
            self.faults["busy"] -= 1
            raise Busy("the card's firmware is busy", code="firmware-busy", where=pf)
        command = ("mstconfig", "-y", "-d", pf, "set", *(f"{k}={v}" for k, v in settings.items()))
        self._bench.point("write")
        for name, value in settings.items():
            if name == self.faults.get("write_refused") and value == "1":
                raise HardwareFault(
                    f"only a part was written (the firmware refused to store {name})",
                    code="half-applied", where=pf, said=f"-E- Failed to set {name}", command=" ".join(command),
                )  # fmt: skip
            self.next[name] = value
        self.writes.append(dict(settings))
        self._bench.point("written")
        word = "power cycle" if self.faults.get("power_cycle_text") else "reboot"
        said = f"-I- Please {word} machine to load new configurations."
        return Written(command=command, said=said, activation="reboot", reading=self.query(pf, list(settings)))

    def measure_uptime_s(self, pf: str) -> int | None:
        return int(time.time() - self.started)

    def reset_offer(self, pf: str) -> ResetOffer:
        offered = not self.faults.get("reset_unsupported")
        return ResetOffer(levels=(3, 4), driver_sync=offered)

    def reset(self, pf: str) -> ResetDone:
        self.resets += 1
        self._bench.point("reset")
        if self.faults.get("reset_fails"):
            raise HardwareFault("the firmware did not restart", code="reset-failed", where=pf, said="-E- failed")
        self.load()
        self._bench.point("reset done")
        return ResetDone(command=("mstfwreset", "-d", pf, "reset"), said="-I- FW was loaded successfully")

    def load(self) -> None:
        """What a reset of the card does."""
        self.loads += 1
        self.started = time.time()
        if not self.faults.get("current_never_follows"):
            self.current = dict(self.next)


class PlayedHands:
    """Moves records only: the kernel is played by them."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def set_vfs(self, step: SetVfs, question: Question) -> None:
        raise AssertionError("no VFs here")

    def attach(self, step: Attach, question: Question) -> None:
        kept = self._bench.store.attachment(step.target, step.interface.name)
        assert kept is not None
        assert step.mode in (None, self._bench.mode(kept.port)), "given in the wrong mode"
        self._bench.store.put_attachment(
            msgspec.structs.replace(
                kept,
                state=AttachmentState.ATTACHED,
                boot_id=question.inventory.boot_id,
                netns_inode=question.targets[step.target].netns_inode,
            )
        )

    def detach(self, step: Detach, question: Question) -> None:
        kept = self._bench.store.attachment(step.target, step.interface)
        if kept is not None:
            self.release(kept, question)
        if step.forget:
            self._bench.store.delete_attachment(step.target, step.interface)

    def release(self, attachment: Attachment, question: Question) -> Attachment:
        self._bench.released.append(attachment.target)
        freed = msgspec.structs.replace(attachment, state=AttachmentState.ASSIGNED, netns_inode=None)
        return self._bench.store.put_attachment(freed)

    def raise_port(self, port: Port) -> None:
        pass


class Watched(Store):
    """The real store, with a point before and after each stored move of a change."""

    bench: Bench

    def put_change(self, change: ModeChange) -> None:
        self.bench.point(f"before {change.phase.value}")
        super().put_change(change)
        self.bench.point(f"after {change.phase.value}")


class PlayedWorld:
    def __init__(self, bench: Bench, root: Path) -> None:
        self._bench = bench
        self.system = System(run=root, etc=root / "etc", state=root)
        self.store = bench.store
        self.firmware = bench.card
        self.progress = Progress()
        self.wakeups = Wakeups()
        self.failures: dict[tuple[str, str], Exception] = {}

    def look_at_kernel(self, question: Question) -> Inventory:
        return self._bench.look().inventory


class Bench:
    """``run`` until nothing more happens. ``fabric``: what the port shows of its network."""

    def __init__(self, root: Path, monkeypatch: Any) -> None:
        self.root = root
        self.store = Watched(root / "state.db")
        self.store.bench = self
        self.points: list[str] = []
        self.crash_at = 0
        self.boot = 1
        self.restarts = 0
        self.released: list[str] = []
        self.card = Card(self)
        self.allow = Allow(firmware=True, functions=True, reset=True, restart=True)
        self.proven = False
        self.resets_card = True
        self.breaks_at_restart = 0  # the restart of this number does not reset the card
        self.targets: dict[str, TargetState] = {}
        self.holders: tuple[Holder, ...] = ()
        self.fabric = RdmaDevice(name="mlx5_0", state="ACTIVE", phys_state="LinkUp", lid=5, sm_lid=1)
        self.carrier = True
        self.limits = "1h"
        monkeypatch.setattr(acts.restart, "restart_host", self.restart_host)
        monkeypatch.setattr(acts, "RESTART_LIMIT_S", 0.0)
        self._start()

    def _start(self) -> None:
        """A new process of the agent."""
        self.world = PlayedWorld(self, self.root)
        hands: Any = PlayedHands(self)
        world: Any = self.world
        self.engine = Engine(world, hands)
        self.executor = Executor(world, hands, self.engine)

    # -- what happens to the host ----------------------------------------------------------------------------

    def point(self, name: str) -> None:
        self.points.append(name)
        if len(self.points) == self.crash_at:
            raise Crash(name)

    def restart_host(self, system: System, reason: str) -> None:
        self.point("restart")
        self.restarts += 1
        self.reboot()
        self.world.wakeups.stop()

    def reboot(self) -> None:
        """A restart of the host, whoever does it."""
        self.boot += 1
        if self.resets_card and self.boot != self.breaks_at_restart + 1:
            self.card.load()

    # -- documents -------------------------------------------------------------------------------------------

    def want(
        self, mode: LinkMode, ports: tuple[int, ...] = (1,), name: str = "training", **activation_fields: Any
    ) -> None:
        wishes = Activation(**({"approval": "Auto"} | activation_fields))
        selector = NicSelector(pci_addresses=tuple(f"{CARD}.{n - 1}" for n in ports))
        spec = LinkPolicySpec(nic_selector=selector, link_mode=mode, activation=wishes)
        self.store.put_policy(LinkPolicy(metadata=Metadata(name=name), spec=spec))

    def runs(self, name: str, inode: int = 7) -> None:
        interfaces = (Interface(name="net1"),)
        spec = TargetSpec(policy="training", interfaces=interfaces, container=Container(name=name))
        self.store.put_target(Target(metadata=Metadata(name=name), spec=spec))
        self.targets[name] = TargetState(state="running", netns_path="/proc/7/ns/net", netns_inode=inode, pid=7)

    def stops(self, name: str) -> None:
        self.targets[name] = TargetState(state="stopped")

    # -- looking ---------------------------------------------------------------------------------------------

    def mode(self, port: str) -> LinkMode:
        return MODES[self.card.current[f"LINK_TYPE_P{port[-1]}"]]

    def _port(self, number: int, attachments: tuple[Attachment, ...]) -> Port:
        pf, name = f"{CARD}.{number - 1}", f"LINK_TYPE_P{number}"
        port = f"{pf}/{number}"
        mode = MODES[self.card.current[name]]
        held = [a for a in attachments if a.port == port and a.state is not AttachmentState.ASSIGNED]
        held = [a for a in held if a.boot_id == f"boot-{self.boot}"]
        mine = tuple(Holder(kind="target", detail=f"{a.target} net1", ours=True, target=a.target) for a in held)
        netdev = Netdev(name=f"en{number}", ifindex=number, link_type=1, address="0", mtu=1, carrier=self.carrier)
        others = self.holders if number == 2 else ()
        function = Function(
            address=PciAddress(pf),
            netdev=None if held else netdev,
            net_elsewhere=bool(held),
            rdma=self.fabric,
            holders=(*mine, *others),
        )
        return Port(
            id=PortId(port), number=number, pf=function, total_vfs=0, can_change=True, fabric="rail-0",
            next_mode=MODES[self.card.next[name]], current_mode=mode, observed_mode=mode, link="down",
        )  # fmt: skip

    def look(self) -> Question:
        attachments = self.store.attachments()
        changes = self.store.changes()
        wants_uptime = any(c.activations for c in changes)
        adapter = Adapter(
            id="card",
            identity=Identity(psid="MT_0000000223", firmware="20.43.1", device_id="101b"),
            ports=(self._port(1, attachments), self._port(2, attachments)),
            uptime_s=self.card.measure_uptime_s(PF) if wants_uptime else None,
            num_vfs_next=0, num_vfs_current=0, num_vfs_limit=0,
            reset_offered=not self.card.faults.get("reset_unsupported") if self.proven else None,
        )  # fmt: skip
        proven = (ResetProven(psid="MT_0000000223", firmware="20.43.*"),) if self.proven else ()
        host = HostConfigSpec(
            allow=self.allow, reset_proven=proven, subnet_manager_timeout=self.limits, link_timeout=self.limits
        )
        return Question(
            desired=Desired(
                policies=self.store.policies(),
                targets=self.store.targets(),
                host=HostConfig(spec=host),
                generations=self.store.generations(),
                frozen_by=self.store.frozen_by(),
            ),
            inventory=Inventory(host="gpu-01", boot_id=f"boot-{self.boot}", adapters=(adapter,)),
            targets=self.targets,
            records=Records(attachments=attachments, changes=changes, approvals=self.store.approvals()),
            now=time.time(),
        )

    # -- running ---------------------------------------------------------------------------------------------

    def one_pass(self) -> bool:
        question = self.look()
        if self.engine.advance(question):
            return True
        made = plan(question)
        return self.executor.take(made, question) or self.engine.settle(made, question)

    def run(self, passes: int = 60) -> ModeChange:
        """Until a pass changes nothing; the newest change."""
        for _ in range(passes):
            try:
                acted = self.one_pass()
            except Crash:
                self._start()
                continue
            if self.world.wakeups.stopping:
                self._start()
            elif not acted:
                return self.store.changes()[0]
        raise AssertionError(f"no end: {self.store.changes()}")

    def settle(self) -> None:
        """Until a pass changes nothing, without a change on record."""
        for _ in range(20):
            if not self.one_pass():
                return
        raise AssertionError("no end")

    def until(self, phase: Phase) -> ModeChange:
        for _ in range(60):
            found = self.store.changes()
            if found and found[0].phase is phase:
                return found[0]
            assert self.one_pass(), f"settled before {phase}: {found}"
        raise AssertionError(f"never {phase}")

    def retry(self, policy: str = "training") -> None:
        self.store.put_change(retry(self.change, self.look()))

    @property
    def change(self) -> ModeChange:
        return self.store.changes()[0]

    @property
    def attached(self) -> list[str]:
        boot = f"boot-{self.boot}"
        live = [a for a in self.store.attachments() if a.state is AttachmentState.ATTACHED and a.boot_id == boot]
        return [a.target for a in live]
