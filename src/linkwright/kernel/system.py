"""Where the host is: the roots that are read and the netlink transport, as one value passed everywhere.

A real host, an emulated host and a captured tree differ only in this value. The environment chooses:

=====================  ======================================================================
LINKWRIGHT_SYSROOT     a captured tree: DIR/sys, DIR/proc, DIR/dev, read-only, no netlink
LINKWRIGHT_NETLINK     path of a netlink server (netlink/transport.py) instead of the kernel's sockets
LINKWRIGHT_RESTART     command line that restarts the host, instead of logind
LINKWRIGHT_ETC         configuration, default /etc/linkwright
LINKWRIGHT_STATE       state, default /var/lib/linkwright
LINKWRIGHT_RUN         the agent's socket, default /run/linkwright
=====================  ======================================================================
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from linkwright.model.errors import InvalidInput

from .netlink.transport import KernelTransport, NoTransport, SocketTransport, Transport


@dataclass(frozen=True)
class System:
    """``captured``: a tree of files, nothing can be changed and no kernel answers."""

    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    run: Path = Path("/run/linkwright")
    etc: Path = Path("/etc/linkwright")
    state: Path = Path("/var/lib/linkwright")
    netlink: Transport = field(default_factory=KernelTransport)
    restart_command: tuple[str, ...] | None = None
    captured: bool = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, *, sysroot: str | None = None) -> System:
        """The system that the environment (default: the process's) names; ``sysroot`` wins over its own.

        Raises InvalidInput when the captured tree is not there or the restart command cannot be split.
        """
        env = os.environ if environ is None else environ
        root = sysroot or env.get("LINKWRIGHT_SYSROOT") or None
        if root is not None and not (Path(root) / "sys").is_dir():
            raise InvalidInput(
                "has no directory sys/",
                code="sysroot-invalid",
                where=str(root),
                next_step="Give the directory that linkwright capture wrote.",
            )
        base = Path(root or "/")
        socket = env.get("LINKWRIGHT_NETLINK")
        netlink: Transport = KernelTransport()
        if root is not None:
            netlink = NoTransport()
        elif socket:
            netlink = SocketTransport(socket)
        try:
            restart = tuple(shlex.split(env.get("LINKWRIGHT_RESTART", ""))) or None
        except ValueError as problem:
            raise InvalidInput(
                f"cannot be split into words: {problem}.",
                code="restart-command-invalid",
                where="LINKWRIGHT_RESTART",
            ) from problem
        return cls(
            sys=base / "sys",
            dev=base / "dev",
            proc=base / "proc",
            run=Path(env.get("LINKWRIGHT_RUN") or "/run/linkwright"),
            etc=Path(env.get("LINKWRIGHT_ETC") or base / "etc/linkwright"),
            state=Path(env.get("LINKWRIGHT_STATE") or "/var/lib/linkwright"),
            netlink=netlink,
            restart_command=restart,
            captured=root is not None,
        )
