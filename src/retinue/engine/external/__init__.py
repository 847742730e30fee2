"""Runs in a process of their own: another retinue process, or pi."""
