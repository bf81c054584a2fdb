"""The fixtures of managed, for this folder."""

from managed import job

__all__ = ["job"]
