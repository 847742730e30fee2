"""Runs that work in a process of their own: this program again, or a real pi."""
