"""Surfaces: each offers subagents under the tool names, parameters and results of one existing system."""
