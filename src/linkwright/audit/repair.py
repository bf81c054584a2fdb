"""Putting a finding right, by steps that look at the kernel again before each effect. Idempotent, as they are.

A repair that is cut off leaves its finding, and the next audit shows it; the journal entry is closed at the start
of the agent. Runs in the reconcile loop only, so it never races with an attachment.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..firmware.base import FirmwareDriver, link_type_name, link_type_of
from ..kernel import sriov
from ..model.errors import HardwareFault, Refused, Vanished
from ..model.inventory import Port
from ..model.plan import Question
from ..model.records import AttachmentState
from ..targets import container
from ..targets.context import Context
from ..targets.recovery import recover, slot_only
from ..targets.steps import Runner, Step
from .finding import Finding
from .look import Seen
from .steps import Home, Look, OneValue, Renewed, unheld

BY_RECORD = ("attached-function-gone", "attached-not-there", "quarantined")


@dataclass(frozen=True)
class Repairer:
    """``question`` and ``seen``: the look in which the findings were made."""

    ctx: Context
    firmware: FirmwareDriver
    question: Question
    seen: Seen

    @property
    def look(self) -> Look:
        return Look(self.ctx, self.question, self.seen)

    def repair(self, finding: Finding) -> None:
        """Raises Refused (in use), Vanished (it is gone), HardwareFault (could not be put back)."""
        if finding.code == "journal-open":
            recover(self.ctx.store, self.ctx.boot_id)
        elif finding.code == "record-without-target":
            self.ctx.store.delete_attachment(finding.target, finding.interface)
        elif finding.code == "driver-missing":
            sriov.probe(self.ctx.system, finding.function, want_net=False)
        elif finding.code in BY_RECORD:
            self._release(finding)
        elif finding.code in ("vfs-without-policy", "staged-unwanted"):
            self._port(finding)
        else:
            self._run(finding, self._steps(finding))

    def _release(self, finding: Finding) -> None:
        record = self.ctx.store.attachment(finding.target, finding.interface)
        if record is None:
            return
        if record.before is None and record.state is AttachmentState.QUARANTINED:
            if record.function is not None and self._there(record.function):
                self._run(finding, [Home(self.look, record.function), Renewed(self.look, record.function)])
            self.ctx.store.put_attachment(slot_only(record))
            return
        left = container.detach(self.ctx, record)
        if left.state is AttachmentState.QUARANTINED:
            raise HardwareFault(
                f"could not be released: {left.reason}",
                code="release-failed",
                where=finding.where,
                next_step="Mend what is named, then: linkwright audit --repair",
            )

    def _there(self, function: str) -> bool:
        return (self.ctx.system.sys / "bus/pci/devices" / function).exists()

    def _steps(self, finding: Finding) -> list[Step]:
        match finding.code:
            case "held-without-record":
                return [Home(self.look, finding.function), Renewed(self.look, finding.function)]
            case "mark-left" | "name-left" | "rdma-elsewhere":
                return [Renewed(self.look, finding.function)]
            case "altname-left" | "mac-left" | "mtu-left":
                return [OneValue(self.look, finding.function, finding.code)]
        raise Refused(
            "is not put right by us", rule=4, code="no-repair", where=finding.where, next_step=finding.next_step
        )

    def _port(self, finding: Finding) -> None:
        port = next(
            (p for a in self.question.inventory.adapters for p in a.ports if p.pf.address == finding.function),
            None,
        )
        if port is None:
            raise Vanished("is not on this host any more", code="port-vanished", where=finding.where)
        if finding.code == "vfs-without-policy":
            unheld(*port.functions)
            sriov.set_num_vfs(self.ctx.system, port.pf.address, 0)
        else:
            self._write_back(port)

    def _write_back(self, port: Port) -> None:
        if port.current_mode is not None:
            name = link_type_name(port.number)
            self.firmware.write(port.pf.address, {name: link_type_of(port.current_mode)})

    def _run(self, finding: Finding, steps: list[Step]) -> None:
        subject = f"repair {finding.where}"
        operation = self.ctx.store.begin_operation("repair", subject, self.ctx.boot_id)
        try:
            Runner(
                operation, finding.function, lambda moment, step: self.ctx.watch(moment, subject, step)
            ).forward(steps)
        finally:
            operation.end()  # nothing to undo: what is not put right is found again
