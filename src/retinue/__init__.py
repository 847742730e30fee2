"""Subagents for coding agents. Nothing happens on import."""
