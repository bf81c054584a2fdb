"""Typed access to Linux: sysfs, netlink, SR-IOV, namespaces, boot id, logind.

Everything here takes the roots it reads and the netlink transport as parameters (``system.System``), never
from a global, so that the same code runs on a real host, an emulated one and a captured tree.
"""
