"""What ``linkwright lab`` does with a real host; called by ``hostlab.cli`` when the host is one."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence

from hostlab.layout import LabDirs
from hostlab.real.machine import RealHost

DEFAULT_NAME = "real-01"
_LEAVE = b"\x1d"  # Ctrl-]


class Commands:
    """Of one real host; each says on the terminal what it did."""

    def __init__(self, name: str) -> None:
        self.host = RealHost(LabDirs.find().host(name), lambda text: print(text, file=sys.stderr))

    def up(self) -> int:
        """Power on; builds what is missing first, and says so."""
        begun, name = time.monotonic(), self.host.name
        if self.host.pid() is not None:
            print(f"{name} is up already.")
            return 0
        said = self.host.up()
        seconds = time.monotonic() - begun
        print(f"{name} is up after {seconds:.1f} s (kernel {said['kernel']}, emulated in software).")
        print(f"\nTry: linkwright lab exec {name} -- linkwright nics")
        print(f"     linkwright lab shell {name}    its serial console; leave it with Ctrl-]")
        return 0

    def down(self, *, erase: bool) -> None:
        was_up = self.host.down()
        if erase:
            for folder in (self.host.dirs.run, self.host.dirs.lib):
                shutil.rmtree(folder, ignore_errors=True)
        print(f"{self.host.name} {'is down' if was_up else 'was not up'}{' and erased' if erase else ''}.")

    def crash(self, *, stay_off: bool) -> None:
        self.host.cut()
        if not stay_off:
            self.host.up()
        print(f"{self.host.name}: power cut{'' if stay_off else ', and up again'}.")

    def execute(self, command: Sequence[str]) -> int:
        """Run a command there, without a terminal; output and exit code are its own."""
        done = self.host.channel.exec(command, check=False, timeout_s=3600)
        sys.stdout.write(done.stdout)
        sys.stderr.write(done.stderr)
        return done.returncode

    def console(self) -> int:
        """The serial console on this terminal, root logged in, until Ctrl-]."""
        with socket.socket(socket.AF_UNIX) as sock, _raw_terminal():
            sock.connect(str(self.host.console))
            sock.sendall(b"\r")
            while True:
                ready = select.select([sock, sys.stdin], [], [])[0]
                if sock in ready:
                    data = sock.recv(4096)
                    if not data:
                        return 0
                    os.write(sys.stdout.fileno(), data)
                if sys.stdin in ready:
                    data = os.read(sys.stdin.fileno(), 4096)
                    if not data or _LEAVE in data:
                        return 0
                    sock.sendall(data)


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
