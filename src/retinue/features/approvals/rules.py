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

from retinue.core.tool import list_aliases
from retinue.core.tool_table import list_names

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


class RuledCall(Struct, frozen=True):
    """A tool call as rules see it."""

    names: tuple[str, ...]
    """What the tool is called: by the model, and by itself."""
    texts: tuple[str, ...]
    """All string arguments joined by spaces; again with paths as they really are; and with single blanks only."""
    real: tuple[str, ...]
    """Those with paths as they really are: whole, and short where they are in the folder or the home directory."""


def _deny(reason: str, tools: Sequence[str], *patterns: str) -> Rule:
    return Rule(action="deny", tools=tuple(tools), patterns=patterns, priority=100, reason=reason)


def _ask(reason: str, *patterns: str) -> Rule:
    return Rule(action="ask", patterns=patterns, priority=50, reason=reason)


def _words(word: str, *ends: str) -> tuple[str, ...]:
    """Globs for a program that is called somewhere in a command."""
    return tuple(f"{begin}{word}{end}" for begin in ("", "*[!a-z0-9_.-]") for end in ends or ("", " *", ";*", "&*"))


SHELLS = list_aliases(list_names(family="shell"))
_CHAIN = re.compile(r"[;&|<>`\n]|\$\(")
"""What makes more than one command of a line, or lets it write elsewhere."""
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
    _deny("it is about the system's passwords", ("*",), "*/etc/shadow*"),
    _deny("it is about the system's accounts", ("*",), "*/etc/passwd*"),
    _ask("it is about keys for other machines", "*/.ssh", "*/.ssh/*", ".ssh", ".ssh/*", "* .ssh/*", "*~/.ssh*"),
    _ask("it is about secrets of a project", "*.env", "*.env[ ;&|.]*"),
)
"""Seven that deny, two that ask."""


def describe_call(names: Iterable[str], arguments: Mapping[str, Any], cwd: str) -> RuledCall:
    """A call as rules see it; paths also without detours and links, since those are what a rule is meant for."""
    forms = []
    for field, value in _list_strings("", arguments):
        is_path = field in _PATH_ARGUMENTS and 0 < len(value) < 4096 and "\0" not in value
        forms.append((value, *(_resolve(value, cwd) if is_path else (value, value, value))))
    plain, *real = (" ".join(words) for words in zip(*forms, strict=True)) if forms else ("", "")
    # A command means the same with two blanks, or with a line break at its end.
    texts = dict.fromkeys((plain, real[0], " ".join(plain.split())))
    return RuledCall(tuple(dict.fromkeys(names)), tuple(texts), tuple(dict.fromkeys(real)))


def replace_texts(call: RuledCall, forms: Sequence[str]) -> RuledCall:
    """The same call, made where paths really lead elsewhere: what forbids or asks sees both, what allows only those."""
    return RuledCall(call.names, tuple(dict.fromkeys((*call.texts, *forms))), tuple(forms))


def find_rule(rules: Iterable[Rule], call: RuledCall) -> Rule | None:
    """The rule that counts: the one of the highest priority; of equals the strictest."""
    found = [rule for rule in rules if is_about(rule, call)]
    return min(found, key=lambda rule: (-rule.priority, _STRICTNESS[rule.action]), default=None)


def is_about(rule: Rule, call: RuledCall) -> bool:
    """Whether a rule means a call. Case does not matter."""
    names = call.names
    if rule.action != "allow":
        # Tools of MCP servers were once shown with `_` for `-`.
        names += tuple(name.replace("-", "_") for name in names if name.startswith("mcp__"))
    if not any(_match(pattern, name) for pattern in rule.tools for name in names):
        return False
    if not rule.patterns:
        return True
    if rule.action != "allow":
        return any(_match(pattern, text) for pattern in rule.patterns for text in call.texts)
    return any(_permits(pattern, text, call) for pattern in rule.patterns for text in call.real)


def _permits(pattern: str, text: str, call: RuledCall) -> bool:
    """Whether a call is what a pattern permits: a file where it really is, and no second command behind the first."""
    is_chain = _CHAIN.search(text) is not None and not set(call.names).isdisjoint(SHELLS)
    if is_chain and pattern.strip("*") and _CHAIN.search(pattern) is None:
        return False
    return _match(pattern, text)


def _resolve(path: str, cwd: str) -> tuple[str, str, str]:
    """Where a path really leads: whole, as seen from the folder, and as seen from the home directory."""
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
