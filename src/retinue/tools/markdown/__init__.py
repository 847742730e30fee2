"""Converts HTML and tables to markdown. Standard library only: a sandboxed process without packages uses it too."""
