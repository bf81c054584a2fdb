"""The Kubernetes operators and device plugins that manage cards, seen from the host.

Their processes run in containers, and the host's /proc shows them. What they keep on the host says which cards
they manage: sriov-network-operator a file for each PF (``/etc/sriov-operator/pci/<address>``, saved before it sets
the PF up) and, in its systemd mode, ``sriov-interface-config.yaml``; the NIC configuration operator its udev rules
for names. A daemon that runs and says of no card that it is its own may be told to take any of them at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from linkwright.kernel import sysfs
from linkwright.model.inventory import Owner
from linkwright.model.values import PciAddress

from .cards import Cards
from .reading import files, shown, text

SRIOV, NIC_CONFIG = "sriov-network-operator", "nic-configuration-operator"
_COMM = 15  # TASK_COMM_LEN - 1

PROCESSES: dict[str, tuple[str, str]] = {
    "sriov-network-config-daemon": (SRIOV, "VFs and firmware settings"),
    "nic-configuration-daemon": (NIC_CONFIG, "firmware settings"),
    "sriovdp": ("sriov-network-device-plugin", "VFs"),
    "k8s-rdma-shared-dp": ("rdma-shared-device-plugin", "RDMA devices"),
}
"""Name of the program → who it is, and what of a card it manages."""
_CONFIG = {"sriovdp": "etc/pcidp/config.json", "k8s-rdma-shared-dp": "k8s-rdma-shared-dev-plugin/config.json"}


def find(root: Path, proc: Path, cards: Cards) -> Iterator[Owner]:
    kept = [*_sriov_operator(root, cards), *_nic_configuration(root, cards)]
    yield from kept
    told = {owner.name for owner in kept}
    for pid, program in _running(proc):
        name, what = PROCESSES[program]
        if name in told:
            continue  # its files say which cards
        pfs: tuple[PciAddress, ...] = ()
        if program in _CONFIG:
            pfs = cards.mentioned(text(proc / pid / "root" / _CONFIG[program]))
        yield Owner(name=name, evidence=f"pid {pid} ({program})", what=what, pfs=pfs)


def _running(proc: Path) -> Iterator[tuple[str, str]]:
    """(pid, program) of each that runs. The short name is read of every process, the long one of few."""
    short = {name[:_COMM]: name for name in PROCESSES}
    for pid in sysfs.names(proc) or ():
        if not pid.isdigit():
            continue
        program = short.get(sysfs.text(f"{proc}/{pid}/comm") or "")
        if program is not None:
            words = text(proc / pid / "cmdline").split("\0")
            if any(word.rpartition("/")[2] == program for word in words[:2]):
                yield pid, program


def _sriov_operator(root: Path, cards: Cards) -> Iterator[Owner]:
    for path in files(root, "etc/sriov-operator/pci", "*"):
        pfs = cards.named(path.name)
        if pfs:
            yield Owner(name=SRIOV, evidence=shown(root, path), what="VFs", pfs=pfs)
    path = root / "etc/sriov-operator/sriov-interface-config.yaml"
    pfs = cards.mentioned(text(path))
    if pfs:
        yield Owner(name=SRIOV, evidence=shown(root, path), what="VFs", pfs=pfs)


def _nic_configuration(root: Path, cards: Cards) -> Iterator[Owner]:
    for path in files(root, "etc/udev/rules.d", "10-nic-*-interface-naming.rules"):
        pfs = cards.mentioned(text(path))
        if pfs:
            yield Owner(name=NIC_CONFIG, evidence=shown(root, path), what="names", pfs=pfs)
