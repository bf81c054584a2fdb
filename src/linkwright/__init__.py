"""Linkwright: a direct RDMA interface for containers and VMs, in the link mode their work needs."""

__version__ = "0.1.0"
