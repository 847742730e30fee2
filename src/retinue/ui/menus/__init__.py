"""Nested menus of `/agents`, `/mcp` and `/hooks`, one class each."""
