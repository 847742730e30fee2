"""Tools of MCP servers: one connection a server, shared by all runs that hold a lease on it.

Only `session`, `stdio` and `http` touch the library, and only they import it: a crew without servers never pays for it.
"""
