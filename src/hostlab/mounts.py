"""Mounts and namespaces by libc calls, and the root file system that an emulated host sees.

Imported by the host's pid 1 before anything else, so it needs nothing but the standard library and little of it.

A host's root is a tmpfs. Programs come from the machine (/usr, /opt, /home, /root, …, bound as they are). What
makes a host a host is its own: /etc, /var and /srv from the lab's disk of that host, /run, /tmp and /dev/shm fresh
at each boot, /proc of its PID namespace, /sys the emulated tree. Because it is a new root, nothing has to be
created on the machine, and nothing that a host writes to those places reaches it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19
MNT_DETACH = 2
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWTIME = 0x20000000, 0x40000000, 0x00000080
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

# Never taken from the machine: made by ``build_root``, or of no use in a host.
OWN = ("proc", "sys", "dev", "run", "tmp", "etc", "var", "srv", "boot", "lost+found")

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _bytes(text: str | os.PathLike[str] | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def mount(
    source: str | os.PathLike[str] | None,
    target: str | os.PathLike[str],
    kind: str | None = None,
    flags: int = 0,
    data: str | None = None,
) -> None:
    """mount(2). Raises OSError naming the target."""
    result = _libc.mount(_bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(data))
    _check(result, f"mount {kind or source} on {os.fspath(target)}")


def bind(source: str | os.PathLike[str], target: str | os.PathLike[str], *, recursive: bool = False) -> None:
    mount(source, target, None, MS_BIND | (MS_REC if recursive else 0))


def unmount(target: str | os.PathLike[str]) -> None:
    """Lazy umount2(2): open files go on working, the tree is gone at once."""
    _check(_libc.umount2(_bytes(target), MNT_DETACH), f"umount {os.fspath(target)}")


def make_private() -> None:
    """Nothing mounted from here on is seen outside; what the machine unmounts goes away here too."""
    mount(None, "/", None, MS_REC | MS_SLAVE)


def unshare(flags: int) -> None:
    """unshare(2) for the calling thread (os.unshare is 3.12+)."""
    _check(_libc.unshare(flags), f"unshare {flags:#x}")


def setns(descriptor: int, flags: int = 0) -> None:
    """setns(2) for the calling thread (os.setns is 3.12+)."""
    _check(_libc.setns(descriptor, flags), "setns")


def die_with_parent(signal_number: int) -> None:
    """PR_SET_PDEATHSIG: the signal comes when the *thread* that made this process ends."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl")


def set_process_name(name: str) -> None:
    """What /proc/PID/comm and ``ps`` show; at most 15 characters."""
    _check(_libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0), "prctl")


def set_hostname(name: str) -> None:
    raw = name.encode()
    _check(_libc.sethostname(raw, len(raw)), "sethostname")


def pivot_root(new_root: str) -> None:
    """Make ``new_root`` the root and drop the old one (pivot_root(2), NOTES: put_old = new_root)."""
    os.chdir(new_root)
    _check(_libc.syscall(_SYS_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    unmount(".")
    os.chdir("/")


def covered(path: Path) -> bool:
    """Would ``path`` of the machine be hidden in a host (under one of ``OWN``)?"""
    parts = path.parts
    return len(parts) > 1 and parts[1] in OWN


def build_root(root: Path, *, disk: Path, sys: Path, hostlab: Path, state: Path, needed: Iterable[str]) -> None:
    """Mount a host's whole tree at ``root``. Call in the host's mount and PID namespaces, then ``pivot_root``.

    ``disk`` holds etc, var and srv; ``sys`` is the emulated tree (with empty folders devices/system, fs/cgroup);
    ``hostlab`` becomes /run/hostlab; ``state`` becomes /var/lib/linkwright; ``needed`` are paths of the machine
    that Python needs and that would otherwise be covered.
    """
    mount("tmpfs", root, "tmpfs", MS_NODEV, "mode=755,size=16m")
    for entry in sorted(os.scandir("/"), key=lambda one: one.name):
        target = root / entry.name
        if entry.name in OWN:
            continue
        if entry.is_symlink():
            target.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir():
            target.mkdir()
            bind(entry.path, target, recursive=True)
    for name in ("etc", "var", "srv"):
        (root / name).mkdir()
        bind(disk / name, root / name)
    for name, mode in (("run", "755"), ("tmp", "1777")):
        (root / name).mkdir()
        mount("tmpfs", root / name, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode}")
    (root / "proc").mkdir()
    mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _mount_sys(root / "sys", sys)
    _mount_dev(root / "dev")
    _bind_over(hostlab, root / "run/hostlab")
    _bind_over(state, root / "var/lib/linkwright")
    # Over /proc, so after it is mounted; a new one at each boot is how everybody tells that there was a restart.
    bind(hostlab / "boot_id", root / "proc/sys/kernel/random/boot_id")
    for path in needed:
        source = Path(path)
        if covered(source):
            _bind_over(source, root / path.lstrip("/"))


def _bind_over(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    bind(source, target, recursive=True)


def _mount_sys(target: Path, tree: Path) -> None:
    target.mkdir()
    bind(tree, target)
    bind("/sys/devices/system", target / "devices/system", recursive=True)  # CPUs and memory, for nproc and lscpu
    mount("cgroup2", target / "fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC)  # podman asks for it


def _mount_dev(dev: Path) -> None:
    dev.mkdir()
    mount("tmpfs", dev, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=4m")
    for name in ("null", "zero", "full", "random", "urandom", "tty", "fuse", "net/tun"):
        if Path("/dev", name).exists():
            _bind_over(Path("/dev", name), dev / name)
    for name, text in (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1")):
        (dev / name).symlink_to(text)
    (dev / "stderr").symlink_to("/proc/self/fd/2")
    (dev / "ptmx").symlink_to("pts/ptmx")
    for name in ("pts", "shm", "mqueue"):
        (dev / name).mkdir()
    mount("devpts", dev / "pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5")
    mount("tmpfs", dev / "shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    mount("mqueue", dev / "mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def hide_hypervisor(environ: Mapping[str, str]) -> None:
    """mstfwreset refuses to work where lscpu prints "Hypervisor vendor"; the emulated host is not a guest.

    Called inside the host: puts the filter /run/hostlab/lscpu in front of the lscpu on PATH.
    """
    for folder in environ["PATH"].split(":"):
        program = Path(folder, "lscpu")
        if program.is_file():
            real = Path("/run/lscpu.real")
            real.touch()
            bind(program, real)
            bind("/run/hostlab/lscpu", program)
            return


def new_network_namespace() -> int:
    """A descriptor of a fresh network namespace; it lives as long as the descriptor or a process in it."""
    made: list[int | OSError] = []

    def make() -> None:
        try:
            unshare(CLONE_NEWNET)  # for this thread only
            made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]
