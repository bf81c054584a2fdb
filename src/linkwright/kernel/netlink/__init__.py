"""Netlink: a codec, the numbers of the kernel's headers, and the ways to reach a kernel (or an emulated one).

Own code instead of a library, because the RDMA family has none in Python, the needed messages are few, and
short-lived helpers started by container runtimes cannot afford a library's import time.
"""
