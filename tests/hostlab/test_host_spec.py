"""The lab's host file is read strictly, and what the machine lacks is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostlab import needs, rootfs, spec
from linkwright.model.errors import InvalidInput, LinkwrightError

GOOD = """\
name: gpu-01
fabrics:
  rail-0: {linkModes: [InfiniBand, RoCE], subnetManager: true}
adapters:
- persona: cx6-vpi-dual
  address: 0000:03:00
  ports: [{fabric: rail-0}, {}]
  faults: {busy: 3, write_refused: "LINK_TYPE_P1,LINK_TYPE_P2"}
"""


def test_a_good_file() -> None:
    content = spec.parse(GOOD, "gpu.yaml")
    assert content["name"] == "gpu-01"
    assert content["fabrics"]["rail-0"] == {"linkModes": ["InfiniBand", "RoCE"], "subnetManager": True}
    adapter = content["adapters"][0]
    assert adapter["address"] == "0000:03:00"
    assert adapter["ports"] == [{"fabric": "rail-0"}, {}]
    assert adapter["faults"] == {"busy": 3, "write_refused": ["LINK_TYPE_P1", "LINK_TYPE_P2"]}


def test_packaged_files_are_good() -> None:
    assert "gpu-01" in spec.packaged()
    for name in spec.packaged():
        assert spec.load(spec.find(name))["name"]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("name: gpu-01", "name: GPU_01", 1, "is not a host name"),
        ("subnetManager: true", "subnetManger: true", 3, "subnetManager"),
        ("[InfiniBand, RoCE]", "[IB]", 3, "InfiniBand"),
        ("persona: cx6-vpi-dual", "persona: cx9", 5, "there is no persona 'cx9'"),
        ("address: 0000:03:00", "address: 0000:03:00.0", 6, "without a function"),
        ("fabric: rail-0", "fabric: rail-7", 7, "is not described under fabrics"),
        ("name: gpu-01\n", "", 1, "name"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, line: int, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        spec.parse(GOOD.replace(old, new), "gpu.yaml")
    assert caught.value.where == f"gpu.yaml:{line}"
    assert words in f"{caught.value.message} {caught.value.next_step}"


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no\.yaml.*cannot be read"):
        spec.load(tmp_path / "no.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("off", False), ("0", 0), ("1.5", 1.5), ("a,b", ["a", "b"]), ("[a]", ["a"]), ("w", "w")],
)
def test_fault_values(text: str, value: object) -> None:
    assert spec.fault_value(text) == value


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs.os, "geteuid", lambda: 0)
    monkeypatch.setattr(needs.shutil, "which", lambda name, path: name not in ("podman", "mstconfig") or None)
    monkeypatch.setattr(needs, "find_busybox", lambda: None)
    with pytest.raises(LinkwrightError) as caught:
        needs.check()
    assert caught.value.next_step == "apt-get install --yes mstflint podman busybox-static"


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs.os, "geteuid", lambda: 1000)
    with pytest.raises(LinkwrightError, match="need root"):
        needs.check()


def test_a_container_root(tmp_path: Path) -> None:
    if rootfs.find_busybox() is None:
        pytest.skip("no static busybox")
    root = rootfs.build(tmp_path / "rootfs")
    assert (root / "bin/ip").readlink() == Path("busybox")
    assert (root / "usr/bin/sleep").resolve() == (root / "bin/busybox").resolve()
    assert rootfs.build(root) == root
