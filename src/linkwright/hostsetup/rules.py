"""What stands in the files: pure text, made from the addresses and names of the ports' PFs.

- udev (``udev(7)``): a VF is no child of its PF in /sys, so it is told by the PCI_SLOT_NAME of its ``physfn``. The
  rule matches every action but remove: each event sets a device's properties anew.
- NetworkManager goes by NM_UNMANAGED; networkd by ID_NET_MANAGED_BY since version 253, before by a .network file.
- The .link file (``systemd.link(5)``) comes after everybody's own and before the default one; it gives the default
  names, and no persistent MAC: udev would set one on each VF that comes back with the kernel's.
- ifupdown reads shell wildcards from EXCLUDE_INTERFACES in /etc/default/networking; a name follows the link mode,
  so the wildcard holds what both names have in common.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HEAD = "# Written by: linkwright host setup. Taken away by: linkwright host setup --undo\n"
BEGIN, END = "# linkwright begin", "# linkwright end"
_NAME = re.compile(r"(?:en|ib)(?P<path>[A-Za-z0-9]+?)(?:np\d+)?")


def udev(pfs: Sequence[str]) -> str:
    marks = "".join(
        f'KERNELS=="{pf}", ENV{{LINKWRIGHT}}="1"\n'
        f'ATTR{{device/physfn/uevent}}=="*PCI_SLOT_NAME={pf}*", ENV{{LINKWRIGHT}}="1"\n'
        for pf in pfs
    )
    return (
        f"{HEAD}# The functions of these ports move into containers and come back; nobody else configures them.\n"
        'ACTION=="remove", GOTO="linkwright_end"\n'
        'SUBSYSTEM!="net", GOTO="linkwright_end"\n'
        f"{marks}"
        'ENV{LINKWRIGHT}=="1", ENV{NM_UNMANAGED}="1", ENV{ID_NET_MANAGED_BY}="linkwright"\n'
        'LABEL="linkwright_end"\n'
    )


LINK = f"""{HEAD}[Match]
Property=LINKWRIGHT=1

[Link]
NamePolicy=keep kernel database onboard slot path
AlternativeNamesPolicy=database onboard slot path
MACAddressPolicy=none
"""

NETWORK = f"""{HEAD}[Match]
Property=LINKWRIGHT=1

[Link]
Unmanaged=yes
"""


def patterns(names: Sequence[str]) -> list[str]:
    """Wildcards for a PF's netdev, its VFs, and both in the other link mode: ``enp59s0f0np0`` → ``*p59s0f0*``."""
    found = (_NAME.fullmatch(name) for name in names)
    return [f"*{m['path']}*" if m else f"{name}*" for m, name in zip(found, names, strict=True)]


def ifupdown(names: Sequence[str]) -> str:
    """The lines for /etc/default/networking, a shell script; what EXCLUDE_INTERFACES held, it still holds."""
    words = " ".join(patterns(names))
    return f'{BEGIN}: see linkwright host setup\nEXCLUDE_INTERFACES="$EXCLUDE_INTERFACES {words}"\n{END}\n'


def without_block(text: str) -> str:
    """The text without the lines between our marks; as it is when there are none."""
    return re.sub(rf"^{re.escape(BEGIN)}.*?^{re.escape(END)}\n?", "", text, flags=re.MULTILINE | re.DOTALL)
