"""The driver over the vendor's own tools: mstconfig for settings, mstreg for the uptime, mstfwreset for resets.

Why the tools and not the registers: they hold the rules of every firmware generation. What follows from that:

- One parameter that the card lacks makes mstconfig refuse a whole batch. So all names are asked for at once, and
  each refusal drops the name it complains of; what a card lacks is remembered until something is written or reset
  (hidden parameters appear and disappear with other settings), so that the next reading is one call again.
- A write is one register write per parameter, without rollback. So every write is read back, and a failed one
  is reported as what Next Boot really holds now.
- Debian 12 has 4.21, which prints tables only; later versions have ``-j FILE`` (their ``--help`` says so).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from linkwright.model.errors import HardwareFault, InvalidInput, LinkwrightError, Vanished
from linkwright.model.values import pci_address

from . import commands, faults, mstfwreset, tables, tool
from .base import CardReading, Reading, ResetDone, ResetOffer, Written, number, same_value
from .locking import AdapterLocks

_NAME = re.compile(r"[A-Z][A-Z0-9_]*(?:\[\d+(?:\.\.\d+)?\])?")
_VALUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
_RESET_SLOW_S = 180.0


class MstTools:
    """Keeps :class:`.base.FirmwareDriver`. ``sys``: to tell a card that is gone from one that cannot be opened;
    ``run``: for locks and the tools' files; ``report``: is told when a call takes unusually long."""

    def __init__(self, *, sys: Path, run: Path, report: tool.Report = tool.log_report) -> None:
        self._sys = sys
        self._tools = tool.Toolbox(run / "firmware")
        self._locks = AdapterLocks(run / "locks")
        self._report = report
        self._missing: dict[tuple[str, str], set[str]] = {}

    # -- readings ---------------------------------------------------------------------------------------------

    def query(self, pf: str, names: Sequence[str] = ()) -> CardReading:
        pf = _checked_address(pf)
        for name in names:
            _check(name, _NAME, "parameter name")
        with self._locks.hold(pf) as lock:
            return self._query(pf, tuple(dict.fromkeys(names)), lock)

    def _query(self, pf: str, names: tuple[str, ...], lock: int) -> CardReading:
        known_missing = self._missing.setdefault(self._card_key(pf), set())
        wanted = [n for n in names if n not in known_missing]
        head = CardReading()
        if names and not wanted:
            wanted = [names[0]]  # its refusal still prints who the card is
        while wanted or not names:
            answer, reading = self._ask(pf, wanted, lock)
            if reading is not None:
                return CardReading(
                    device_type=reading.device_type,
                    name=reading.name,
                    description=reading.description,
                    params=reading.params,
                    missing=tuple(n for n in names if n in known_missing),
                )
            head = tables.described(answer.text, head)
            lacking = faults.named_parameter(answer.text)
            if lacking not in wanted:
                raise self._fault(pf, answer)
            wanted.remove(lacking)
            known_missing.add(lacking)
        if head.device_type is None:
            # JSON answers leave the head out when they refuse; the table has it.
            head = tables.described(self._run(commands.query(pf, names[:1]), pf, lock).text, head)
        return CardReading(
            device_type=head.device_type, name=head.name, description=head.description, missing=tuple(names)
        )

    def _ask(self, pf: str, names: Sequence[str], lock: int) -> tuple[tool.Answer, CardReading | None]:
        """One call; the reading, or None when the tool refused. A partial answer counts when it has all
        that was asked for by name."""
        if self._tools.facts("mstconfig").json:
            with self._tools.file() as file:
                answer = self._run(commands.query(pf, names, json_to=str(file)), pf, lock)
                text, parse = tool.read_bounded(file), tables.parse_query_json
        else:
            answer = self._run(commands.query(pf, names), pf, lock)
            text, parse = answer.text, tables.parse_query
        if answer.code == 0:
            return answer, parse(text)
        if names and self._fault(pf, answer).code == "partial-query":
            reading = parse(text)
            if all(n in reading.params for n in names):
                return answer, reading
        return answer, None

    def uptime_s(self, pf: str) -> int | None:
        pf = _checked_address(pf)
        with self._locks.hold(pf) as lock:
            try:
                answer = self._run(commands.uptime(pf), pf, lock)
            except LinkwrightError:
                return None
        return tables.parse_uptime(answer.text) if answer.code == 0 else None

    def version(self) -> str | None:
        return self._tools.facts("mstconfig").version

    def transcripts(self, pf: str) -> dict[str, tool.Answer]:
        """What the tools say of this card now, word for word: ``query``, ``uptime``, ``reset``."""
        pf = _checked_address(pf)
        asked = {"query": commands.query(pf), "uptime": commands.uptime(pf), "reset": commands.reset_query(pf)}
        with self._locks.hold(pf) as lock:
            return {key: self._run(command, pf, lock) for key, command in asked.items()}

    # -- writes -----------------------------------------------------------------------------------------------

    def write(self, pf: str, settings: Mapping[str, str]) -> Written:
        pf = _checked_address(pf)
        for name, value in settings.items():
            _check(name, _NAME, "parameter name")
            _check(value, _VALUE, "parameter value")
        if not settings:
            raise InvalidInput("no setting to write", code="invalid-parameter", where=pf)
        command = commands.write(pf, settings)
        with self._locks.hold(pf) as lock:
            before = self._query(pf, tuple(settings), lock)
            answer = self._run(command, pf, lock)
            self._missing.pop(self._card_key(pf), None)
            try:
                after = self._query(pf, tuple(settings), lock)
            except LinkwrightError as unread:
                raise self._unread(pf, answer, unread) from unread
        if answer.code != 0:
            raise self._refused(pf, answer, settings, before, after)
        wrong = [n for n, v in settings.items() if not same_value(_next(after, n), v)]
        if wrong:
            raise HardwareFault(
                f"the tool reported success, but Next Boot is now {_told(after, settings)}",
                code="half-applied" if len(wrong) < len(settings) else "write-not-kept",
                where=pf,
                said=answer.text.strip(),
                command=" ".join(command),
                next_step=f"Nothing takes effect before a restart. Read it: mstconfig -d {pf} -e query",
            )
        activation = tables.parse_activation(answer.text)
        return Written(command=command, said=answer.text.strip(), activation=activation, reading=after)

    def _refused(
        self, pf: str, answer: tool.Answer, settings: Mapping[str, str], before: CardReading, after: CardReading
    ) -> LinkwrightError:
        failure = self._fault(pf, answer)
        known = [n for n in settings if _next(before, n) is not None and _next(after, n) is not None]
        changed = [n for n in known if not same_value(_next(before, n), _next(after, n))]
        if not changed:
            return failure
        if all(same_value(_next(after, n), v) for n, v in settings.items()):
            failure.next_step = f"All was written before that: Next Boot is now {_told(after, settings)}."
            return failure
        back = {n: number(_next(before, n)) for n in changed}
        undo = commands.write(pf, {n: str(v) for n, v in back.items() if v is not None})
        return HardwareFault(
            f"only a part was written ({failure.message}): Next Boot is now {_told(after, settings)}",
            code="half-applied",
            where=pf,
            said=answer.text.strip(),
            command=" ".join(answer.command),
            next_step=f"Nothing takes effect before a restart. To take it back: {' '.join(undo)}",
        )

    def _unread(self, pf: str, answer: tool.Answer, unread: LinkwrightError) -> LinkwrightError:
        how = "was taken" if answer.code == 0 else f"failed ({self._fault(pf, answer).message})"
        return HardwareFault(
            f"the write {how}, and what Next Boot holds now cannot be read: {unread.message}",
            code="write-not-read-back",
            where=pf,
            said=answer.text.strip(),
            command=" ".join(answer.command),
            next_step=f"Read it before any restart: mstconfig -d {pf} -e query",
        )

    def backup(self, pf: str) -> str:
        """The raw TLVs that ``mstconfig set_raw`` takes back; where the firmware has no backup, the full table."""
        pf = _checked_address(pf)
        with self._locks.hold(pf) as lock, self._tools.file() as file:
            answer = self._run(commands.backup(pf, str(file)), pf, lock)
            raw = tool.read_bounded(file)
            if answer.code == 0 and raw:
                return raw
            table = self._run(commands.query(pf), pf, lock)
        if table.code != 0:
            raise self._fault(pf, table)
        return table.text

    # -- resets -----------------------------------------------------------------------------------------------

    def reset_offer(self, pf: str) -> ResetOffer:
        pf = _checked_address(pf)
        with self._locks.hold(pf) as lock:
            return self._offer(pf, lock)

    def _offer(self, pf: str, lock: int) -> ResetOffer:
        answer = self._run(commands.reset_query(pf), pf, lock)
        if answer.code != 0:
            raise self._fault(pf, answer)
        return mstfwreset.parse_offer(answer.text, self.version())

    def reset(self, pf: str) -> ResetDone:
        """Refuses with ``reset-not-offered`` unless level 3 with driver sync is offered now: mstfwreset 4.31
        ignores ``--sync 1`` where the card lacks it, and then stops the drivers of every card of the vendor."""
        pf = _checked_address(pf)
        command = commands.reset(pf)
        with self._locks.hold(pf) as lock:
            offer = self._offer(pf, lock)
            if not offer.usable:
                raise HardwareFault(
                    "the card offers no reset of level 3 that its driver takes part in",
                    code="reset-not-offered",
                    where=pf,
                    said=offer.said,
                    command=" ".join(commands.reset_query(pf)),
                    next_step="Restart the host instead (activation method Reboot).",
                )
            answer = self._run(command, pf, lock, slow_after_s=_RESET_SLOW_S)
            self._missing.pop(self._card_key(pf), None)
        if answer.code != 0 or not mstfwreset.succeeded(answer.text):
            raise self._fault(pf, answer)
        return ResetDone(command=command, said=answer.text.strip())

    # -- the tools --------------------------------------------------------------------------------------------

    def _run(self, command: commands.Command, pf: str, lock: int, *, slow_after_s: float = 60.0) -> tool.Answer:
        return tool.run(command, pf=pf, lock=lock, slow_after_s=slow_after_s, report=self._report)

    def _fault(self, pf: str, answer: tool.Answer) -> LinkwrightError:
        if not (self._sys / "bus/pci/devices" / pf).exists():
            return Vanished("there is no such PCI device now", code="no-such-device", where=pf)
        return faults.fault(pf, answer)

    def _card_key(self, pf: str) -> tuple[str, str]:
        """The slot and what sits in it: device, subsystem and PSID, as far as sysfs tells them now."""
        device = self._sys / "bus/pci/devices" / pf
        files = [device / "device", device / "subsystem_device", *sorted(device.glob("infiniband/*/board_id"))]
        return pf, " ".join(_line(file) for file in files)


def _line(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()[:64]
    except OSError:
        return ""


def _next(reading: CardReading, name: str) -> str | None:
    return reading.params.get(name, Reading()).next


def _told(reading: CardReading, names: Mapping[str, str]) -> str:
    return ", ".join(
        f"{name} {_next(reading, name) or 'unknown'}{'' if same_value(_next(reading, name), v) else f' (not {v})'}"
        for name, v in names.items()
    )


def _checked_address(pf: str) -> str:
    try:
        return pci_address(pf)
    except ValueError as e:
        raise InvalidInput(str(e), code="invalid-address") from e


def _check(text: str, pattern: re.Pattern[str], what: str) -> None:
    """Also keeps a name from being read as an option of the tool."""
    if not pattern.fullmatch(text):
        raise InvalidInput(f"{text!r} is no {what} of mstconfig", code="invalid-parameter")
