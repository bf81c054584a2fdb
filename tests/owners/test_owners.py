"""Other tools on a card are recognised by the file or process that shows them, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linkwright import owners
from linkwright.kernel.netlink.transport import NoTransport
from linkwright.kernel.system import System
from linkwright.model.inventory import OWNERS, Adapter, Function, Netdev, Owner, Port, RdmaDevice
from linkwright.model.values import PciAddress, PortId

PF, SECOND, OTHER = "0000:3b:00.0", "0000:3b:00.1", "0000:5e:00.0"
MAC = "b8:3f:d2:11:22:33"


def card(pf: str, name: str, mac: str = "b8:3f:d2:00:00:01", vf: str | None = None) -> Port:
    netdev = Netdev(name=name, ifindex=3, link_type=1, address=mac, mtu=1500, altnames=(f"{name}-alt",))
    function = Function(address=PciAddress(pf), netdev=netdev, rdma=RdmaDevice(name=f"roce-{name}"))
    vfs = (Function(address=PciAddress(vf), vf_index=0),) if vf else ()
    return Port(id=PortId(f"{pf}/1"), number=1, pf=function, vfs=vfs)


ADAPTERS = (
    Adapter(id="a", ports=(card(PF, "ens1f0", MAC, "0000:3b:00.2"), card(SECOND, "ens1f1"))),
    Adapter(id="b", ports=(card(OTHER, "ens2"),)),
)


class Root:
    """A host's files and processes in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "proc").mkdir()

    def file(self, name: str, text: str) -> None:
        path = self.path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def process(self, pid: int, *argv: str, comm: str | None = None) -> None:
        self.file(f"proc/{pid}/comm", (comm or argv[0].rpartition("/")[2])[:15] + "\n")
        self.file(f"proc/{pid}/cmdline", "\0".join(argv) + "\0")

    def find(self, *adapters: Adapter) -> tuple[Owner, ...]:
        system = System(sys=self.path / "sys", proc=self.path / "proc", netlink=NoTransport())
        return owners.find(system, adapters or ADAPTERS)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def told(found: tuple[Owner, ...]) -> list[tuple[Any, ...]]:
    assert all(owner.name in OWNERS for owner in found)
    return [(o.name, o.evidence, o.what, list(o.pfs)) for o in found]


FILES = [
    ("sriov-network-operator", "VFs", "/etc/sriov-operator/pci/0000:3b:00.0", '{"numVfs": 4}', [PF]),
    (
        "sriov-network-operator",
        "VFs",
        "/etc/sriov-operator/sriov-interface-config.yaml",
        f"spec:\n  interfaces:\n  - pciaddress: {SECOND}\n    numvfs: 4\n",
        [SECOND],
    ),
    (
        "nic-configuration-operator",
        "names",
        "/etc/udev/rules.d/10-nic-net-interface-naming.rules",
        f'SUBSYSTEM=="net", ACTION=="add", KERNELS=="{OTHER}", NAME="rail0"\n',
        [OTHER],
    ),
    ("openibd", "link types", "/etc/infiniband/connectx.conf", f"# card types\n{PF} eth ib\n", [PF]),
    (
        "openibd",
        "VFs",
        "/etc/infiniband/post-start-hook.sh",
        "#!/bin/sh\nfor d in $CARDS; do echo 4 > /sys/class/infiniband/$d/device/sriov_numvfs; done\n",
        [],
    ),
    ("boot-scripts", "VFs", "/etc/rc.local", "echo 8 > /sys/class/net/ens1f0/device/sriov_numvfs\n", [PF]),
    ("boot-scripts", "firmware settings", "/etc/rc.local", f"mlxconfig -y -d {PF} set LINK_TYPE_P1=2\n", [PF]),
    (
        "boot-scripts",
        "VFs",
        "/etc/tmpfiles.d/vfs.conf",
        f"w /sys/bus/pci/devices/{OTHER}/sriov_numvfs - - - - 4\n",
        [OTHER],
    ),
    (
        "boot-scripts",
        "VFs",
        "/etc/systemd/system/vfs.service",
        f"[Service]\nExecStart=/bin/sh -c 'echo 4 > /sys/bus/pci/devices/{PF}/sriov_numvfs'\n",
        [PF],
    ),
    (
        "netplan",
        "VFs",
        "/etc/netplan/50-vfs.yaml",
        "network:\n  version: 2\n  ethernets:\n    ens1f0: {virtual-function-count: 4}\n",
        [PF],
    ),
    (
        "netplan",
        "names",
        "/etc/netplan/60-name.yaml",
        f'network:\n  ethernets:\n    rail:\n      match: {{macaddress: "{MAC}"}}\n      set-name: rail0\n',
        [PF],
    ),
    (
        "netplan",
        "VFs",
        "/etc/netplan/70-vf.yaml",
        "network:\n  ethernets:\n    ens2: {}\n    ens2v0: {link: ens2}\n",
        [OTHER],
    ),
    (
        "NetworkManager",
        "VFs",
        "/etc/NetworkManager/system-connections/rail.nmconnection",
        "[connection]\nid=rail\ninterface-name=ens1f1\n[sriov]\ntotal-vfs=4\n",
        [SECOND],
    ),
    (
        "systemd-networkd",
        "VFs",
        "/etc/systemd/network/20-rail.network",
        f"[Match]\nMACAddress={MAC}\n[SR-IOV]\nVirtualFunction=0\n",
        [PF],
    ),
    (
        "udev",
        "VFs",
        "/etc/systemd/network/20-rail.link",
        f"[Match]\nPath=pci-{OTHER}*\n[Link]\nSR-IOVVirtualFunctions=4\n",
        [OTHER],
    ),
    ("udev", "names", "/etc/systemd/network/10-rail.link", f"[Match]\nPath=pci-{PF}\n[Link]\nName=rail0\n", [PF]),
    (
        "netplan",
        "names",
        "/run/systemd/network/10-netplan-rail.link",
        f"[Match]\nPermanentMACAddress={MAC}\n[Link]\nName=rail0\n",
        [PF],
    ),
    (
        "udev",
        "names",
        "/etc/udev/rules.d/70-persistent-net.rules",
        f'SUBSYSTEM=="net", ACTION=="add", \\\n  ATTR{{address}}=="{MAC}", NAME="rail0"\n',
        [PF],
    ),
    (
        "udev",
        "VFs",
        "/etc/udev/rules.d/80-vfs.rules",
        'ACTION=="add", SUBSYSTEM=="net", KERNEL=="ens2", ATTR{device/sriov_numvfs}="4"\n',
        [OTHER],
    ),
    (
        "udev",
        "names",
        "/etc/udev/rules.d/90-rdma.rules",
        f'SUBSYSTEM=="infiniband", KERNELS=="{PF}", RUN+="/usr/bin/rdma dev set %k name mlx5_0"\n',
        [PF],
    ),
    (
        "ifupdown",
        "VFs",
        "/etc/network/interfaces.d/rail",
        "auto ens2\niface ens2 inet manual\n  up echo 4 > /sys/class/net/$IFACE/device/sriov_numvfs\n",
        [OTHER],
    ),
]


@pytest.mark.parametrize(
    ("name", "what", "path", "text", "pfs"), FILES, ids=[f"{f[0]}-{Path(f[2]).name}" for f in FILES]
)
def test_a_file_that_manages_a_card_is_recognised(
    root: Root, name: str, what: str, path: str, text: str, pfs: list[str]
) -> None:
    root.file(path, text)
    assert told(root.find()) == [(name, path, what, pfs)]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/sriov-operator/pci/0000:99:00.0", "{}"),
        ("/etc/rc.local", "#echo 4 > /sys/class/net/ens1f0/device/sriov_numvfs\n"),
        ("/etc/rc.local", "echo 4 > /sys/class/net/eno1/device/sriov_numvfs\n"),
        ("/etc/rc.local", "mstconfig -d 0000:3b:00.0 query\n"),
        ("/etc/netplan/01.yaml", "network: {ethernets: {eno1: {set-name: lan}, ens1f0: {dhcp4: true}}}\n"),
        ("/etc/netplan/01.yaml", "network: [set-name\n"),
        ("/etc/NetworkManager/system-connections/a.nmconnection", "[connection]\ninterface-name=ens1f0\n"),
        ("/etc/systemd/network/10.link", "[Match]\nOriginalName=*\n[Link]\nName=x\n"),
        ("/etc/systemd/network/10.network", "[Match]\nName=ens1f0\n[Network]\nDHCP=yes\n"),
        ("/etc/udev/rules.d/1.rules", 'SUBSYSTEM=="net", ATTR{address}=="00:11:22:33:44:55", NAME="lan0"\n'),
        ("/etc/udev/rules.d/1.rules", 'SUBSYSTEM=="net", KERNEL=="ens1f0", NAME=="rail0", TAG+="x"\n'),
        ("/etc/udev/rules.d/85-linkwright-unmanaged.rules", f'KERNELS=="{PF}", NAME="x"\n'),
        ("/etc/network/interfaces", "iface ens1f0 inet dhcp\n"),
        ("/etc/infiniband/connectx.conf", "0000:99:00.0 eth eth\n"),
    ],
)
def test_what_sets_nothing_of_our_cards_is_no_matter(root: Root, path: str, text: str) -> None:
    root.file(path, text)
    assert told(root.find()) == []


def test_a_unit_leads_to_the_script_that_it_starts(root: Root) -> None:
    root.file("/etc/systemd/system/vfs.service", "[Service]\nExecStart=-/usr/local/sbin/make-vfs all\n")
    root.file("/usr/local/sbin/make-vfs", "#!/bin/bash\necho $2 > /sys/class/net/$1/device/sriov_numvfs\n")
    assert told(root.find()) == [("boot-scripts", "/usr/local/sbin/make-vfs", "VFs", [])]


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["/usr/bin/sriov-network-config-daemon", "start"], "sriov-network-operator"),
        (["/nic-configuration-daemon"], "nic-configuration-operator"),
        (["/usr/bin/sriovdp", "--log-level=10"], "sriov-network-device-plugin"),
        (["/bin/k8s-rdma-shared-dp"], "rdma-shared-device-plugin"),
    ],
)
def test_a_daemon_that_runs_is_recognised_by_its_name(root: Root, argv: list[str], name: str) -> None:
    root.process(812, *argv)
    root.process(813, "/usr/bin/vim", "sriovdp")
    program = argv[0].rpartition("/")[2]
    (owner,) = root.find()
    assert (owner.name, owner.evidence, owner.pfs) == (name, f"pid 812 ({program})", ())


def test_a_process_of_another_name_with_the_same_beginning_is_another_one(root: Root) -> None:
    root.process(812, "/usr/bin/sriov-network-controller")
    assert root.find() == ()


def test_the_operator_s_files_say_which_cards_its_daemon_manages(root: Root) -> None:
    root.process(812, "/usr/bin/sriov-network-config-daemon")
    root.file("/etc/sriov-operator/pci/0000:3b:00.0", "{}")
    assert [list(o.pfs) for o in root.find()] == [[PF]]


def test_a_device_plugin_says_in_its_container_which_cards_it_hands_out(root: Root) -> None:
    root.process(9, "sriovdp")
    root.file("proc/9/root/etc/pcidp/config.json", '{"resourceList": [{"selectors": {"pfNames": ["ens2#0-7"]}}]}')
    assert [list(o.pfs) for o in root.find()] == [[OTHER]]


def test_damaged_and_huge_files_stop_nothing(root: Root) -> None:
    root.file("/etc/udev/rules.d/1.rules", "\0\xff" * 10000)
    root.file("/etc/systemd/network/1.link", "[Match\nPath=\n]]")
    root.file("/etc/netplan/1.yaml", "set-name: [\n")
    (root.path / "etc/systemd/network/2.link").symlink_to("/nonexistent")
    assert root.find() == ()


def test_a_host_without_cards_is_not_searched(root: Root) -> None:
    system = System(proc=Path("/nonexistent/proc"), netlink=NoTransport())
    assert owners.find(system, ()) == ()
