"""The audit tool: what the journal tells of the past. Reads and never writes; knows no task and no event loop."""
