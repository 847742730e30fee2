"""Schedules: agents that start by themselves later, once or again and again, while their session is open.

Knows no surface and no engine: the scheduler takes what it needs from them as callables.
"""
