"""MCP server: the delegation tools for other programs."""
