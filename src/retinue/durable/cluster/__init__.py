"""Runs on other machines: sent through Postgres and executed by workers."""
