"""What the machine must have before an emulated host can run, and the exact command that brings it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hostlab.rootfs import find_busybox
from linkwright.model.errors import LinkwrightError

# Program → Debian and Ubuntu package.
PROGRAMS = {
    "mstconfig": "mstflint",
    "podman": "podman",
    "crun": "crun",
    "fusermount3": "fuse3",
    "nsenter": "util-linux",
    "ip": "iproute2",
}


def missing_packages() -> list[str]:
    search = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    found = [package for program, package in PROGRAMS.items() if shutil.which(program, path=search) is None]
    if find_busybox() is None:
        found.append("busybox-static")
    return found


def check() -> None:
    """Raises LinkwrightError(lab-not-possible) naming the first thing in the way and what to do about it."""
    if os.geteuid() != 0:
        raise _not_possible(
            "emulated hosts need root: they are made of namespaces, mounts, network devices",
            "sudo linkwright lab …",
        )
    if packages := missing_packages():
        raise _not_possible(f"missing: {', '.join(packages)}", f"apt-get install --yes {' '.join(packages)}")
    if not Path("/dev/fuse").exists():
        raise _not_possible(
            "there is no /dev/fuse, so the emulated /sys cannot be served",
            "modprobe fuse; in a container, give it the device (--device /dev/fuse --privileged)",
        )
    try:
        import mfusepy  # noqa: F401
    except (ImportError, OSError) as error:
        raise _not_possible(f"mfusepy does not load ({error})", "pip install 'linkwright[lab]'") from None


def _not_possible(what: str, next_step: str) -> LinkwrightError:
    return LinkwrightError(what, code="lab-not-possible", where="lab", next_step=next_step)
