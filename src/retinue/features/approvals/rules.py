"""Rules about tool calls: which calls one is about, which of several counts, and those that are always there. Pure.

A rule is a tripwire for the careless, not a wall: what a command can touch is the sandbox's business.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from msgspec import Struct

Action: TypeAlias = Literal["allow", "deny", "ask"]
_STRICTNESS: Mapping[str, int] = {"deny": 0, "ask": 1, "allow": 2}
_PATH_ARGUMENTS = frozenset(("path", "file_path", "file", "dir", "directory", "folder", "cwd", "paths", "files"))


class Rule(Struct, frozen=True, kw_only=True):
    """What to do about some calls."""

    action: Action
    tools: tuple[str, ...] = ("*",)
    """Globs of tool names."""
    patterns: tuple[str, ...] = ()
    """Globs of what the call says; none means any call."""
    priority: int = 0
    reason: str = ""


class Call(Struct, frozen=True):
    """A tool call as rules see it."""

    names: tuple[str, ...]
    """What the tool is called: by the model, and by itself."""
    texts: tuple[str, ...]
    """All string arguments joined by spaces; and again with paths as they really are."""


def _deny(reason: str, tools: Sequence[str], *patterns: str) -> Rule:
    return Rule(action="deny", tools=tuple(tools), patterns=patterns, priority=100, reason=reason)


def _ask(reason: str, *patterns: str) -> Rule:
    return Rule(action="ask", patterns=patterns, priority=50, reason=reason)


def _words(word: str, *ends: str) -> tuple[str, ...]:
    """Globs for a program that is called somewhere in a command."""
    return tuple(f"{begin}{word}{end}" for begin in ("", "*[!a-z0-9_.-]") for end in ends or ("", " *", ";*", "&*"))


_SHELLS = ("bash", "execute_command")
_PIPED = tuple(
    f"*{source} *|*{end}"
    for source in ("curl", "wget")
    for shell in ("sh", "bash", "zsh", "dash")
    for end in (f"[ |/]{shell}", f"[ |/]{shell}[ ;&-]*")
)
_ROOT = tuple(
    f"*rm {flags} {root}{end}"
    for flags in ("-rf", "-fr", "-r -f", "-f -r", "-rf --no-preserve-root", "--recursive --force")
    for root in ("/", "/[*]", "~", "~/", "$home")
    for end in ("", "[ ;&|]*")
)
PRESETS = (
    _deny("it would delete everything", _SHELLS, *_ROOT),
    _deny("it would act as another user", _SHELLS, *_words("sudo", "", " *")),
    _deny("it would run what it downloads", _SHELLS, *_PIPED),
    _deny("it would make a program run as another user", _SHELLS, "*chmod *u+s*", "*chmod *+s *"),
    _deny("it would stop the machine", _SHELLS, *(_words("shutdown") + _words("reboot") + _words("poweroff"))),
    _deny("it is about the system's passwords", ("*",), "*/etc/shadow*"),
    _deny("it is about the system's accounts", ("*",), "*/etc/passwd*"),
    _ask("it is about keys for other machines", "*/.ssh", "*/.ssh/*", ".ssh", ".ssh/*", "* .ssh/*", "*~/.ssh*"),
    _ask("it is about secrets of a project", "*.env", "*.env[ ;&|.]*"),
)
"""Seven that deny, two that ask."""


def describe_call(names: Iterable[str], arguments: Mapping[str, Any], cwd: str) -> Call:
    """A call as rules see it; paths also without detours and links, since those are what a rule is meant for."""
    plain, real = list[str](), list[str]()
    for field, value in _list_strings("", arguments):
        plain.append(value)
        is_path = field in _PATH_ARGUMENTS and 0 < len(value) < 4096 and "\0" not in value
        real.append(os.path.realpath(os.path.join(cwd, os.path.expanduser(value))) if is_path else value)
    texts = dict.fromkeys((" ".join(plain), " ".join(real)))
    return Call(tuple(dict.fromkeys(names)), tuple(texts))


def find_rule(rules: Iterable[Rule], call: Call) -> Rule | None:
    """The rule that counts: the one of the highest priority; of equals the strictest."""
    found = [rule for rule in rules if is_about(rule, call)]
    return min(found, key=lambda rule: (-rule.priority, _STRICTNESS[rule.action]), default=None)


def is_about(rule: Rule, call: Call) -> bool:
    """Whether a rule means a call. Case does not matter."""
    if not any(_match(pattern, name) for pattern in rule.tools for name in call.names):
        return False
    return not rule.patterns or any(_match(pattern, text) for pattern in rule.patterns for text in call.texts)


def _match(pattern: str, text: str) -> bool:
    return _compile(pattern).match(text) is not None


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern), re.IGNORECASE)


def _list_strings(field: str, value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _list_strings(str(key), item)
    elif isinstance(value, list):
        for item in value:
            yield from _list_strings(field, item)
