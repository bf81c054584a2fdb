"""Linkwright as the guest has it: the wheel in an environment of the guest's own Python, its units enabled, the
lab's beside.

A layer over the root, not a part of it, because it changes with every edit and takes seconds, not minutes. What it
depends on is a third thing in the cache, for the same reason.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from hostlab.real import cache
from hostlab.real.recipe import Root, make_disk, size_mib
from linkwright.model.errors import LinkwrightError

IMAGE = "image"
ENVIRONMENT = "opt/linkwright"
PYTHON = "3.13"  # of the root's Debian
_SITE = f"{ENVIRONMENT}/lib/python{PYTHON}/site-packages"
# Newest first: the root's libc is 2.41.
_TAGS = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
_PLATFORMS = [f"--platform={tag}_x86_64" for tag in _TAGS]
_START = f"""\
#!/{ENVIRONMENT}/bin/python3 -P
import sys
from linkwright.cli.main import main
sys.exit(main())
"""
_CONFIG = f"home = /usr/bin\ninclude-system-site-packages = true\nversion = {PYTHON}\n"
_ENABLED = ("podman-restart.service",)  # containers with a restart policy come back after a restart
# Of no use in the lab, and each costs seconds under emulation.
_MASKED = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer"),
    *("e2scrub_reap.service", "ldconfig.service", "systemd-journal-catalog-update.service", "logrotate.timer"),
    *("modprobe@drm.service", "netavark-dhcp-proxy.service", "netavark-dhcp-proxy.socket"),
)


def obtain(root: Root, say: Callable[[str], None]) -> Path:
    """The directory with the layer for ``root`` (``IMAGE``: a disk), built when the sources changed. Raises
    LinkwrightError(lab-not-possible, layer-not-built)."""
    source = _checkout()
    settings = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = sorted([*settings["dependencies"], *settings["optional-dependencies"]["lab"]])
    needs = _digest([root.directory.name, *wanted, *_PLATFORMS])

    def dependencies(directory: Path) -> None:
        say("fetching what Linkwright depends on, for the guest's Python")
        _pip(directory, [*wanted], f"--python-version={PYTHON}", "--only-binary=:all:", *_PLATFORMS)
        _compile(root, directory)

    def layer(directory: Path) -> None:
        say("laying Linkwright over the root file system")
        tree = directory / "tree"
        _layer(root, source, cache.obtain("deps", needs, dependencies), tree)
        make_disk(root, directory / IMAGE, size_mib(tree), tree)
        shutil.rmtree(tree)

    return cache.obtain("layer", _digest([needs, *_contents(source)]), layer)


def _checkout() -> Path:
    source = Path(__file__).resolve().parents[3]
    if (source / "pyproject.toml").is_file() and (source / "packaging/systemd").is_dir():
        return source
    raise LinkwrightError(
        "a real host gets Linkwright built from its sources, which are not here",
        code="lab-not-possible", where="lab",
        next_step="Run it from a checkout: git clone …, then pip install --editable '.[lab]'.",
    )  # fmt: skip


def _contents(source: Path) -> list[str]:
    """Path and content of all that goes into the layer."""
    files = [source / "pyproject.toml"]
    for below in ("src", "packaging"):
        files += (p for p in sorted((source / below).rglob("*")) if p.is_file() and "__pycache__" not in p.parts)
    return [f"{path.relative_to(source)}:{hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _layer(root: Root, source: Path, dependencies: Path, layer: Path) -> None:
    site = layer / _SITE
    site.parent.mkdir(parents=True)
    shutil.copytree(dependencies, site, symlinks=True, copy_function=_link_or_copy)
    wheels = layer / "wheel"
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={wheels}", str(source)])
    wheel = next(wheels.glob("linkwright-*.whl"))
    _pip(site, [str(wheel)], "--no-deps", "--upgrade")
    shutil.rmtree(wheels)
    for package in ("linkwright", "hostlab"):
        _compile(root, site / package)

    bin_ = layer / ENVIRONMENT / "bin"
    bin_.mkdir()
    (bin_ / "python3").symlink_to("/usr/bin/python3")
    (layer / ENVIRONMENT / "pyvenv.cfg").write_text(_CONFIG)
    _write(bin_ / "linkwright", _START, 0o755)
    (layer / "usr/bin").mkdir(parents=True)
    (layer / "usr/bin/linkwright").symlink_to(f"/{ENVIRONMENT}/bin/linkwright")

    units = layer / "usr/lib/systemd/system"
    lab_units = Path(__file__).parent / "units"
    ours = [*(source / "packaging/systemd").glob("*.service"), *lab_units.glob("*.service")]
    for unit in ours:
        _write(units / unit.name, unit.read_text(encoding="utf-8"))
        for line in unit.read_text(encoding="utf-8").splitlines():
            if line.startswith("WantedBy="):
                wants = layer / f"etc/systemd/system/{line.removeprefix('WantedBy=')}.wants"
                wants.mkdir(parents=True, exist_ok=True)
                (wants / unit.name).symlink_to(f"/usr/lib/systemd/system/{unit.name}")
    for drop_in in lab_units.glob("*.d/*.conf"):
        _write(units / drop_in.parent.name / drop_in.name, drop_in.read_text(encoding="utf-8"))
    for name in _ENABLED:
        wants = layer / "etc/systemd/system/multi-user.target.wants"
        (wants / name).symlink_to(f"/usr/lib/systemd/system/{name}")
    for name in _MASKED:
        (layer / "etc/systemd/system").mkdir(parents=True, exist_ok=True)
        (layer / "etc/systemd/system" / name).symlink_to("/dev/null")
    for users in (source / "packaging/sysusers.d").glob("*.conf"):
        _write(layer / "usr/lib/sysusers.d" / users.name, users.read_text(encoding="utf-8"))
    _container_root(layer / "srv/busybox")


def _container_root(tree: Path) -> None:
    """A root for containers (podman run --rootfs): the guest's own programs, bound in at /usr, so that RDMA tools
    are there."""
    for name in ("dev", "etc", "proc", "run", "sys", "tmp", "usr", "var"):
        (tree / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (tree / name).symlink_to(f"usr/{name}")


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _pip(target: Path, what: list[str], *options: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", f"--target={target}"]
    _run([*command, *options, *what])


def _compile(root: Root, tree: Path) -> None:
    """By the guest's Python, for it: without that each start of a program there would compile 400 files anew."""
    command = [*root.program(f"usr/bin/python{PYTHON}"), "-s", "-S", "-m", "compileall", "-q"]
    command += ["--invalidation-mode", "unchecked-hash", str(tree)]
    _run(command, {"PYTHONHOME": str(root.tree / "usr")})


def _run(command: list[str], environ: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | (environ or {}), check=False
    )  # fmt: skip
    if done.returncode != 0:
        raise LinkwrightError(
            f"{' '.join(command[:6])} …: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}",
            code="layer-not-built", where="lab",
        )  # fmt: skip
