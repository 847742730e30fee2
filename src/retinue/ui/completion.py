"""Completion of commands, arguments, files and agents at the cursor, without widgets.

`find_token` finds what is being typed, `complete` lists what it could become.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from retinue.core.pattern import late_pattern
from retinue.core.terminal import escape_text
from retinue.views.prompt_files import AGENT_PREFIX, render_mention

if TYPE_CHECKING:
    from retinue.ui.commands.registry import SlashCommand


def rank_matches(needle: str, texts: Sequence[str]) -> list[int]:
    """Indexes of the matching texts, best first; all of them, in order, for an empty needle."""
    words = needle.lower().split()
    if not words:
        return list(range(len(texts)))
    ranked = []
    for place, text in enumerate(texts):
        low = text.lower()
        scores = [_score(word, low) for word in words]
        if None not in scores:
            ranked.append((sum(score for score in scores if score is not None), place))
    return [place for _, place in sorted(ranked)]


def _score(word: str, text: str) -> int | None:
    """Distance of a text from the typed word: 0 if the text starts with it, None if it does not match."""
    at = text.find(word)
    if at == 0:
        return 0
    if at > 0:
        return 1 if not text[at - 1].isalnum() else 2
    at, gaps = -1, 0
    for character in word:
        found = text.find(character, at + 1)
        if found < 0:
            return None
        gaps += found - at - 1 if at >= 0 else 0
        at = found
    return 10 + gaps


_FUZZY_CHARS = 2
"""Letters that must be typed before names are matched with gaps."""
_MOST_RANKED = 2000
"""Maximum number of fuzzy matches that are ranked; typing more letters leaves fewer."""


class FileIndex:
    """Finds file names by a part of them; names that a terminal cannot show are left out."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = [name for name in names if _is_plain(name)]
        self._lows = [name.lower() for name in self._names]
        self._bases = [low.rstrip("/").rpartition("/")[2] for low in self._lows]
        self._narrowed: tuple[str, list[int]] = ("", [])

    def find(self, needle: str, most: int) -> list[str]:
        """The best matching names; the first ones for an empty needle."""
        low = needle.lower().removeprefix("./")
        if not low:
            return self._names[:most]
        places = self._narrow(low)
        found = self._rank(low, places, most) if places else self._guess(low, most)
        return [self._names[at] for at in found]

    def _narrow(self, low: str) -> list[int]:
        """Indexes of names that contain `low`; starts from the previous result if that was for a part of it."""
        before, kept = self._narrowed
        places = kept if before and before in low else range(len(self._lows))
        lows = self._lows
        found = [at for at in places if low in lows[at]]
        self._narrowed = (low, found)
        return found

    def _rank(self, low: str, places: Sequence[int], most: int) -> list[int]:
        """Order: paths that start with it, base names that start with it, base names that contain it, others."""
        ranks: tuple[list[int], ...] = ([], [], [], [])
        lows, bases = self._lows, self._bases
        for at in places:
            base = bases[at]
            if low in base:
                ranks[0 if lows[at].startswith(low) else 1 if base.startswith(low) else 2].append(at)
            else:
                ranks[0 if lows[at].startswith(low) else 3].append(at)
        return [at for rank in ranks for at in rank[:most]][:most]

    def _guess(self, low: str, most: int) -> list[int]:
        """Indexes of names that contain the letters in this order, with gaps."""
        if len(low) < _FUZZY_CHARS:
            return []
        # Each gap ends at the next letter, so no name can make the expression slow.
        letters = [re.escape(sign) for sign in low]
        gaps = re.compile(letters[0] + "".join(f"[^{letter}]*{letter}" for letter in letters[1:]))
        places = [at for at, name in enumerate(self._lows) if gaps.search(name)][:_MOST_RANKED]
        return [places[at] for at in rank_matches(low, [self._lows[at] for at in places])[:most]]


def _is_plain(name: str) -> bool:
    return '"' not in name and "\n" not in name and escape_text(name) == name


MOST = 50
MOST_AGENTS = 5
"""Maximum number of agents among the files, so that both are visible."""
Kind = Literal["command", "argument", "mention", "path"]
_MENTION = late_pattern(r'(?:^|[\s(\[,])@("[^"\n]*|[^\s"]*)$')
_COMMAND = late_pattern(r"/([^\s/]*)$")
_ARGUMENT = late_pattern(r"/([^\s/]+) +(\S*)$")
_WORD = late_pattern(r"[^\s\"']*$")


@dataclass(frozen=True, slots=True)
class Token:
    """The text before the cursor that can be completed."""

    kind: Kind
    needle: str
    """The part that was typed."""
    length: int
    """The number of characters before the cursor that a completion replaces."""
    command: str = ""
    """The command that the argument belongs to."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One possible completion."""

    label: str
    text: str
    """The text that replaces the token."""
    note: str = ""
    goes_on: bool = False
    """More can be completed after it, as after a directory."""


@dataclass(slots=True)
class CompletionSources:
    """Where completions come from; each source is called only when needed."""

    commands: Callable[[], Sequence["SlashCommand"]] = lambda: ()
    arguments: Callable[[str], Sequence[tuple[str, str]]] = lambda command: ()
    """The values of a command's argument, each with a note."""
    agents: Callable[[], Sequence[tuple[str, str]]] = lambda: ()
    families: Callable[[], Mapping[str, str]] = dict
    """The family of each agent; its best match stands for the whole family."""
    files: FileIndex = field(default_factory=FileIndex)


def find_token(before: str, *, is_asked: bool = False) -> Token | None:
    """Find the token before the cursor; with `is_asked`, also a word that may be a path."""
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


def complete(token: Token, sources: CompletionSources) -> list[Suggestion]:
    """List the completions of a token, best first."""
    match token.kind:
        case "command":
            return _complete_command(token.needle, sources.commands())
        case "argument":
            return _complete_argument(token.needle, sources.arguments(token.command))
        case "path":
            return [_suggest_file(name, name) for name in sources.files.find(token.needle, MOST)]
        case _:
            return _complete_mention(token.needle, sources)


def is_complete(token: Token, found: Suggestion) -> bool:
    """Whether the typed text already is this completion, so that Enter should send it."""
    if token.kind == "command":
        return found.label == f"/{token.needle}"
    return found.label in (token.needle, f"@{token.needle}") and not found.goes_on


def _complete_command(needle: str, offers: Sequence["SlashCommand"]) -> list[Suggestion]:
    order = rank_matches(needle, [offer.name for offer in offers])
    return [
        Suggestion(f"/{offer.name}", f"/{offer.name}{' ' if offer.hint else ''}", f"{offer.hint} {offer.help}".strip())
        for offer in (offers[at] for at in order[:MOST])
    ]


def _complete_argument(needle: str, values: Sequence[tuple[str, str]]) -> list[Suggestion]:
    order = rank_matches(needle, [f"{value} {note}" for value, note in values])
    return [Suggestion(values[at][0], values[at][0], values[at][1]) for at in order[:MOST]]


def _complete_mention(needle: str, sources: CompletionSources) -> list[Suggestion]:
    agents = [(name, note) for name, note in sources.agents() if render_mention(AGENT_PREFIX + name)]
    is_agent = needle.lower().startswith(AGENT_PREFIX)
    typed = needle[len(AGENT_PREFIX) :] if is_agent else needle
    families, ranked = sources.families(), dict[str, tuple[str, str]]()
    for at in rank_matches(typed, [name for name, _ in agents]):
        ranked.setdefault(families.get(agents[at][0], agents[at][0]), agents[at])
    found = list(ranked.values())[: MOST if is_agent else MOST_AGENTS]
    # Files come first because most users look for them, but agents whose name starts with the typed text precede them.
    is_begun = [is_agent or (bool(typed) and name.lower().startswith(typed.lower())) for name, _ in found]
    near = [_suggest_agent(*agent) for agent, leads in zip(found, is_begun, strict=True) if leads]
    far = [_suggest_agent(*agent) for agent, leads in zip(found, is_begun, strict=True) if not leads]
    files = [_suggest_file(name, render_mention(name)) for name in sources.files.find(needle, MOST)]
    return [*near, *files[: MOST - len(found)], *far][:MOST]


def _suggest_agent(name: str, note: str) -> Suggestion:
    return Suggestion(f"@{AGENT_PREFIX}{name}", f"{render_mention(AGENT_PREFIX + name)} ", f"agent · {note}")


def _suggest_file(name: str, text: str) -> Suggestion:
    is_folder = name.endswith("/")
    if is_folder and text.startswith('@"'):
        text = text.removesuffix('"')  # so that the user can continue with a file in it
    label = f"@{name}" if text.startswith("@") else text
    return Suggestion(label, text if is_folder else f"{text} ", "", is_folder)
