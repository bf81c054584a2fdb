"""A small sysfs tree with what must not leave a host: a dual-port card, a VF, a bond, names that people gave."""

from __future__ import annotations

import errno
from pathlib import Path

from linkwright.firmware.tool import Answer
from linkwright.kernel.netlink.codec import Message
from linkwright.kernel.system import System
from linkwright.model.errors import NeedsPerson

SECRETS = (
    *(
        "b8:3f:d2",
        "b83f:d2",
        "b83fd2",
        "MT2246X01234",
        "acme-gpu-07",
        "acme.example",
        "acme",
        "hr-data",
        "net-of-hr",
    ),
    *("9f8e", "10.9", "0a09"),
)
DATA = Path(__file__).parents[1] / "firmware" / "data" / "4.21"
PORTS = ("0000:3b:00.0", "0000:3b:00.1")


def vpd() -> bytes:
    fields = b"PN\x0fMCX653106A-ECATSN\x0cMT2246X01234V0\x04acme"
    head = b"\x82\x0e\x00ConnectX-6 VPI" + b"\x90" + (len(fields) + 4).to_bytes(2, "little") + fields + b"RV\x01"
    return head + bytes([-sum(head) & 0xFF, 0x78])


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())


def link(root: Path, name: str, target: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).symlink_to(target)


def make(root: Path) -> System:
    """``root/sys`` and ``root/proc``; System as on a real host but for its roots."""
    sys, above = root / "sys", "devices/pci0000:3a/0000:3a:00.0"
    for index, pf in enumerate(PORTS):
        base = f"{above}/{pf}"
        write(sys, {
            f"{base}/vendor": "0x15b3", f"{base}/device": "0x101b", f"{base}/class": "0x020700",
            f"{base}/subsystem_device": "0x0006", f"{base}/numa_node": "1", f"{base}/sriov_numvfs": str(1 - index),
            f"{base}/sriov_totalvfs": "16", f"{base}/sriov_vf_device": "101c", f"{base}/vpd": vpd(),
            f"{base}/config": "never copied", f"{base}/resource0": "never copied",
        })  # fmt: skip
        name = "ibp59s0f0" if index == 0 else "hr-data"
        guid = f"b83f:d203:00ab:cdf{'ef'[index]}"
        qpn = "00:00:10:29:fe:80:00:00:00:00:00:00"
        net, rdma = f"{base}/net/{name}", f"{base}/infiniband/mlx5_{index}"
        write(sys, {
            f"{net}/address": f"{qpn}:b8:3f:d2:03:00:ab:cd:f{'ef'[index]}", f"{net}/type": "32",
            f"{net}/uevent": f"INTERFACE={name}\nIFINDEX={index + 2}", f"{net}/ifalias": "acme",
            f"{net}/broadcast": "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff",
            f"{rdma}/node_guid": guid, f"{rdma}/fw_ver": "20.41.1000", f"{rdma}/board_id": "MT_0000000224",
            f"{rdma}/sys_image_guid": "b83f:d203:00ab:cdfe", f"{rdma}/node_desc": f"acme-gpu-07 mlx5_{index}",
            f"{rdma}/ports/1/link_layer": "InfiniBand", f"{rdma}/ports/1/rate": "200 Gb/sec (4X HDR)",
            f"{rdma}/ports/1/state": "4: ACTIVE", f"{rdma}/ports/1/phys_state": "5: LinkUp",
            f"{rdma}/ports/1/sm_lid": "0x1", f"{rdma}/ports/1/gids/0": f"fe80:0000:0000:0000:{guid}",
            f"{rdma}/ports/1/gids/1": "0000:0000:0000:0000:0000:ffff:0a09:0007",
            f"{rdma}/ports/1/gids/2": "0000:0000:0000:0000:0000:0000:0000:0000",
            f"{rdma}/ports/1/gid_attrs/ndevs/0": name,
        })  # fmt: skip
        link(sys, f"{base}/driver", "../../../../bus/pci/drivers/mlx5_core")
        link(sys, f"{base}/net/{name}/device", f"../../../{pf}")
        link(sys, f"{base}/infiniband/mlx5_{index}/device", f"../../../{pf}")
        link(sys, f"bus/pci/devices/{pf}", f"../../../{base}")
        link(sys, f"class/net/{name}", f"../../{base}/net/{name}")
        link(sys, f"class/infiniband/mlx5_{index}", f"../../{base}/infiniband/mlx5_{index}")
    vf = f"{above}/0000:3b:01.0"
    write(sys, {f"{vf}/vendor": "0x15b3", f"{vf}/device": "0x101c", f"{vf}/class": "0x020700"})
    link(sys, f"{vf}/physfn", "../0000:3b:00.0")
    link(sys, f"{above}/0000:3b:00.0/virtfn0", "../0000:3b:01.0")
    link(sys, "bus/pci/devices/0000:3b:01.0", f"../../../{vf}")
    write(sys, {f"{above}/0000:3a:00.1/class": "0x060400"})
    link(sys, "bus/pci/devices/0000:3a:00.1", f"../../../{above}/0000:3a:00.1")
    write(sys, {
        "devices/virtual/net/net-of-hr/address": "b8:3f:d2:9f:8e:01", "devices/virtual/net/net-of-hr/type": "1",
        "devices/virtual/net/lo/address": "00:00:00:00:00:00", "class/net/bonding_masters": "net-of-hr",
    })  # fmt: skip
    for name in ("net-of-hr", "lo"):
        link(sys, f"class/net/{name}", f"../../devices/virtual/net/{name}")
    slave = f"{above}/0000:3b:00.1/net/hr-data"
    link(sys, f"{slave}/master", "../../../../../virtual/net/net-of-hr")
    link(sys, f"{slave}/upper_net-of-hr", "../../../../../virtual/net/net-of-hr")
    write(root / "proc", {
        "sys/kernel/hostname": "acme-gpu-07.acme.example", "sys/kernel/osrelease": "6.12.48",
        "sys/kernel/random/boot_id": "9f8e7d6c-0000-4000-8000-000000000000", "uptime": "1234.5 99",
    })  # fmt: skip
    return System(sys=sys, proc=root / "proc", run=root / "run", netlink=NoKernel())


def answers() -> dict[str, Answer]:
    return {
        "query": Answer(command=("mstconfig",), code=0, text=(DATA / "query_after_set.txt").read_text()),
        "uptime": Answer(
            command=("mstreg",),
            code=0,
            text=(DATA / "uptime.txt").read_text().replace(
                "manufacturing_base_mac_31_0     | 0x00000000", "manufacturing_base_mac_31_0     | 0xd29f8e01"
            ),
        ),
        "reset": Answer(command=("mstfwreset",), code=0, text=(DATA / "offer.txt").read_text()),
    }  # fmt: skip


class NoKernel:
    """A kernel without these families."""

    def request(
        self, family: int, messages: bytes, *, netns: int | None = None, passed_fd: int | None = None
    ) -> list[Message]:
        raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")

    def subscribe(self, family: int, groups: int, *, netns: int | None = None) -> object:
        raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")


class RecordedFirmware:
    """Answers like the facade for ``transcripts`` and ``version``."""

    def __init__(self, answers: dict[str, Answer], *, refuse: bool = False) -> None:
        self._answers = answers
        self._refuse = refuse

    def transcripts(self, pf: str) -> dict[str, Answer]:
        if self._refuse:
            raise NeedsPerson("the lock cannot be opened", code="needs-root", where=pf)
        return self._answers

    def version(self) -> str | None:
        return None if self._refuse else "4.21.0"
