"""Work as step values: what to do, how to take it back, and whether reality shows it done already.

A step reads reality, never its own memory, so the same list runs after any interruption: what is done is
skipped. The runner writes each step to the journal (fsynced) before its effect. Going forward it stops at the
first failure; going backward it tries each step even if one before failed, and returns every error. A crash is
no failure: only ``Exception`` is caught, so that a killed process leaves the journal as it stands.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from linkwright.model.errors import Busy, HardwareFault, LinkwrightError, Vanished

Moment = Literal["before", "after"]


class Step(Protocol):
    """One effect. ``do`` and ``undo`` are idempotent; ``is_done`` and ``is_undone`` look at the kernel."""

    @property
    def name(self) -> str: ...

    def is_done(self) -> bool: ...

    def do(self) -> None: ...

    def is_undone(self) -> bool: ...

    def undo(self) -> None: ...


class StepLog(Protocol):
    """Where begun steps are written (``store.Operation``)."""

    def begin(self, step: str) -> None: ...

    def mark(self, step: str, state: Literal["done", "undone", "failed"], said: str = "") -> None: ...


def _silent(moment: Moment, step: str) -> None:
    pass


@dataclass(frozen=True)
class Runner:
    """Runs steps for one subject. ``watch(moment, step)`` is called around each effect: progress, crash tests."""

    log: StepLog
    where: str
    watch: Callable[[Moment, str], None] = _silent

    def forward(self, steps: Sequence[Step]) -> None:
        """Do what is not done yet; raises the first failure as a LinkwrightError, nothing is undone here."""
        for step in steps:
            try:
                if not step.is_done():
                    self._effect(step.name, step.do)
            except Exception as error:
                problem = explain(error, step.name, self.where)
                self.log.mark(step.name, "failed", str(problem))
                raise problem from error

    def backward(self, steps: Sequence[Step]) -> list[LinkwrightError]:
        """Undo each step that is not undone, in the given order; every failure is in the result."""
        problems = []
        for step in steps:
            name = f"undo {step.name}"
            try:
                if not step.is_undone():
                    self._effect(name, step.undo)
                    self.log.mark(name, "undone")
            except Exception as error:
                problems.append(explain(error, name, self.where))
                self.log.mark(name, "failed", str(problems[-1]))
        return problems

    def _effect(self, name: str, effect: Callable[[], None]) -> None:
        self.log.begin(name)
        self.watch("before", name)
        effect()
        self.watch("after", name)


def explain(error: Exception, step: str, where: str) -> LinkwrightError:
    """The kernel's error in the words of the error tree; a LinkwrightError as it is, a bug as it is."""
    if isinstance(error, LinkwrightError):
        return error
    if not isinstance(error, OSError):
        raise error
    said = f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, error.errno)})"
    if error.errno in (errno.ENODEV, errno.ENXIO, errno.ENOENT, errno.ESRCH):
        return Vanished(
            f"{step}: it is gone: {said}.",
            code="function-vanished",
            where=where,
            next_step="Look: linkwright nics",
        )
    if error.errno in (errno.EBUSY, errno.EAGAIN):
        return Busy(f"{step}: the kernel says it is busy: {said}.", code="kernel-busy", where=where)
    return HardwareFault(
        f"{step}: the kernel refused: {said}.",
        code="kernel-refused",
        where=where,
        said=os.strerror(error.errno) if error.errno else str(error),
        next_step="Look at the kernel's log (dmesg) for the driver's reason.",
    )


def joined(problems: Sequence[LinkwrightError]) -> str:
    """All errors in one line, for a record's reason."""
    return "; ".join(str(problem) for problem in problems)
