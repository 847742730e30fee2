"""Textual screens and modal screens."""
