"""Durable runs on one machine: recorded in SQLite and resumed after a crash."""
