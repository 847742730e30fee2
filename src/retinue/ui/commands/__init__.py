"""Slash commands, listed by hand in the registry."""
