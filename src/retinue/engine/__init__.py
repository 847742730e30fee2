"""The engine: one agent loop that takes every policy as an argument, and what runs it."""
