"""Approvals: decide whether a tool call is made, by rules, modes, hooks and the user's answer."""
