"""The web tools: search, fetch, and reading stored results again."""
