"""A root file system for containers from the machine's static busybox: nothing is downloaded.

Debian's and Ubuntu's ``busybox-static`` has ip, ping, nc, sleep and a shell: what a target in a demo needs.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from linkwright.model.errors import LinkwrightError

BUSYBOX = ("/usr/bin/busybox", "/bin/busybox")
FOLDERS = ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var")
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/resolv.conf": "",
}
# busybox 1.35 lists its applets itself, but running it costs more than writing the links that are used here.
APPLETS = (
    "arping ash awk basename cat chmod chown cmp cp cut date dd df dirname dmesg du echo env expr false find free "
    "grep head hostname id ifconfig ip kill killall ln ls md5sum mkdir mknod mktemp mount mv nc netstat nslookup "
    "ping ping6 pidof printf ps pwd readlink rm rmdir route sed seq sh sleep sort stat sync tail tar tee test "
    "time timeout top touch traceroute true tty umount uname uniq uptime usleep vi wc wget which whoami xargs yes"
)


def find_busybox() -> Path | None:
    """A static busybox, or None. A dynamic one would not run in an otherwise empty root."""
    for name in BUSYBOX:
        path = Path(name)
        if path.is_file() and b"/ld-linux" not in path.read_bytes()[:4096]:
            return path
    return None


def build(target: Path) -> Path:
    """Make the root file system in ``target`` unless it is there already. Returns ``target``.

    Raises LinkwrightError(busybox-missing).
    """
    if (target / "bin/busybox").is_file():
        return target
    busybox = find_busybox()
    if busybox is None:
        raise LinkwrightError(
            "there is no static busybox to make a container's root file system from",
            code="busybox-missing",
            next_step="apt-get install busybox-static",
        )
    for name in FOLDERS:
        (target / name).mkdir(parents=True, exist_ok=True)
    (target / "tmp").chmod(0o1777)
    for name, link in (("sbin", "bin"), ("usr/bin", "../bin"), ("usr/sbin", "../bin")):
        if not (target / name).is_symlink():
            (target / name).symlink_to(link)
    for name, text in FILES.items():
        (target / name).write_text(text)
    for applet in APPLETS.split():
        program = target / "bin" / applet
        if not program.is_symlink():
            program.symlink_to("busybox")
    part = target / "bin/busybox.part"
    shutil.copy(busybox, part)
    part.replace(target / "bin/busybox")  # last: it says that the rest is there
    return target
