"""The runner: order, journal before effect, errors that do not hide each other, crashes that are not caught."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from linkwright.model.errors import Busy, HardwareFault, LinkwrightError, Refused, Vanished
from linkwright.targets.steps import Runner, explain, joined


@dataclass
class Log:
    lines: list[str] = field(default_factory=list)

    def begin(self, step: str) -> None:
        self.lines.append(f"begin {step}")

    def mark(self, step: str, state: str, said: str = "") -> None:
        self.lines.append(f"{state} {step}")


@dataclass
class Fake:
    name: str
    log: Log
    done: bool = False
    fails: Exception | None = None

    def is_done(self) -> bool:
        return self.done

    def do(self) -> None:
        self.log.lines.append(f"do {self.name}")
        if self.fails:
            raise self.fails
        self.done = True

    def is_undone(self) -> bool:
        return not self.done

    def undo(self) -> None:
        self.log.lines.append(f"undo {self.name}")
        if self.fails:
            raise self.fails
        self.done = False


def test_forward_skips_what_is_done_and_journals_first() -> None:
    log = Log()
    Runner(log, "0000:3b:00.0").forward([Fake("a", log, done=True), Fake("b", log)])
    assert log.lines == ["begin b", "do b"]


def test_forward_stops_at_the_first_failure() -> None:
    log = Log()
    steps = [Fake("a", log), Fake("b", log, fails=OSError(16, "Device or resource busy")), Fake("c", log)]
    with pytest.raises(Busy, match="b: the kernel says it is busy"):
        Runner(log, "0000:3b:00.0").forward(steps)
    assert log.lines == ["begin a", "do a", "begin b", "do b", "failed b"]


def test_backward_tries_each_and_returns_every_error() -> None:
    log = Log()
    refusal = Refused("no", rule=2, code="x")
    steps = [
        Fake("a", log, done=True, fails=OSError(22, "Invalid argument")),
        Fake("b", log, done=True),
        Fake("c", log, done=False),
        Fake("d", log, done=True, fails=refusal),
    ]
    problems = Runner(log, "0000:3b:00.0").backward(steps)
    assert [type(p) for p in problems] == [HardwareFault, Refused]
    assert "undo a" in joined(problems)
    assert "no" in joined(problems)
    assert not steps[1].done
    assert [line for line in log.lines if line.startswith("undo ")] == ["undo a", "undo b", "undo d"]


def test_a_crash_is_not_caught() -> None:
    class Crash(BaseException):
        pass

    def watch(moment: str, step: str) -> None:
        raise Crash

    log = Log()
    for run in (Runner(log, "", watch).forward, Runner(log, "", watch).backward):
        with pytest.raises(Crash):
            run([Fake("a", log, done=run.__name__ == "backward")])
    assert log.lines == ["begin a", "begin undo a"]


def test_a_bug_is_not_dressed_as_a_fault() -> None:
    with pytest.raises(KeyError):
        explain(KeyError("x"), "step", "")


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [(19, Vanished, "function-vanished"), (16, Busy, "kernel-busy"), (34, HardwareFault, "kernel-refused")],
)
def test_errors_of_the_kernel_in_our_words(number: int, kind: type[LinkwrightError], code: str) -> None:
    problem = explain(OSError(number, "Told by the kernel"), "mtu", "0000:3b:00.0")
    assert isinstance(problem, kind)
    assert problem.code == code
    assert "mtu" in str(problem)
    assert "Told by the kernel" in str(problem)
