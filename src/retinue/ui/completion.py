"""What can come next where the cursor is: commands and their arguments, files, agents. Pure; knows no widget.

`find_token` says what is being written, `complete` what it could become.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from retinue.ui.completion_files import FileIndex
from retinue.ui.fuzzy import rank_matches
from retinue.views.prompt_files import AGENT_PREFIX, render_mention

MOST = 50
MOST_AGENTS = 5
"""Agents among the files, so that both are seen."""
Kind = Literal["command", "argument", "mention", "path"]
_MENTION = re.compile(r'(?:^|[\s(\[,])@("[^"\n]*|[^\s"]*)$')
_COMMAND = re.compile(r"/([^\s/]*)$")
_ARGUMENT = re.compile(r"/([^\s/]+) +(\S*)$")
_WORD = re.compile(r"[^\s\"']*$")


@dataclass(frozen=True, slots=True)
class Token:
    """What is being written before the cursor."""

    kind: Kind
    needle: str
    """What was typed of it."""
    length: int
    """Characters before the cursor that a completion replaces."""
    command: str = ""
    """Whose argument it is."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One thing it could become."""

    label: str
    text: str
    """What replaces the token."""
    note: str = ""
    goes_on: bool = False
    """More can be completed behind it, as behind a folder."""


@dataclass(frozen=True, slots=True)
class CompletionCommand:
    """A command as far as completion cares."""

    name: str
    help: str = ""
    hint: str = ""


@dataclass(slots=True)
class Stock:
    """All there is to complete from; asked only when it is needed."""

    commands: Callable[[], Sequence[CompletionCommand]] = lambda: ()
    arguments: Callable[[str], Sequence[tuple[str, str]]] = lambda command: ()
    """The values a command takes, each with a note."""
    agents: Callable[[], Sequence[tuple[str, str]]] = lambda: ()
    files: FileIndex = field(default_factory=FileIndex)


def find_token(before: str, *, is_asked: bool = False) -> Token | None:
    """What is being written, given the text before the cursor; with `is_asked` also a word that may be a path."""
    if "\n" not in before:
        if found := _COMMAND.fullmatch(before):
            return Token("command", found[1], len(before))
        if found := _ARGUMENT.fullmatch(before):
            return Token("argument", found[2], len(found[2]), found[1])
    line = before.rpartition("\n")[2]
    if found := _MENTION.search(line):
        return Token("mention", found[1].lstrip('"'), len(found[1]) + 1)
    if is_asked and not before.startswith("/"):
        word = _WORD.search(line)
        return Token("path", word[0], len(word[0])) if word is not None and word[0] else None
    return None


def complete(token: Token, stock: Stock) -> list[Suggestion]:
    """What a token could become, best first."""
    match token.kind:
        case "command":
            return _complete_command(token.needle, stock.commands())
        case "argument":
            return _complete_argument(token.needle, stock.arguments(token.command))
        case "path":
            return [_suggest_file(name, name) for name in stock.files.find(token.needle, MOST)]
        case _:
            return _complete_mention(token.needle, stock)


def is_complete(token: Token, found: Sequence[Suggestion]) -> bool:
    """Whether what was typed is already one of the completions, so that Enter means to send it."""
    if token.kind == "command":
        return any(each.label == f"/{token.needle}" for each in found)
    return any(each.label in (token.needle, f"@{token.needle}") and not each.goes_on for each in found)


def _complete_command(needle: str, offers: Sequence[CompletionCommand]) -> list[Suggestion]:
    names = [offer.name for offer in offers]
    order = rank_matches(needle, names)
    return [
        Suggestion(
            f"/{offers[at].name}",
            f"/{offers[at].name}" + (" " if offers[at].hint else ""),
            " ".join(filter(None, (offers[at].hint, offers[at].help))),
        )
        for at in order[:MOST]
    ]


def _complete_argument(needle: str, values: Sequence[tuple[str, str]]) -> list[Suggestion]:
    order = rank_matches(needle, [f"{value} {note}" for value, note in values])
    return [Suggestion(values[at][0], values[at][0], values[at][1]) for at in order[:MOST]]


def _complete_mention(needle: str, stock: Stock) -> list[Suggestion]:
    agents = [(name, note) for name, note in stock.agents() if render_mention(AGENT_PREFIX + name)]
    is_agent = needle.lower().startswith(AGENT_PREFIX)
    typed = needle[len(AGENT_PREFIX) :] if is_agent else needle
    order = rank_matches(typed, [name for name, _ in agents])[: MOST if is_agent else MOST_AGENTS]
    found = [agents[at] for at in order]
    # Files are what most people look for, but a name that was begun may mean either.
    is_begun = [is_agent or (bool(typed) and name.lower().startswith(typed.lower())) for name, _ in found]
    near = [_suggest_agent(*agent) for agent, leads in zip(found, is_begun, strict=True) if leads]
    far = [_suggest_agent(*agent) for agent, leads in zip(found, is_begun, strict=True) if not leads]
    files = [_suggest_file(name, render_mention(name)) for name in stock.files.find(needle, MOST)]
    return [*near, *files[: MOST - len(found)], *far][:MOST]


def _suggest_agent(name: str, note: str) -> Suggestion:
    return Suggestion(f"@{AGENT_PREFIX}{name}", f"{render_mention(AGENT_PREFIX + name)} ", f"agent · {note}")


def _suggest_file(name: str, text: str) -> Suggestion:
    is_folder = name.endswith("/")
    if is_folder and text.startswith('@"'):
        text = text.removesuffix('"')  # so that one can go on into it
    return Suggestion(
        text if not text.startswith("@") else f"@{name}", text if is_folder else f"{text} ", "", is_folder
    )
