"""The engine: the agent loop, which takes every policy as an argument, and the Manager that runs it."""
