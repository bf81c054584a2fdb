"""One reader for each kind of text a document holds: it returns the normal spelling or raises ValueError.

The message of the ValueError follows the field's path, so it begins with the value and says what is right.
"""

from __future__ import annotations

import ipaddress
import re
import zoneinfo
from pathlib import PurePosixPath

from . import values
from .inventory import OWNERS

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_CONTAINER = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_RDMA = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_CRON = re.compile(r"(\*|\d+(-\d+)?)(/\d+)?(,(\*|\d+(-\d+)?)(/\d+)?)*")
_CRON_LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def name(text: str) -> str:
    """The name of a document, group or fabric: RFC 1123, as Kubernetes names objects."""
    if not _NAME.fullmatch(text):
        raise ValueError(f'"{text}" is not a name: small letters, digits, "-" and "."; at most 253 characters.')
    return text


def container_name(text: str) -> str:
    """podman's rule for names (libpod/define/config.go)."""
    if not _CONTAINER.fullmatch(text):
        raise ValueError(f'"{text}" is not a container name: letters, digits, "_", "." and "-".')
    return text


def netns_path(text: str) -> str:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or "\0" in text:
        raise ValueError(f'"{text}" is not the full path of a network namespace, as in /run/netns/NAME.')
    return text


def interface_name(text: str) -> str:
    problem = values.interface_name_problem(text)
    if problem:
        raise ValueError(f'"{text}" {problem}.')
    return text


def rdma_name(text: str) -> str:
    """IB_DEVICE_NAME_MAX is 64 with the final zero (include/uapi/rdma/rdma_netlink.h)."""
    if not _RDMA.fullmatch(text):
        raise ValueError(
            f'"{text}" is not the name of an RDMA device: letters, digits, "_", "." and "-"; 63 at most.'
        )
    return text


def pci_address(text: str) -> str:
    try:
        return values.pci_address(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a PCI address like 0000:3b:00.0.') from None


def port(text: str) -> str:
    try:
        return values.parse_port_id(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a port like 0000:3b:00.0/1 (address of its PF, number).') from None


def protected(text: str) -> str:
    """A PCI address, a port, or the name of a netdev (its alternative names may have 127 characters)."""
    if ":" in text:  # which no name of a netdev holds
        return port(text) if "/" in text or " " in text else pci_address(text)
    if not text or len(text) > 127 or "/" in text or any(c.isspace() for c in text):
        raise ValueError(f'"{text}" is neither a PCI address, a port nor the name of a network device.')
    return text


def owner(text: str) -> str:
    """Another tool that manages cards."""
    if text not in OWNERS:
        raise ValueError(f'"{text}" is no tool that is recognised here. Known: {", ".join(OWNERS)}.')
    return text


def device_id(text: str) -> str:
    digits = text.lower().removeprefix("0x")
    if not re.fullmatch(r"[0-9a-f]{4}", digits):
        raise ValueError(f'"{text}" is not a PCI device id of four hexadecimal digits, like 101b.')
    return digits


def given(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty.")
    return text


def mac(text: str) -> str:
    try:
        address = values.mac(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a MAC address of six bytes, like 02:00:00:12:34:56.') from None
    if int(address[:2], 16) & 1 or address == "00:00:00:00:00:00":
        raise ValueError(f'"{text}" cannot be an interface\'s own address: it is a group address or zero.')
    return address


def ip_interface(text: str) -> str:
    try:
        found = ipaddress.ip_interface(text)
    except ValueError:
        raise ValueError(f'"{text}" is not an IP address with its prefix, like 10.9.0.1/24.') from None
    if "/" not in text:
        prefix = 24 if found.version == 4 else 64
        raise ValueError(f'"{text}" has no prefix length; write it like {text}/{prefix}.')
    if found.ip.is_multicast or found.ip.is_unspecified:
        raise ValueError(f'"{text}" cannot be an interface\'s own address.')
    return str(found)


def network(text: str) -> str:
    if text == "default":
        return text
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        hint = ""
        if "host bits" in str(error):
            hint = f" Did you mean {ipaddress.ip_network(text, strict=False)}?"
        raise ValueError(f'"{text}" is not a network like 10.0.0.0/8, nor default.{hint}') from None


def ip_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError(f'"{text}" is not an IP address.') from None


def duration(text: str) -> str:
    try:
        seconds = values.parse_duration(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a duration like 90s, 10m or 4h.') from None
    if seconds <= 0:
        raise ValueError(f'"{text}" is no time at all.')
    return text


def schedule(text: str) -> str:
    """Five cron fields: minute, hour, day of month, month, day of week (crontab(5)), numbers only."""
    parts = text.split()
    if len(parts) != 5 or not all(_CRON.fullmatch(p) for p in parts):
        raise ValueError(f'"{text}" is not a schedule of five cron fields, like "0 2 * * 6" (Saturdays at 02:00).')
    for part, (low, high) in zip(parts, _CRON_LIMITS, strict=True):
        steps = {int(n) for n in re.findall(r"/(\d+)", part)}
        numbers = [int(n) for n in re.findall(r"\d+", re.sub(r"/\d+", "", part))]
        if 0 in steps or any(not low <= n <= high for n in numbers):
            raise ValueError(f'"{text}": {part} is outside {low} to {high}.')
    return text


def time_zone(text: str) -> str:
    if text == "UTC":
        return text
    try:
        zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f'"{text}" is not a time zone that this host knows, like Europe/Berlin.') from None
    return text


def pkey(text: str) -> str:
    """The 15 bits of a partition key; the membership bit is a field of its own (IBTA vol. 1, 10.9.1)."""
    try:
        number = int(text, 16) if text.lower().startswith("0x") else int(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a partition key like "0x10".') from None
    if not 1 <= number <= 0x7FFF:
        raise ValueError(f'"{text}" is outside 0x1 to 0x7fff; full or limited membership is said by membership.')
    return text
