"""Schedules: agents that start later, once or repeatedly, while their session is open.

Must not know surfaces or the engine: the scheduler gets what it needs as callables.
"""
