"""Durable runs of one machine: recorded in SQLite, continued after a crash."""
