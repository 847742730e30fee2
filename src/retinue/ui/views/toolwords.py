"""A tool call in a few words: what it is about. Pure."""

from collections.abc import Mapping
from typing import Any

_TELLING = ("path", "file_path", "command", "pattern", "query", "url", "description", "agent", "agent_id", "name")
"""Arguments that say what a call is about, the most telling first."""


def describe_call(name: str, arguments: Mapping[str, Any]) -> str:
    """The telling argument of a call; for an agent its name and its task."""
    if name == "Agent":
        agent = arguments.get("subagent_type") or arguments.get("resume") or ""
        return f"{agent}: {arguments.get('description', '')}".strip(": ")
    if name == "bash":
        return f"$ {arguments.get('command', '')}"
    if name in ("subagent", "dispatch_agent"):
        return f"{arguments.get('agent', '')}: {arguments.get('task') or arguments.get('prompt') or ''}"
    if name in ("grep", "find") and arguments.get("path"):
        return f"{arguments.get('pattern', '')} in {arguments['path']}"
    told = [str(arguments[key]) for key in _TELLING if isinstance(arguments.get(key), str | int)]
    if name == "read" and told and (arguments.get("offset") or arguments.get("limit")):
        first = arguments.get("offset") or 1
        return f"{told[0]}:{first}"
    return told[0] if told else ""
