"""The `subagent` surface: foreground runs, read-only unless writing is allowed, with results that programs can read."""
