"""The command line: thin clients of the agent; ``nics`` and ``plan`` also work without it, read-only."""
