"""The exact command lines of the vendor's tools, as values, so that a plan shows what will be run.

The driver runs these very tuples; nothing else builds one. Devices are named by PCI address: the one form that
every version of the tools takes and that does not change with the link mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Command = tuple[str, ...]


def query(pf: str, names: Sequence[str] = (), *, json_to: str | None = None) -> Command:
    """Read Default, Current and Next Boot (``-e``) of ``names``, or of everything; ``json_to``: file of ``-j``."""
    json_file = ("-j", json_to) if json_to else ()
    return ("mstconfig", "-d", pf, "-e", *json_file, "query", *names)


def write(pf: str, settings: Mapping[str, str]) -> Command:
    """Set Next Boot values, in the mapping's order."""
    return ("mstconfig", "-y", "-d", pf, "set", *(f"{name}={value}" for name, value in settings.items()))


def backup(pf: str, file: str) -> Command:
    """Write the whole configuration as raw TLVs to ``file``."""
    return ("mstconfig", "-d", pf, "-f", file, "backup")


def uptime(pf: str) -> Command:
    """Read the MGIR register, which holds the firmware's uptime."""
    return ("mstreg", "-d", pf, "--reg_name", "MGIR", "--get")


def reset_query(pf: str) -> Command:
    return ("mstfwreset", "-d", pf, "query")


def reset(pf: str) -> Command:
    """Level 3 (driver restart and PCI reset) with the driver as the owner (``--sync 1``)."""
    return ("mstfwreset", "-d", pf, "-l", "3", "--sync", "1", "-y", "reset")
