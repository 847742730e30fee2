"""Slash commands: one file each, listed by hand in the registry."""
