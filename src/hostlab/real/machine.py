"""One real host: QEMU's command line, and its life from power on to power cut.

QEMU runs by itself (no supervisor): its pid file, its sockets and its console log are in the host's folders, so
any program can reach it. The chipset is a q35 with an Intel IOMMU and two igb network cards on root ports of their
own: the only model in QEMU with SR-IOV that works. Everything is emulated in software; there is no KVM to count
on.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hostlab.layout import HostDirs
from hostlab.real import cache, initramfs, project, recipe
from hostlab.real.channel import PORT, Channel
from hostlab.real.recipe import Root
from linkwright.model.errors import LinkwrightError, Vanished

QEMU = "usr/bin/qemu-system-x86_64"
STATE_MIB = 4096  # sparse
READY_LIMIT_S = 300.0
_ARGUMENTS = (
    "console=ttyS0 rdinit=/init intel_iommu=on iommu=pt apparmor=0 audit=0 mitigations=off nokaslr quiet "
    "loglevel=4 panic=5 systemd.show_status=false net.ifnames=1 random.trust_cpu=on"
)


@dataclass(frozen=True)
class Card:
    """One igb network card. ``persona``: the ConnectX whose firmware is emulated over it, in link mode ``mode``
    when it is new; None: it stays what it is.
    """

    address: str
    mac: str
    persona: str | None = None
    mode: str = "RoCE"


CARDS = (
    Card("0000:01:00.0", "b8:3f:d2:00:01:00", "cx7-vpi-single"),
    Card("0000:02:00.0", "b8:3f:d2:00:02:00"),
)


@dataclass
class RealHost:
    """``dirs`` as of any host of the lab. ``say`` is told what takes long."""

    dirs: HostDirs
    say: Callable[[str], None] = field(default=lambda text: None)
    memory_mib: int = 3072
    cpus: int = 2

    @property
    def name(self) -> str:
        return self.dirs.name

    @property
    def channel(self) -> Channel:
        return Channel(self.dirs.run / "channel.sock", self.name)

    @property
    def console(self) -> Path:
        """The socket of its serial console; what it said is in ``dirs.console_log``."""
        return self.dirs.run / "console.sock"

    @property
    def disk(self) -> Path:
        return self.dirs.lib / "disk.img"

    def pid(self) -> int | None:
        """QEMU's, None when it does not run. The pid file is locked by QEMU as long as it lives."""
        try:
            text = (self.dirs.run / "qemu.pid").read_text().strip()
            command = Path(f"/proc/{int(text)}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return int(text) if os.fsencode(self.dirs.run / "qemu.pid") in command else None

    # -- power ----------------------------------------------------------------------------------------------------

    def up(self, *, fresh: bool = False) -> dict[str, Any]:
        """Power on and wait until it answers: what it says of itself (``Channel.wait_up``). ``fresh``: with an
        empty disk. Raises LinkwrightError: host-already-up, host-failed, or what building its root raises.
        """
        if self.pid() is not None:
            raise LinkwrightError("it is up already", code="host-already-up", where=self.name)
        root = recipe.obtain(self.say)
        layer = project.obtain(root, self.say)
        for folder in (self.dirs.run, self.dirs.lib):
            folder.mkdir(parents=True, exist_ok=True)
        if fresh or not self.disk.exists():
            self._make_disk(root)
        self.start(root, layer)
        try:
            return self.channel.wait_up(READY_LIMIT_S)
        except Vanished:
            self.cut()
            raise

    def start(self, root: Root, layer: Path) -> None:
        """Start QEMU and return when it runs."""
        initrd = self.dirs.run / "initrd"
        initrd.write_bytes(initramfs.build(root.modules, root.tree / "usr/bin/busybox"))
        for name in ("qmp.sock", "channel.sock", "console.sock", "qemu.pid"):
            (self.dirs.run / name).unlink(missing_ok=True)
        log = self.dirs.lib / "qemu.log"
        held = [cache.hold(root.directory), cache.hold(layer)]
        try:
            with open(log, "wb") as output:
                done = subprocess.run(
                    [*self.command_line(root, layer, initrd), "-daemonize"],
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=held, check=False,
                )  # fmt: skip
        finally:
            for descriptor in held:
                os.close(descriptor)
        if done.returncode != 0:
            raise LinkwrightError(
                f"QEMU did not start: {log.read_text(errors='replace').strip()[-500:]}", code="host-failed",
                where=self.name, next_step=f"Look at {log}",
            )  # fmt: skip

    def command_line(self, root: Root, layer: Path, initrd: Path) -> list[str]:
        run = self.dirs.run
        personas = " ".join(f"hostlab.card={c.address},{c.persona},{c.mode}" for c in CARDS if c.persona)
        share = root.tree / "usr/share"
        command = [
            *root.program(QEMU), "-L", str(share / "qemu"), "-L", str(share / "seabios"),
            "-name", self.name, "-nodefaults", "-no-user-config", "-display", "none",
            "-M", "q35,accel=tcg,kernel-irqchip=split", "-cpu", "max", "-smp", str(self.cpus),
            "-m", str(self.memory_mib), "-device", "intel-iommu,intremap=on",
            "-kernel", str(root.kernel), "-initrd", str(initrd),
            "-append", f"{_ARGUMENTS} systemd.hostname={self.name} {personas}",
            *_disk("root", root.image, "readonly=on"), *_disk("layer", layer / project.IMAGE, "readonly=on"),
            *_disk("own", self.disk, "discard=unmap"),
            "-device", "virtio-serial-pci",
            "-chardev", f"socket,id=channel,path={run / 'channel.sock'},server=on,wait=off",
            "-device", f"virtserialport,chardev=channel,name={PORT}",
            "-chardev", f"socket,id=console,path={run / 'console.sock'},server=on,wait=off,"
                        f"logfile={self.dirs.console_log},logappend=off",
            "-serial", "chardev:console",
            "-qmp", f"unix:{run / 'qmp.sock'},server=on,wait=off",
            "-device", "virtio-rng-pci", "-pidfile", str(run / "qemu.pid"),
        ]  # fmt: skip
        for number, card in enumerate(CARDS, 1):
            command += [
                "-device", f"pcie-root-port,id=port{number},slot={number},chassis={number},"
                           f"addr={number + 0x10:#x}",
                "-netdev", f"hubport,id=wire{number},hubid=0",
                "-device", f"igb,bus=port{number},netdev=wire{number},mac={card.mac},romfile=",
            ]  # fmt: skip
        return command

    def down(self, limit_s: float = 120.0) -> bool:
        """Power off in order, by force after ``limit_s``. False when it was off already."""
        pid = self.pid()
        if pid is None:
            return False
        gone = os.pidfd_open(pid)
        try:
            with contextlib.suppress(LinkwrightError):
                self.channel.exec(["systemctl", "poweroff", "--no-block"], timeout_s=30)
            if not select.select([gone], [], [], limit_s)[0]:
                signal.pidfd_send_signal(gone, signal.SIGKILL)
                select.select([gone], [], [], 30)
        finally:
            os.close(gone)
        return True

    def cut(self) -> None:
        """Power cut: QEMU is killed, and with it all that the guest had in memory. The disk stays as it is."""
        pid = self.pid()
        if pid is None:
            return
        gone = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(gone, signal.SIGKILL)
            select.select([gone], [], [], 30)
        finally:
            os.close(gone)

    def qmp(self, command: str, **arguments: Any) -> Any:
        """One command to QEMU itself; its answer's ``return``. Raises LinkwrightError(qmp-failed)."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(30)
            sock.connect(str(self.dirs.run / "qmp.sock"))
            with sock.makefile("rw", encoding="utf-8") as stream:
                stream.readline()  # the greeting
                for request in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                    stream.write(json.dumps(request) + "\n")
                    stream.flush()
                    while "event" in (answer := json.loads(stream.readline())):
                        pass
        if "error" in answer:
            raise LinkwrightError(answer["error"]["desc"], code="qmp-failed", where=self.name)
        return answer["return"]

    def _make_disk(self, root: Root) -> None:
        fresh = self.disk.with_suffix(".new")
        recipe.make_disk(root, fresh, STATE_MIB)
        fresh.replace(self.disk)


def _disk(name: str, file: Path, option: str) -> list[str]:
    drive = f"file={file},if=none,id={name},format=raw,{option}"
    return ["-drive", drive, "-device", f"virtio-blk-pci,drive={name}"]


def wait_until(what: Callable[[], bool], limit_s: float) -> bool:
    """Ask ``what`` every second until it is true; for what a guest shows but does not tell. False when the limit
    ran out."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(1.0)
    return False
