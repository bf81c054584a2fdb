"""Every complaint of mstconfig, mstreg and mstfwreset that we know, as an error of our tree with its own code.

The tools print complaints on standard output as ``-E- text`` (mstreg on standard error); the exit status tells
little (mstconfig: 2 aborted, 3 nearly everything else; mstfwreset and mstreg: 1). Texts: mstflint's sources
(``mlxcfg_generic_commander``, ``mlxcfg_ui``, ``mlxcfg_param``, ``mlxfwreset.py``); seen with 4.21 and 4.31. A text
that is not in the table is kept word for word under ``firmware-tool-error``.
"""

from __future__ import annotations

import re

from msgspec import Struct

from linkwright.model.errors import Busy, HardwareFault, LinkwrightError

from .tool import Answer

_LINE = re.compile(r"^\s*(?:.*: )?(?:-E-|FATAL -)\s*(?P<text>.*?)\s*$", re.MULTILINE)


class Known(Struct, frozen=True):
    """``pattern`` is searched in the complaint; its groups fill ``message``."""

    code: str
    pattern: str
    message: str
    next_step: str = ""


_ADAPTER = "Look at the adapter with: linkwright nics"
_LATER = "Try again: linkwright retry. When it stays: look for another tool on the card (mlxfwmanager, mst)."

KNOWN: tuple[Known, ...] = (
    Known("firmware-busy", r"Device is busy|Device busy|fsm register is busy|Other tool is accessing the device",
          "the card's firmware is busy", _LATER),
    Known("param-unsupported", r"The Device doesn't support (?P<name>\S+) parameter",
          "the card does not have {name}", "Its link mode is fixed, or the setting is hidden. " + _ADAPTER),
    Known("unknown-parameter", r"Unknown [Pp]arameter:? *(?P<name>\S*)",
          "the tool knows no {name} on this card",
          "A card with one port has no …_P2. Else check the name in the policy's firmware settings."),
    Known("unknown-value", r"Unknown value (?P<value>.*)", "the tool does not know the value {value}", _ADAPTER),
    Known("value-too-large", r"Parameter (?P<name>\S+?)' value is larger than maximum allowed (?P<limit>\S+)",
          "{name} may be {limit} at most on this card", "Ask for fewer (spec.functions.numVfs)."),
    Known("value-too-small", r"Parameter (?P<name>\S+?)' value is smaller than minimum allowed (?P<limit>\S+)",
          "{name} must be {limit} at least on this card", _ADAPTER),
    Known("firmware-refused", r"Failed to (?:set|reset) (?P<name>\S+) settings:? *(?P<why>.*)",
          "the firmware refused to store {name}: {why}",
          "The setting is locked or cannot be written in this state of the card (secure host, BlueField mode)."),
    Known("firmware-read-failed", r"Failed to get (?P<name>\S+) settings:? *(?P<why>.*)",
          "the firmware did not give {name}: {why}", _LATER),
    Known("firmware-refused", r"Failed to send Register MFRL: *(?P<why>.*)",
          "the firmware refused the reset: {why}", "Restart the host instead (activation method Reboot)."),
    Known("aborted", r"Aborted by user", "the tool was told no", ""),
    Known("partial-query", r"Failed to query some of the TLVs",
          "the firmware gave only a part of its settings", _LATER),
    Known("device-in-recovery", r"Livefish|Flash Recovery", "the card is in flash recovery mode",
          "Burn its firmware again (mstflint) and power-cycle the host."),
    Known("device-open-failed", r"Failed to open (?:the )?device|[Cc]annot open|No such file or directory",
          "the tool cannot open the card",
          "It needs root, config space access (kernel lockdown forbids it) and a free semaphore. When no other "
          "tool runs and it stays: mstconfig -d {pf} clear_semaphore"),
    Known("device-unknown", r"Failed to identify the device|Can't find device id|Failed to Identify Device"
          r"|Failed to get device type|Unsupported [Dd]evice|Device (?:is )?not supported",
          "the tool does not know this card",
          "A newer mstflint may; ConnectX-3 needs one before 4.26. Kernel lockdown also shows like this."),
    Known("no-devices", r"Failed to get devices", "the tool found no card", "Is the card in lspci?"),
    Known("nv-access-unsupported", r"NV access registers? (?:is|are) supported"
          r"|NVQC access register is not supported|Cannot access NV register|support NV access register",
          "the card's settings cannot be reached by this way of access",
          "The firmware is too old, or access is disabled (secure host, BlueField restricted mode)."),
    Known("backup-unsupported", r"backup command", "the card's firmware offers no backup"),
    Known("reset-level-unsupported", r"Reset-level '(?P<level>\d+)' is not supported",
          "the card offers no reset of level {level} now", "Restart the host instead (activation method Reboot)."),
    Known("reset-sync-unsupported",
          r"Synchronization by driver is not supported|Requested reset sync '.*' is not supported"
          r"|Reset-sync '.*' is not supported",
          "the card offers no reset that its driver takes part in",
          "Restart the host instead (activation method Reboot)."),
    Known("reset-type-unsupported", r"Reset-(?:type|level) '.*' is not supported", "the card offers no such reset",
          "Restart the host instead (activation method Reboot)."),
    Known("reset-on-virtual-machine", r"not supported on virtual machines",
          "the reset tool refuses to run on a virtual machine", "Restart the machine that owns the card."),
    Known("reset-secure-boot", r"supports only reset-level 4 on UEFI Secure Boot",
          "under UEFI Secure Boot only a restart loads new settings",
          "Restart the host (activation method Reboot)."),
    Known("needs-root", r"Only root user can run", "the tool wants root", "Run it as root."),
    Known("reset-failed", r"Firmware reset failed",
          "the firmware did not restart: its uptime did not go back",
          "Restart the host; when the mode still does not follow, power-cycle it."),
)  # fmt: skip

_COMPILED = tuple((known, re.compile(known.pattern)) for known in KNOWN)


def complaints(text: str) -> list[str]:
    """The tool's own complaint lines without their prefix, in order."""
    return [m["text"] for m in _LINE.finditer(text) if m["text"]]


def named_parameter(text: str) -> str | None:
    """The parameter for whose sake a whole batch was refused because the card lacks it."""
    for line in complaints(text):
        for known, pattern in _COMPILED:
            match = pattern.search(line)
            if match and known.code in ("param-unsupported", "unknown-parameter"):
                return match["name"] or None
    return None


def fault(pf: str, answer: Answer) -> LinkwrightError:
    """The error that ``answer`` stands for; call it when the tool failed."""
    command = " ".join(answer.command)
    said = answer.text.strip()[-4000:]
    if answer.code < 0:
        return HardwareFault(
            f"{answer.command[0]} was killed by signal {-answer.code} while it worked on the card",
            code="firmware-tool-killed",
            where=pf,
            said=said,
            command=command,
            next_step=f"Its semaphore may be stuck. When no other tool runs: mstconfig -d {pf} clear_semaphore",
        )
    lines = complaints(answer.text)
    # The table's order decides, not the lines': "busy" wins over the complaint that follows from it.
    for known, pattern in _COMPILED:
        for line in lines:
            match = pattern.search(line)
            if match:
                words = {k: v or "?" for k, v in match.groupdict().items()}
                message, next_step = known.message.format(**words), known.next_step.format(pf=pf)
                if known.code == "firmware-busy":
                    return Busy(message, code=known.code, where=pf, next_step=next_step)
                return HardwareFault(
                    message, code=known.code, where=pf, said=said, command=command, next_step=next_step
                )
    last = lines[0] if lines else next((s for s in reversed(answer.text.splitlines()) if s.strip()), "nothing")
    return HardwareFault(
        f"{answer.command[0]} failed (exit {answer.code}) and said: {last.strip()}",
        code="firmware-tool-error",
        where=pf,
        said=said,
        command=command,
    )
