"""Rules for tool calls: matching, precedence, and the preset rules. Pure.

A rule catches mistakes; it is not a security boundary. The sandbox restricts what a command can access.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from retinue.core.pattern import late_pattern
from retinue.core.tool import list_aliases
from retinue.core.tool_table import list_names

Action: TypeAlias = Literal["allow", "deny", "ask"]
STRICTNESS: tuple[Action, ...] = ("deny", "ask", "allow")
_PATH_ARGUMENTS = frozenset(("path", "file_path", "file", "dir", "directory", "folder", "cwd", "paths", "files"))


class Rule(Struct, frozen=True, kw_only=True):
    """What to do about matching calls."""

    action: Action
    tools: tuple[str, ...] = ("*",)
    """Globs of tool names."""
    patterns: tuple[str, ...] = ()
    """Globs of the call's text; empty matches every call."""
    priority: int = 0
    reason: str = ""


class RuledCall(Struct, frozen=True):
    names: tuple[str, ...]
    """The tool's names: the name the model used, and its own names."""
    texts: tuple[str, ...]
    """All string arguments joined by spaces; also with real paths, and with single spaces."""
    real: tuple[str, ...]
    """The texts with real paths: absolute, relative to the working directory, and relative to the home directory."""


def _deny(reason: str, tools: Sequence[str], *patterns: str) -> Rule:
    return Rule(action="deny", tools=tuple(tools), patterns=patterns, priority=100, reason=reason)


def _ask(reason: str, *patterns: str) -> Rule:
    return Rule(action="ask", patterns=patterns, priority=50, reason=reason)


def _words(word: str, *ends: str) -> tuple[str, ...]:
    """Return globs for a program that is called anywhere in a command."""
    return tuple(f"{begin}{word}{end}" for begin in ("", "*[!a-z0-9_.-]") for end in ends or ("", " *", ";*", "&*"))


SHELLS = list_aliases(list_names(family="shell"))
CHAIN = late_pattern(r"[;&|<>`\n]|\$\(")
"""Characters that chain commands or redirect output."""
_PIPED = tuple(
    f"*{source} *|{begin}{shell}{end}"
    for source in ("curl", "wget")
    for shell in ("sh", "bash", "zsh", "dash")
    for begin in ("", "*[ |/]")
    for end in ("", "[ ;&-]*")
)
_ROOT = tuple(
    f"*rm {flags} {root}{end}"
    for flags in ("-rf", "-fr", "-r -f", "-f -r", "-rf --no-preserve-root", "--recursive --force")
    for root in ("/", "/[*]", "~", "~/", "$home")
    for end in ("", "[ ;&|]*")
)
PRESETS = (
    _deny("it would delete everything", SHELLS, *_ROOT),
    _deny("it would act as another user", SHELLS, *_words("sudo", "", " *")),
    _deny("it would run what it downloads", SHELLS, *_PIPED),
    _deny("it would make a program run as another user", SHELLS, "*chmod *u+s*", "*chmod *+s *"),
    _deny("it would stop the machine", SHELLS, *(_words("shutdown") + _words("reboot") + _words("poweroff"))),
    _deny("it accesses the system's passwords", ("*",), "*/etc/shadow*"),
    _deny("it accesses the system's accounts", ("*",), "*/etc/passwd*"),
    _ask("it accesses SSH keys", "*/.ssh", "*/.ssh/*", ".ssh", ".ssh/*", "* .ssh/*", "*~/.ssh*"),
    _ask("it accesses a file that may contain secrets", "*.env", "*.env[ ;&|.]*"),
)
"""Seven rules that deny, two that ask."""


def describe_call(names: Iterable[str], arguments: Mapping[str, Any], cwd: str) -> RuledCall:
    """Describe a call for rules; paths are also resolved, because rules are meant for the real paths."""
    forms = []
    for field, value in _list_strings("", arguments):
        is_path = field in _PATH_ARGUMENTS and 0 < len(value) < 4096 and "\0" not in value
        forms.append((value, *(_resolve(value, cwd) if is_path else (value, value, value))))
    plain, *real = (" ".join(words) for words in zip(*forms, strict=True)) if forms else ("", "")
    # Repeated spaces or a trailing newline do not change what a command does.
    texts = dict.fromkeys((plain, real[0], " ".join(plain.split())))
    return RuledCall(tuple(dict.fromkeys(names)), tuple(texts), tuple(dict.fromkeys(real)))


def replace_texts(call: RuledCall, forms: Sequence[str]) -> RuledCall:
    """Add the texts of a call made elsewhere: deny and ask rules match both, allow rules only `forms`."""
    return RuledCall(call.names, tuple(dict.fromkeys((*call.texts, *forms))), tuple(forms))


def find_rule(rules: Iterable[Rule], call: RuledCall) -> Rule | None:
    """Return the matching rule with the highest priority; among equals, the strictest."""
    found = [rule for rule in rules if is_about(rule, call)]
    return min(found, key=lambda rule: (-rule.priority, STRICTNESS.index(rule.action)), default=None)


def is_about(rule: Rule, call: RuledCall) -> bool:
    """Return whether a rule matches a call, ignoring case."""
    names = call.names
    if rule.action != "allow":
        # MCP tools were once shown with `_` instead of `-`.
        names += tuple(name.replace("-", "_") for name in names if name.startswith("mcp__"))
    if not any(_match(pattern, name) for pattern in rule.tools for name in names):
        return False
    if not rule.patterns:
        return True
    if rule.action != "allow":
        return any(_match(pattern, text) for pattern in rule.patterns for text in call.texts)
    return any(_permits(pattern, text, call) for pattern in rule.patterns for text in call.real)


def _permits(pattern: str, text: str, call: RuledCall) -> bool:
    """Return whether an allow pattern matches the real path, with no second command chained to the first."""
    is_chain = CHAIN.search(text) is not None and not set(call.names).isdisjoint(SHELLS)
    if is_chain and pattern.strip("*") and CHAIN.search(pattern) is None:
        return False
    return _match(pattern, text)


def _resolve(path: str, cwd: str) -> tuple[str, str, str]:
    """Return the real path: absolute, relative to `cwd`, and relative to the home directory."""
    real, home = os.path.realpath(os.path.join(cwd, os.path.expanduser(path))), os.path.expanduser("~")
    return (real, _shorten(real, os.path.realpath(cwd), ""), _shorten(real, os.path.realpath(home), "~/"))


def _shorten(path: str, folder: str, prefix: str) -> str:
    inside = path.startswith(f"{folder.rstrip('/')}/")
    return f"{prefix}{path[len(folder.rstrip('/')) + 1 :]}" if inside else path


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
