"""The `subagent` surface: foreground runs, read-only unless writing is allowed, with machine-readable results."""
