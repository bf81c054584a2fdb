"""Emulated hosts with emulated RDMA NICs, for tests, demos and people without the hardware.

A package of its own: ``linkwright`` never imports it. It may import ``linkwright.model`` and the
message codec of ``linkwright.kernel.netlink``, nothing else of the product.
"""
