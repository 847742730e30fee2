"""Runs on other machines: sent through Postgres, worked on by workers."""
