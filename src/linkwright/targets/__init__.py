"""Targets and their interfaces: attach, detach and observe container network namespaces."""
