"""Finds the description a model reads: a markdown file beside the tool's module."""

from functools import cache
from pathlib import Path


@cache
def load_description(module_file: str) -> str:
    """The text beside a module, as one paragraph."""
    return " ".join(Path(module_file).with_suffix(".md").read_text(encoding="utf-8").split())
