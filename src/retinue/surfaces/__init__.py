"""Surfaces: how the callers of one subagent system name tools, parameters and results."""
