"""What outlives a restart: documents, attachments with their before-values, mode changes, journal, history."""

from .db import Store
from .journal import OpenOperation, Operation, StepRecord

__all__ = ["OpenOperation", "Operation", "StepRecord", "Store"]
