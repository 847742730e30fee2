"""Hooks: commands and functions that are notified or asked at points of a run."""
