"""A capture holds what discovery and the firmware's reader need, and nothing that tells whose host it is."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any, cast

import pytest
from captured_host import PORTS, SECRETS, RecordedFirmware, answers, link, make, write

from linkwright.capture import Manifest, capture
from linkwright.firmware import Firmware, open_firmware
from linkwright.kernel.system import System
from linkwright.model.errors import InvalidInput, LinkwrightError


@pytest.fixture
def host(tmp_path: Path) -> System:
    return make(tmp_path / "host")


def taken(host: System, out: Path, **firmware: Any) -> Manifest:
    return capture(host, cast(Firmware, RecordedFirmware(answers(), **firmware)), out)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def everything(root: Path) -> list[tuple[str, str]]:
    found = []
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(folder, name)
            where = str(path.relative_to(root))
            if path.is_symlink():
                found.append((where, str(path.readlink())))
            elif path.is_file():
                found.append((where, path.read_text(errors="replace")))
            else:
                found.append((where, ""))
    return found


def test_no_secret_is_in_any_name_link_or_file(host: System, tmp_path: Path) -> None:
    taken(host, tmp_path / "out")
    for where, content in everything(tmp_path / "out"):
        for secret in SECRETS:
            assert secret not in where + content, f"{secret} in {where}"
        assert "never copied" not in content


def test_structure_is_kept(host: System, tmp_path: Path) -> None:
    taken(host, tmp_path / "out")
    sys = tmp_path / "out" / "sys"
    devices = sys / "bus/pci/devices"
    assert names(devices) == ["0000:3b:00.0", "0000:3b:00.1", "0000:3b:01.0"]
    assert (devices / "0000:3b:00.0/sriov_numvfs").read_text() == "1\n"
    assert (devices / "0000:3b:00.0/virtfn0").resolve() == (devices / "0000:3b:01.0").resolve()
    assert (devices / "0000:3b:01.0/physfn").resolve() == (devices / "0000:3b:00.0").resolve()
    assert (devices / "0000:3b:00.0/driver").readlink().name == "mlx5_core"
    assert (sys / "class/net/ibp59s0f0/device").resolve() == (devices / "0000:3b:00.0").resolve()
    assert (sys / "class/infiniband/mlx5_1").resolve() == (devices / "0000:3b:00.1/infiniband/mlx5_1").resolve()
    assert (sys / "class/net/lo/address").read_text() == "00:00:00:00:00:00\n"
    assert not (sys / "class/net/bonding_masters").exists()


def test_relations_are_kept(host: System, tmp_path: Path) -> None:
    taken(host, tmp_path / "out")
    rdma = tmp_path / "out/sys/class/infiniband"
    first, second = ((rdma / f"mlx5_{i}/node_guid").read_text().strip() for i in (0, 1))
    assert (rdma / "mlx5_0/sys_image_guid").read_text() == (rdma / "mlx5_1/sys_image_guid").read_text()
    assert (rdma / "mlx5_0/sys_image_guid").read_text().strip() == first
    assert int(second.replace(":", ""), 16) == int(first.replace(":", ""), 16) + 1
    assert (rdma / "mlx5_0/ports/1/gids/0").read_text().strip() == f"fe80:0000:0000:0000:{first}"
    address = (tmp_path / "out/sys/class/net/ibp59s0f0/address").read_text().strip()
    assert address.replace(":", "")[-16:] == first.replace(":", "")


def test_a_bond_is_one_by_its_new_name(host: System, tmp_path: Path) -> None:
    taken(host, tmp_path / "out")
    net = tmp_path / "out/sys/class/net"
    (port,) = (net / n for n in names(net) if (net / n / "master").is_symlink())
    master = (port / "master").resolve()
    assert master.is_dir()
    assert (net / master.name).resolve() == master
    assert (port / f"upper_{master.name}").resolve() == master
    assert (port / "uevent").read_text().startswith(f"INTERFACE={port.name}\n")
    ndev = tmp_path / "out/sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0"
    assert ndev.read_text().strip() == port.name


def test_the_manifest_says_what_was_done(host: System, tmp_path: Path) -> None:
    manifest = taken(host, tmp_path / "out")
    stored = json.loads((tmp_path / "out/capture.json").read_text())
    assert stored["host"] == manifest.host == "host-1"
    assert stored["kernel"] == "6.12.48"
    assert stored["mstflint"] == "4.21.0"
    assert stored["functions"] == ["0000:3b:00.0", "0000:3b:00.1", "0000:3b:01.0"]
    assert manifest.scrubbed["serial number"] == 1
    assert manifest.scrubbed["host name"] == 1
    assert manifest.scrubbed["MAC address"] >= 3
    assert any(line.startswith("links: ") for line in manifest.left_out)


def test_the_firmware_answers_from_the_copy(host: System, tmp_path: Path) -> None:
    taken(host, tmp_path / "out")
    copy = System.from_environment({}, sysroot=str(tmp_path / "out"))
    firmware = open_firmware(copy)
    reading = firmware.query(PORTS[0], ["LINK_TYPE_P1", "LINK_TYPE_P3"])
    assert reading.params["LINK_TYPE_P1"].next == "ETH(2)"
    assert reading.missing == ("LINK_TYPE_P3",)
    assert len(firmware.query(PORTS[0]).params) == 4
    assert firmware.uptime_s(PORTS[1]) == 0x1387
    assert firmware.reset_offer(PORTS[0]).usable
    assert firmware.version() == "4.21.0"
    for change in (lambda: firmware.write(PORTS[0], {"LINK_TYPE_P1": "1"}), lambda: firmware.reset(PORTS[0])):
        with pytest.raises(InvalidInput) as caught:
            change()
        assert caught.value.code == "capture-read-only"
    with pytest.raises(InvalidInput) as again:
        capture(copy, firmware, tmp_path / "second")
    assert again.value.code == "capture-of-capture"


def test_a_copy_without_firmware_runs_no_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path)
    monkeypatch.setenv("PATH", "/nonexistent")
    firmware = open_firmware(System.from_environment({}, sysroot=str(tmp_path)))
    with pytest.raises(LinkwrightError) as caught:
        firmware.query(PORTS[0], ["LINK_TYPE_P1"])
    assert caught.value.code == "not-captured"
    assert firmware.uptime_s(PORTS[0]) is None


def test_what_could_not_be_read_is_said(host: System, tmp_path: Path) -> None:
    manifest = taken(host, tmp_path / "out", refuse=True)
    assert f"firmware of {PORTS[0]}: the lock cannot be opened" in manifest.left_out
    assert not (tmp_path / "out/firmware").exists()


def test_an_archive_tells_not_who_made_it(host: System, tmp_path: Path) -> None:
    taken(host, tmp_path / "gpu.tar.gz")
    with tarfile.open(tmp_path / "gpu.tar.gz") as tar:
        members = tar.getmembers()
    assert {m.name.partition("/")[0] for m in members} == {"gpu"}
    assert {(m.uid, m.uname, m.mtime) for m in members} == {(0, "", 0)}
    assert names(tmp_path) == ["gpu.tar.gz", "host"], "nothing unfinished is left"


def test_nothing_is_overwritten(host: System, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(InvalidInput) as caught:
        taken(host, tmp_path / "out")
    assert caught.value.code == "capture-exists"


def test_a_link_out_of_the_tree_is_not_followed(host: System, tmp_path: Path) -> None:
    write(tmp_path, {"outside/class": "0x020000", "outside/vendor": "acme"})
    link(host.sys, "bus/pci/devices/0000:99:00.0", str(tmp_path / "outside"))
    taken(host, tmp_path / "out")
    assert not any("acme" in content for _, content in everything(tmp_path / "out"))
