"""The disk of an emulated host: /etc, /var and /srv, kept over restarts and over ``lab down``.

/etc begins as a copy of the machine's, so that programs find their users, certificates and libraries' settings;
what a host writes there stays on its disk. /var begins empty. Settings for podman make ``podman run --rootfs``
work: no cgroups of its own, limits within the machine's, no systemd journal, no network but loopback.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from hostlab import rootfs

VAR = ("cache", "lib/containers", "lib/linkwright", "lib/misc", "local", "log", "mail", "opt", "spool", "tmp")

CONTAINERS_CONF = """\
# An emulated host has no systemd, no journal, no cgroups of its own; Linkwright gives containers their network.
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
default_capabilities = [
  "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID",
  "SETPCAP", "SETUID", "SYS_CHROOT",
]
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
"""


def prepare(disk: Path, name: str) -> None:
    """Make ``disk``/{etc,var,srv} for host ``name`` unless it is there; keep what is."""
    disk.mkdir(parents=True, exist_ok=True)
    disk.chmod(0o700)  # it holds a copy of /etc/shadow
    etc = disk / "etc"
    if not etc.exists():
        part = disk / "etc.part"
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree("/etc", part, symlinks=True, ignore_dangling_symlinks=True, ignore=_not_ours)
        _own_files(part, name)
        part.rename(etc)  # last: it says that the copy is whole
    for folder in VAR:
        (disk / "var" / folder).mkdir(parents=True, exist_ok=True)
    (disk / "var/tmp").chmod(0o1777)
    for link, target in (("run", "../run"), ("lock", "../run/lock")):
        if not (disk / "var" / link).is_symlink():
            (disk / "var" / link).symlink_to(target)
    rootfs.build(disk / "srv/rootfs")


def _not_ours(folder: str, names: list[str]) -> set[str]:
    """Sockets, pipes and devices cannot be copied; the machine's own Linkwright and podman settings stay out."""
    skip = {"linkwright", "containers", "cni"} if folder == "/etc" else set()
    special = {n for n in names if (p := Path(folder, n)).exists() and not (p.is_file() or p.is_dir())}
    return (skip & set(names)) | special


def _own_files(etc: Path, name: str) -> None:
    files = {
        "hostname": f"{name}\n",
        "hosts": f"127.0.0.1 localhost\n127.0.1.1 {name}\n::1 localhost ip6-localhost\n",
        "resolv.conf": "",
        "machine-id": f"{uuid.uuid4().hex}\n",
        "containers/containers.conf": CONTAINERS_CONF,
        "containers/policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}\n',
        "containers/registries.conf": "unqualified-search-registries = []\n",
    }
    for path, text in files.items():
        target = etc / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_text(text)
    (etc / "linkwright").mkdir(exist_ok=True)
