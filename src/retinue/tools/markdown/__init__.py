"""Turns other notations into markdown. Standard library only: a confined process without any package uses it, too."""
