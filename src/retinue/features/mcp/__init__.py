"""MCP client: tools of MCP servers, with one connection per server that runs share by leases.

Only `session` and `transport` import the MCP library, so a session without servers never loads it.
"""
