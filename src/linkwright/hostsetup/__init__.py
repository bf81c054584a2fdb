"""Files of the host that make its network managers leave Linkwright's functions alone.

A function that comes back from a container is a new network device to NetworkManager, networkd, ifupdown and udev:
they may give it an address, another name, another MAC or bring it up. One udev rule marks the functions of the
ports that Linkwright may use; the managers go by that mark. Written by ``linkwright host setup``, shown first, and
taken away by ``linkwright host setup --undo``.
"""

from .setup import Change, apply, to_remove, to_write

__all__ = ["Change", "apply", "to_remove", "to_write"]
