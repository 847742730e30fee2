"""A summary of a conversation, for compaction: what was asked, what was looked at, what was answered last.

Extracts, invents nothing. This file must not know who asks for summaries.
"""

import re

_USER = re.compile(r"^\[User\]:\s*(.+)", re.MULTILINE)
_ASSISTANT = re.compile(r"^\[Assistant\]:\s*(.+(?:\n(?!\[).+){0,12})", re.MULTILINE)
_PATH = re.compile(r"\bpath[=:]\s*[\"']?([\w./@-]+\.\w+)")


def is_summary_request(text: str) -> bool:
    """Whether a prompt holds a whole conversation and wants it shorter."""
    return "<conversation>" in text and "summar" in text.lower()


def render_summary(text: str) -> str:
    """The questions, the files and the last answer of a conversation."""
    asked = [found.strip()[:300] for found in _USER.findall(text)]
    answers = _ASSISTANT.findall(text)
    paths = list(dict.fromkeys(_PATH.findall(text)))
    lines = ["## Goal", *(f"- {question}" for question in asked[-8:] or ["(none stated)"])]
    lines += [
        "",
        "## Progress",
        f"- {len(asked)} questions, {len(answers)} answers; extracted by rules, not by a language model",
    ]
    if answers:
        lines += ["", "## Last answer", answers[-1].strip()[:1500]]
    if paths:
        lines += ["", "## Files looked at", *(f"- {path}" for path in paths[:40])]
    return "\n".join(lines)
