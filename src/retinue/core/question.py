"""A Question: what a run wants a person to decide. Data only; who asks and who answers is decided elsewhere."""

from typing import Literal

from msgspec import Struct


class Question(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something a run cannot decide itself."""

    id: str
    run_id: str
    agent: str = ""
    """The name of the run's definition; empty for the main agent."""
    kind: Literal["approval", "confirm", "select", "input"] = "approval"
    title: str
    text: str = ""
    """All of what is to be decided, such as the whole command; faces escape it and never shorten it."""
    options: tuple[str, ...] = ("allow", "deny")
    """The answers there are; none for a free one."""
    default: str = "deny"
    """What counts when nobody answers."""
    tool: str = ""
