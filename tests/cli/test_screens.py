"""The screens, drawn from values at several widths, against screens that were looked at (golden/)."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
import samples
from golden import check
from samples import NOW

from linkwright.cli.render.errors import error_lines
from linkwright.cli.render.history import history_lines
from linkwright.cli.render.nics import nics_lines
from linkwright.cli.render.plan import approval_lines, plan_lines
from linkwright.cli.render.status import ending_lines, status_lines
from linkwright.cli.render.text import paint, width_of
from linkwright.cli.views import NicsView, StatusView, read
from linkwright.model.documents import LinkPolicy, LinkPolicySpec, Metadata, NicSelector
from linkwright.model.errors import HardwareFault, InvalidInput, LinkwrightError, NeedsPerson, Refused
from linkwright.model.plan import Plan
from linkwright.model.records import HistoryEntry, Phase


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def nics(**more: Any) -> NicsView:
    fields = {"inventory": samples.inventory(), "decisions": samples.decisions(), "allow": samples.allow()}
    return NicsView(**(fields | more))


@pytest.mark.parametrize("width", [None, 160, 100, 80, 40])
def test_nics(width: int | None) -> None:
    lines = nics_lines(nics(), width, source="agent runs")
    check(f"nics-{width or 'piped'}", lines)


@pytest.mark.parametrize("width", [160, 120, 100, 80, 60, 40, 20])
def test_no_table_is_wider_than_the_terminal(width: int) -> None:
    lines = nics_lines(nics(), width)
    assert max(width_of(line) for line in lines[2:6]) <= width


def test_nics_of_a_host_without_configuration_and_without_cards() -> None:
    empty = msgspec.structs.replace(samples.inventory(), adapters=(), mstflint=None, rdma_netns=None)
    hint = "Not root: firmware (NEXT, CURRENT) and other processes' use cannot be read. Try sudo."
    view = NicsView(inventory=empty, allow=None)
    check("nics-empty", nics_lines(view, 100, source="no agent", hint=hint))


def policy() -> LinkPolicy:
    selector = NicSelector(pci_addresses=("0000:3b:00.0",), ports=(1,))
    return LinkPolicy(
        metadata=Metadata(name="training"), spec=LinkPolicySpec(nic_selector=selector, link_mode=samples.IB)
    )


@pytest.mark.parametrize("width", [None, 140, 80])
def test_plan(width: int | None) -> None:
    lines = plan_lines(
        samples.plan(),
        width,
        documents=[(policy(), "training.yaml:4")],
        apply_with="linkwright apply -f training.yaml",
        explain=True,
    )
    check(f"plan-{width or 'piped'}", lines)


def test_plan_with_nothing_to_do() -> None:
    check("plan-nothing", plan_lines(Plan(untouched=samples.plan().untouched), 100))


def test_a_yes_says_exactly_what_it_agrees_to() -> None:
    check("approval", approval_lines(samples.plan(), 100))


def status(**more: Any) -> StatusView:
    return read(samples.status(**more), StatusView)


@pytest.mark.parametrize("width", [None, 100, 60])
def test_status_while_a_change_runs(width: int | None) -> None:
    record = samples.change(Phase.VERIFY_MODE, approved_by="root")
    shown = status(changes=[samples.with_stations(record, Phase.VERIFY_MODE)])
    check(f"status-{width or 'piped'}", status_lines(shown, NOW, width))


FAILED = {
    "reason_code": "card-not-reset",
    "detail": "the card did not take the mode.\n"
    "wanted InfiniBand · next InfiniBand · current RoCE · observed RoCE · boot id changed, firmware uptime 41 d\n"
    "The host restarted without resetting the card (kexec or a warm restart).",
    "next_step": 'Power-cycle the host once, then: linkwright retry training --reason "power cycled"',
    "said": ("mstconfig -y -d 0000:3b:00.0 set LINK_TYPE_P1=1", "Applying... Done!"),
}


def test_status_of_a_failed_change() -> None:
    record = samples.change(Phase.FAILED, activations=1, **FAILED)
    shown = status(changes=[samples.with_stations(record, Phase.VERIFY_MODE, "failed", record.detail)])
    check("status-failed", status_lines(shown, NOW, 100))


def test_status_of_a_change_that_waits() -> None:
    record = samples.change(
        Phase.WAITING,
        reason_code="no-subnet-manager",
        detail="no subnet manager answers on rail-0 after 60 s",
        next_step="Start one (opensm -g GUID), or look at the cable; the change goes on by itself.",
    )
    shown = status(changes=[samples.with_stations(record, Phase.VERIFY_FABRIC, "waiting", record.detail)])
    check("status-waiting", status_lines(shown, NOW, 100))


def test_status_with_problems_and_frozen() -> None:
    problems = [msgspec.to_builtins(each) for each in samples.plan().problems]
    shown = status(problems=problems, frozen_by="uid 0 (pid 12): incident 42")
    check("status-frozen", status_lines(shown, NOW, 100))


def test_status_of_a_new_host() -> None:
    check("status-new", status_lines(status(policies=[], targets=[]), NOW, 100))


def test_an_ending_shows_only_what_was_asked_for() -> None:
    lines = ending_lines(status(), [], ["trainer-0"], NOW, 100)
    assert "trainer-2" not in paint(lines, colour=False)
    check("ending", lines)


def test_history() -> None:
    entries = [
        HistoryEntry(
            at=NOW - 90000, who="uid 0 (pid 4711)", what="apply LinkPolicy training generation 7", why="job 7"
        ),
        HistoryEntry(at=NOW - 60, who="agent", what="mode change training", before="RoCE", after="InfiniBand"),
    ]
    check("history", history_lines(entries, NOW, 100))


ERRORS: dict[str, LinkwrightError] = {
    "input": InvalidInput(
        '"training-network-1" has 18 characters; Linux allows 15.',
        where="trainer-3.yaml:7",
        field="spec.interfaces[0].name",
    ),
    "refused": Refused(
        "0000:3b:00.0 p1 has 3 VFs in use; numVfs 8 → 4 would remove VF 5.",
        rule=2,
        code="vfs-in-use",
        holder="pid 4711 (qemu-system-x86, guest db-2)",
        next_step="Detach it first (linkwright detach db-2), or keep numVfs at 6 or more.",
    ),
    "fault": HardwareFault(
        "the firmware refused LINK_TYPE_P1=1",
        code="firmware-refused",
        where="0000:3b:00.0",
        said="-E- Failed to set configuration: Bad parameter",
        command="mstconfig -y -d 0000:3b:00.0 set LINK_TYPE_P1=1",
        next_step="Look at docs/errors.md#firmware-refused.",
    ),
    "waiting": NeedsPerson("the agent needs root", code="not-root", next_step="Run it as root (systemd does)."),
}


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_errors_begin_with_their_kind(name: str) -> None:
    check(f"error-{name}", error_lines(ERRORS[name], 100))


def test_colours_only_when_asked_for_and_never_alone() -> None:
    lines = nics_lines(nics(), 160)
    coloured, plain = paint(lines, colour=True), paint(lines, colour=False)
    assert "\x1b[" in coloured
    assert "\x1b" not in plain
    for sign in ("●", "◆", "✖"):
        assert (sign in plain) == (sign in coloured)


def test_foreign_text_cannot_steer_the_terminal() -> None:
    evil = samples.inventory()
    evil = msgspec.structs.replace(evil, host="gpu\x1b[2J", notes=("a\x07b",))
    text = paint(nics_lines(NicsView(inventory=evil), 200), colour=False)
    assert "\x1b" not in text
    assert "\x07" not in text
