"""What was left behind, and how it is put right: pure findings over a look, repairs as steps."""

from .finding import Finding
from .judge import findings
from .look import Marked, Seen, look

__all__ = ["Finding", "Marked", "Seen", "findings", "look"]
