"""The one error tree. Every message says what, where and why, and what to do next.

::

    LinkwrightError
    ├── InvalidInput      a document, argument or capture is wrong (file, line, field)      exit 2
    ├── Refused           a rule of the interlock forbids it (which rule, who holds it)     exit 3
    ├── NeedsPerson       it waits for a yes or for hands on the machine                    exit 4
    ├── Busy              somebody else has it now; trying again later is right             exit 1
    ├── Vanished          the object disappeared while it was worked on                     exit 1
    └── HardwareFault     the card, its firmware or the vendor's tool failed                exit 1

``code`` is a stable kebab-case reason code; the same word stands in JSON, history and docs/errors.md.
"""

from __future__ import annotations

from typing import Any


class LinkwrightError(Exception):
    """Base of all. ``where`` is a PCI address, ``file:line`` or a name; ``next_step`` a command or action."""

    exit_code = 1
    kind = "Error"

    def __init__(self, message: str, *, code: str, where: str = "", next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.where = where
        self.next_step = next_step

    def __str__(self) -> str:
        head = f"{self.where}: {self.message}" if self.where else self.message
        return f"{head} {self.next_step}".rstrip() if self.next_step else head

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "code": self.code,
            "where": self.where,
            "message": self.message,
            "next": self.next_step,
        }


class InvalidInput(LinkwrightError):
    """``where`` is ``file:line`` when there is a file; ``field`` the path, e.g. ``spec.interfaces[0].name``.

    ``problems``: every single problem when several were found together; the message is then the first one's.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        code: str = "invalid-input",
        where: str = "",
        field: str = "",
        next_step: str = "",
        problems: tuple[InvalidInput, ...] = (),
    ) -> None:
        super().__init__(message, code=code, where=where, next_step=next_step)
        self.field = field
        self.problems = problems

    def to_json(self) -> dict[str, Any]:
        several = {"problems": [p.to_json() for p in self.problems]} if self.problems else {}
        return super().to_json() | {"field": self.field} | several


class Refused(LinkwrightError):
    """Forbidden by interlock rule ``rule`` (docs/architecture.md section 3); ``holder`` says who has it."""

    exit_code = 3
    kind = "Refused"

    def __init__(
        self, message: str, *, rule: int, code: str, where: str = "", holder: str = "", next_step: str = ""
    ) -> None:
        super().__init__(message, code=code, where=where, next_step=next_step)
        self.rule = rule
        self.holder = holder

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"rule": self.rule, "holder": self.holder}


class NeedsPerson(LinkwrightError):
    """Waits for a yes (``linkwright approve``) or for hands (power cycle, cable, subnet manager)."""

    exit_code = 4
    kind = "Waiting"


class Busy(LinkwrightError):
    """Retryable: somebody else has it now."""

    kind = "Busy"


class Vanished(LinkwrightError):
    """The function, namespace, container or device is gone."""

    kind = "Vanished"


class HardwareFault(LinkwrightError):
    """The card, its firmware or the vendor's tool refused or failed; ``said`` holds its own words."""

    kind = "FAILED"

    def __init__(
        self, message: str, *, code: str, where: str = "", said: str = "", command: str = "", next_step: str = ""
    ) -> None:
        super().__init__(message, code=code, where=where, next_step=next_step)
        self.said = said
        self.command = command

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"said": self.said, "command": self.command}
