"""The initramfs: busybox, the few modules that lead to the root, and the script that puts it together.

The guest's root is an overlay: the cached Debian and Linkwright's layer below (read-only disks that all hosts
share), a disk of the host's own on top. So nothing is copied before a boot, and what the host writes survives
restarts and power cuts as on any host. Disks and not 9p, by which each look at a file is a message to QEMU.
"""

from __future__ import annotations

import lzma
import stat
from collections.abc import Iterator
from pathlib import Path

MODULES = ("virtio_blk", "overlay", "ext4")

INIT = """\
#!/bin/busybox sh
bb=/bin/busybox
$bb mkdir -p /proc /sys /dev /lower /layer /state /new
$bb mount -t proc proc /proc
$bb mount -t sysfs sysfs /sys
$bb mount -t devtmpfs dev /dev
while read module; do $bb insmod "/modules/$module"; done </modules/order
$bb mount -t ext4 -o ro,noatime /dev/vda /lower
$bb mount -t ext4 -o ro,noatime /dev/vdb /layer
$bb mount -t ext4 -o noatime /dev/vdc /state
$bb mkdir -p /state/upper /state/work /state/lab /state/containers /state/libvirt
layers=lowerdir=/layer:/lower,upperdir=/state/upper,workdir=/state/work
$bb mount -t overlay -o "$layers" overlay /new || exec $bb sh
$bb mkdir -p /new/lab /new/var/lib/containers /new/var/lib/libvirt/images
$bb mount -o bind /state/lab /new/lab
$bb mount -o bind /state/containers /new/var/lib/containers
$bb mount -o move /proc /new/proc
$bb mount -o move /sys /new/sys
$bb mount -o move /dev /new/dev
exec $bb switch_root /new /sbin/init
"""


def build(modules: Path, busybox: Path) -> bytes:
    """The archive (cpio, newc, not compressed). ``modules``: the kernel's directory with modules.dep."""
    order = list(_in_order(modules))
    entries: list[tuple[str, int, bytes]] = [
        *((name, stat.S_IFDIR | 0o755, b"") for name in ("bin", "modules", "proc", "sys", "dev")),
        ("bin/busybox", stat.S_IFREG | 0o755, busybox.read_bytes()),
        ("init", stat.S_IFREG | 0o755, INIT.encode()),
        ("modules/order", stat.S_IFREG | 0o644, "".join(f"{_plain(path)}\n" for path in order).encode()),
        *((f"modules/{_plain(path)}", stat.S_IFREG | 0o644, _unpacked(modules / path)) for path in order),
    ]
    return b"".join(_entry(number, *entry) for number, entry in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1))


def _in_order(modules: Path) -> Iterator[str]:
    """Paths below ``modules``, what others need first."""
    needs: dict[str, list[str]] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
    by_name = {_plain(path).removesuffix(".ko").replace("-", "_"): path for path in needs}
    done: set[str] = set()

    def with_needs(path: str) -> Iterator[str]:
        if path in done:
            return
        done.add(path)
        for needed in needs[path]:
            yield from with_needs(needed)
        yield path

    for name in MODULES:
        if name in by_name:  # else it is built in
            yield from with_needs(by_name[name])


def _plain(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".xz")


def _unpacked(module: Path) -> bytes:
    """Debian's are compressed, which busybox's insmod may not read."""
    data = module.read_bytes()
    return lzma.decompress(data) if module.suffix == ".xz" else data


def _entry(number: int, name: str, mode: int, data: bytes) -> bytes:
    """Documentation/driver-api/early-userspace/buffer-format.rst: a header of hex numbers, name and data each
    padded to 4."""
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
