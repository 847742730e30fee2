"""Whole screens and what lies over them: one class a file."""
