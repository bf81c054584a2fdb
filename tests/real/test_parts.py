"""The parts of a real host that need no boot: its initramfs, its channel, the cache, QEMU's command line."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hostlab.layout import HostDirs
from hostlab.real import cache, initramfs
from hostlab.real.channel import Channel
from hostlab.real.guest import channel as inside
from hostlab.real.machine import CARDS, RealHost
from hostlab.real.recipe import Root
from linkwright.model.errors import LinkwrightError, Vanished


class _HungUp(Exception):
    pass


def _hang_up() -> None:
    raise _HungUp


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Channel]:
    """Both ends, with a socket where a guest has its port."""
    path = tmp_path / "channel.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(1)

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client, suppress(_HungUp, OSError):
                inside.Channel(client.fileno()).serve(_hang_up)

    threading.Thread(target=serve, daemon=True).start()
    yield Channel(path, "gpu-01")
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def test_a_command_runs_inside_with_its_input_and_environment(channel: Channel) -> None:
    done = channel.exec(["sh", "-c", "cat; echo $COLOUR; echo oops >&2; exit 3"], check=False, stdin="hello\n",
                        environ={"COLOUR": "blue"})  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (3, "hello\nblue\n", "oops\n")


def test_a_command_that_fails_raises_with_its_words(channel: Channel) -> None:
    with pytest.raises(LinkwrightError, match="No such file") as caught:
        channel.exec(["cat", "/does/not/exist"])
    assert caught.value.code == "command-failed"


def test_a_program_that_is_not_there_is_told(channel: Channel) -> None:
    with pytest.raises(LinkwrightError, match="FileNotFoundError"):
        channel.exec(["/does/not/exist"])


def test_a_command_over_its_limit_is_killed(channel: Channel) -> None:
    with pytest.raises(LinkwrightError) as caught:
        channel.exec(["sleep", "1000"], timeout_s=0.2)
    assert caught.value.code == "command-late"


def test_files_go_in_and_out(channel: Channel, tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    channel.put(str(path), "ü\n", 0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert channel.get(str(path)) == "ü\n"


def test_it_says_which_boot_it_is(channel: Channel) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert channel.wait_up(10)["hello"] == boot
    with pytest.raises(Vanished):
        channel.wait_up(0.3, not_boot=boot)


def test_a_host_that_is_off_is_told(tmp_path: Path) -> None:
    with pytest.raises(Vanished) as caught:
        Channel(tmp_path / "none.sock", "gpu-01").exec(["true"])
    assert caught.value.code == "host-is-off"


def test_the_initramfs_unpacks_and_loads_what_others_need_first(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    (modules / "kernel").mkdir(parents=True)
    lines = ["kernel/ext4.ko: kernel/jbd2.ko kernel/mbcache.ko", "kernel/jbd2.ko:", "kernel/mbcache.ko:"]
    lines += ["kernel/overlay.ko:", "kernel/other.ko:"]
    (modules / "modules.dep").write_text("\n".join(lines) + "\n")
    for line in lines:
        path = line.partition(":")[0]
        (modules / path).write_text(f"code of {path}")
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"\x7fELF")
    archive = initramfs.build(modules, busybox)
    target = tmp_path / "unpacked"
    target.mkdir()
    subprocess.run(
        ["busybox", "cpio", "-i"], cwd=target, input=archive, check=True, capture_output=True
    )  # fmt: skip
    assert (target / "modules/order").read_text().split() == ["overlay.ko", "jbd2.ko", "mbcache.ko", "ext4.ko"]
    assert (target / "modules/jbd2.ko").read_text() == "code of kernel/jbd2.ko"
    assert os.access(target / "init", os.X_OK)
    assert os.access(target / "bin/busybox", os.X_OK)
    assert subprocess.run(["sh", "-n", target / "init"], check=False).returncode == 0


def test_the_cache_builds_once_and_drops_what_is_old_and_unused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built: list[Path] = []

    def build(directory: Path) -> None:
        built.append(directory)
        (directory / "content").touch()

    first = cache.obtain("root", "1", build)
    assert cache.obtain("root", "1", build) == first
    assert len(built) == 1
    assert (first / "content").exists()
    held = cache.hold(first)
    second = cache.obtain("root", "2", build)
    assert first.exists()  # a host uses it
    os.close(held)
    cache.obtain("root", "3", build)
    assert not first.exists()
    assert not second.exists()


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def build(directory: Path) -> None:
        (directory / "half").touch()
        raise LinkwrightError("no", code="root-not-built")

    with pytest.raises(LinkwrightError):
        cache.obtain("root", "1", build)
    assert not [path for path in cache.directory().iterdir() if path.is_dir()]


def test_each_card_has_a_root_port_of_its_own(tmp_path: Path) -> None:
    tree = tmp_path / "root"
    (tree / "boot").mkdir(parents=True)
    (tree / "boot/vmlinuz-7.3.4").touch()
    host = RealHost(HostDirs("gpu-01", tmp_path / "run", tmp_path / "lib"))
    command = host.command_line(Root(tmp_path), tmp_path / "layer", tmp_path / "initrd")
    cards = [part for part in command if part.startswith("igb,")]
    assert [part.split(",")[1] for part in cards] == [f"bus=port{n}" for n in range(1, len(CARDS) + 1)]
    assert "hostlab.card=0000:01:00.0,cx7-vpi-single,RoCE" in command[command.index("-append") + 1]
    assert host.pid() is None
    assert host.down() is False
