"""The root file system: Debian 13 by mmdebstrap, with the kernel from its backports. Built once, kept in the
cache.

QEMU comes from this root too and runs on the machine by the root's own dynamic loader, because older QEMUs
(10.0.2) lose the register accesses of virtual functions: so the machine's own distribution does not matter. The
kernel is a 7.x, because before that a Soft-RoCE device works in the host's network namespace only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hostlab.real import cache
from linkwright.model.errors import LinkwrightError

SUITE = "trixie"
BACKPORTS = "trixie-backports"
PACKAGES = (
    # what makes it a host
    "systemd systemd-sysv libpam-systemd dbus udev kmod linux-image-amd64 util-linux procps less vim-tiny",
    # network and RDMA
    "iproute2 iputils-ping ethtool pciutils mstflint rdma-core ibverbs-providers ibverbs-utils perftest",
    # what targets run in
    "podman crun busybox-static qemu-system-x86 libvirt-daemon-system libvirt-daemon-driver-qemu libvirt-clients",
    # Linkwright's own needs
    "python3 python3-venv python3-libvirt fuse3 libfuse3-4",
)
PINNED = f"""\
Package: src:linux src:linux-signed-amd64 src:linux-base
Pin: release n={BACKPORTS}
Pin-Priority: 600
"""
NOT_UNPACKED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_MIRROR = "LINKWRIGHT_LAB_MIRROR"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_FORMAT = 1  # count up when the way of building changes, not only what is built


@dataclass(frozen=True)
class Root:
    """A built root file system: ``tree`` is its ``/``."""

    directory: Path

    @property
    def tree(self) -> Path:
        return self.directory / "root"

    @property
    def image(self) -> Path:
        """The same as a disk, which the guest reads."""
        return self.directory / "image"

    @property
    def kernel(self) -> Path:
        return next(iter(sorted(self.tree.glob("boot/vmlinuz-*"))))

    @property
    def release(self) -> str:
        return self.kernel.name.removeprefix("vmlinuz-")

    @property
    def modules(self) -> Path:
        return self.tree / "usr/lib/modules" / self.release

    def program(self, path: str) -> list[str]:
        """The argument list that runs ``path`` of the root (``usr/bin/qemu-system-x86_64``) here, with its
        libraries."""
        loader = self.tree / "lib64/ld-linux-x86-64.so.2"
        return [str(loader), "--library-path", str(self.tree / "usr/lib/x86_64-linux-gnu"), str(self.tree / path)]


def make_disk(root: Root, path: Path, size_mib: int, content: Path | None = None) -> None:
    """An ext4 file system in ``path``, with a copy of ``content``, which is then there to be read only (no
    journal).

    Raises LinkwrightError(disk-not-made).
    """
    options = ["-q", "-F", "-E", "lazy_itable_init=1,nodiscard"]
    if content is not None:
        options += ["-m", "0", "-i", "8192", "-O", "^has_journal", "-d", str(content)]
    with open(path, "wb") as file:
        file.truncate(size_mib << 20)
    command = [*root.program("usr/sbin/mkfs.ext4"), *options, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LinkwrightError(done.stderr.strip(), code="disk-not-made", where=str(path))


def size_mib(tree: Path) -> int:
    """Room for a copy of ``tree``."""
    used = sum((path.lstat().st_size + 8191) // 4096 * 4096 for path in tree.rglob("*"))
    return (used * 5 // 4 >> 20) + 64


def digest() -> str:
    """Of everything that decides what is in the root; the mirror does not."""
    parts = (SUITE, BACKPORTS, *PACKAGES, PINNED, *NOT_UNPACKED, str(_FORMAT))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def obtain(say: Callable[[str], None]) -> Root:
    """The root, built when the cache has none for this recipe: about two minutes and 2 GB, told by ``say``.

    Raises LinkwrightError(lab-not-possible, root-not-built).
    """

    def build(directory: Path) -> None:
        say("building the root file system (Debian 13, once; about two minutes)")
        _build(directory)
        root = Root(directory)
        make_disk(root, root.image, size_mib(root.tree), root.tree)

    return Root(cache.obtain("root", digest(), build))


def mirror() -> str:
    """The archive's address: $LINKWRIGHT_LAB_MIRROR, else the one this machine's apt uses for Debian."""
    if chosen := os.environ.get(_MIRROR):
        return chosen
    wanted = "$(CREATED_BY) $(ORIGIN) $(LABEL) $(REPO_URI)"
    command = ["apt-get", "indextargets", "--format", wanted]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        listed = ""
    for line in listed.splitlines():
        words = line.split()
        if words[:3] == ["Packages", "Debian", "Debian"]:
            return words[3]
    raise LinkwrightError(
        "apt here has no Debian archive to take the root file system from", code="lab-not-possible", where="lab",
        next_step=f"Run apt-get update on a Debian machine, or set {_MIRROR} to the address of a Debian mirror.",
    )  # fmt: skip


def _build(directory: Path) -> None:
    if shutil.which("mmdebstrap") is None:
        raise LinkwrightError(
            "mmdebstrap is missing, which builds the root file system of a real host", code="lab-not-possible",
            where="lab", next_step="apt-get install --yes mmdebstrap",
        )  # fmt: skip
    pins = directory / "pins"
    pins.write_text(PINNED, encoding="utf-8")
    log = cache.directory() / "root.log"
    signed = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
    where = mirror()
    options = ['--aptopt=APT::Install-Recommends "false"']
    options += [f"--dpkgopt=path-exclude={path}" for path in NOT_UNPACKED]
    command = [
        # mmdebstrap mounts /proc and more in the new root: in a mount namespace of its own, that ends with it
        "unshare", "--mount", "--", "mmdebstrap", "--mode=root", "--variant=apt", *options,
        '--setup-hook=mkdir -p "$1/etc/apt/preferences.d"',
        f"--setup-hook=upload {pins} /etc/apt/preferences.d/lab",
        '--customize-hook=chroot "$1" passwd --delete root',
        f"--include={','.join(' '.join(PACKAGES).split())}",
        SUITE, str(directory / "root"), *(f"deb {signed}{where} {suite} main" for suite in (SUITE, BACKPORTS)),
    ]  # fmt: skip
    with open(log, "wb") as output:
        environ = os.environ | {"INITRD": "No", "DEBIAN_FRONTEND": "noninteractive"}  # we make our own initramfs
        code = subprocess.run(command, stdout=output, stderr=output, env=environ, check=False).returncode
    if code != 0:
        last = log.read_text(errors="replace").splitlines()[-1:] or [""]
        raise LinkwrightError(
            f"mmdebstrap ended with {code}: {last[0]}", code="root-not-built", where=str(log),
            next_step=f"Look at {log}. Is the Debian archive reachable (apt-get update)?",
        )  # fmt: skip
