"""A host of its own: a Debian 13 booted under QEMU's software emulation, with real SR-IOV, VFIO, Soft-RoCE and
restarts.

``recipe`` builds the root file system, ``project`` lays Linkwright over it, ``initramfs`` starts it, ``machine``
runs it, ``channel`` reaches it; what runs inside it is in ``guest``.
"""
