"""Pure values: what Linkwright talks about. No I/O, no imports from other layers."""
