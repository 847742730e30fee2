"""Matches the tool names in agent files: plain names, aliases, `server:tool` of an MCP server, `ext:` selectors. Pure.

Must not know who may use a tool.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from retinue.core.definition import Definition, Selection
from retinue.core.pattern import late_pattern
from retinue.core.tool import Effect

SELECTOR = "ext:"
NOTHING = (SELECTOR,)
"""A selector that matches no tool."""
MCP = "mcp"
"""The extension name that stands for all MCP servers."""
_PLAIN = late_pattern(r"(?!(?i:mcp_))[\w-]+\Z")
_CODE_FILE = late_pattern(r"\.(py|ts|js|mjs)\Z")
_INDEX_NAMES = ("index", "__init__")


class Offer(Struct, frozen=True):
    """One tool that is available to a run."""

    effect: Effect
    """The strongest effect it can have; for a foreign tool what the *user* declares, not what the tool claims."""
    extension: str | None = None
    """The extension it comes from; None for retinue's own tools. Tools of MCP servers come from `mcp`."""
    server: str | None = None
    """The MCP server that provides it."""
    tool: str = ""
    """The name the server uses, if known."""
    is_approved: bool = False
    """The user approved it for agents that name its extension by path, so their parent need not have it."""
    is_deferred: bool = False
    """It is hidden until the model finds it with `tool_search`."""

    def find_short_name(self, name: str) -> str:
        """Return the server's name of the tool that the model knows as `name`."""
        return self.tool or name.removeprefix(f"mcp__{self.server}__") if self.server is not None else name


def match_tools(word: str, available: Mapping[str, Offer], aliases: Mapping[str, str]) -> list[str]:
    """Return the tools that a word of an agent file matches; empty if there are none."""
    target = aliases.get(word, word)
    if target in available:
        return [target]
    if word.startswith(SELECTOR):
        return [name for name, offer in available.items() if is_selected(word, name, offer)]
    return [name for name, offer in available.items() if _is_named(word, name, offer)]


def choose_selectors(definition: Definition) -> tuple[str, ...]:
    """Return the words of a tool list that select extension and MCP tools; if there are any, only matching tools are
    allowed.

    All words but plain names count, even if they match nothing: a typing error must not allow everything. An empty list
    selects nothing, unless the file also says which extensions it wants.
    """
    declared = definition.tools
    found = (*declared.selectors, *(word for word in declared.names or () if not _PLAIN.match(word)))
    is_empty = declared.names == () and not declared.all_builtins and not declared.inherits
    has_wish = definition.extensions is not True or "extensions" in definition.lines
    return NOTHING if is_empty and not found and not has_wish else found


def match_denied(words: Iterable[str], available: Mapping[str, Offer], aliases: Mapping[str, str]) -> set[str]:
    """Return the tools that denied words match. To be safe, case is ignored, and `*` and `all` match everything."""
    denied: set[str] = set()
    for word in words:
        if word.lower() in ("*", "all"):
            return set(available)
        folded = {aliases.get(word, word).lower(), word.lower()}
        denied.update(name for name in available if name.lower() in folded)
        denied.update(match_tools(word, available, aliases))
    return denied


def is_selected(selector: str, name: str, offer: Offer) -> bool:
    """Whether a selector matches this tool. Case is ignored only in the extension's name."""
    if not selector.startswith(SELECTOR):
        return _is_named(selector, name, offer)
    extension, slash, tool = selector.removeprefix(SELECTOR).partition("/")
    if offer.extension is None or offer.extension.lower() != extension.strip().lower():
        return False
    short = offer.find_short_name(name)
    return not slash or tool in (name, short, f"{offer.server}:{short}")


def is_exposed(selectors: Collection[str], servers: Collection[str], name: str, offer: Offer) -> bool:
    """Whether a set of selectors allows a tool; naming one tool of an extension hides its other tools.

    `servers` are those that the file lists as a whole; their tools are hidden only if one of them is named.
    """
    extension = (offer.extension or "").lower()
    own = [text for text in selectors if _get_extension(text) == extension]
    narrow = [text for text in own if "/" in text or not text.startswith(SELECTOR)]
    if name in selectors or any(is_selected(text, name, offer) for text in narrow or own):
        return True
    return offer.server in servers and not any(may_mean(text, offer.server or "") for text in narrow)


def list_extensions(selection: Selection) -> set[str] | None:
    """Return the lower-case names of the selected extensions; None if all are selected."""
    if isinstance(selection, bool):
        return None if selection else set()
    return None if "*" in selection else {to_extension_name(entry) for entry in selection}


def to_extension_name(entry: str) -> str:
    """Return the extension name of an entry; a path gives its file's name, or for an index file the folder's name."""
    parts = [part for part in re.split(r"[/\\]", entry.strip()) if part] or [""]
    stem = _CODE_FILE.sub("", parts[-1])
    if stem in _INDEX_NAMES and len(parts) > 1:
        stem = parts[-2]
    return stem.lower()


def _get_extension(selector: str) -> str:
    if not selector.startswith(SELECTOR):
        return MCP
    return selector.removeprefix(SELECTOR).partition("/")[0].strip().lower()


def may_mean(selector: str, server: str) -> bool:
    """Whether a selector can match tools of this server: it names this server or no server."""
    word = selector.removeprefix(f"{SELECTOR}{MCP}/")
    is_open = ":" not in word and not word.startswith("mcp__")
    return is_open or word.startswith(
        (f"{server}:", f"mcp__{server}__", f"mcp__{re.sub(r'[^A-Za-z0-9_]', '_', server)}__")
    )


def _is_named(word: str, name: str, offer: Offer) -> bool:
    """Whether `server:tool` or `mcp__server__tool`, as the server spells it or with `_` for `-`, matches this tool."""
    if offer.server is None:
        return False
    short = offer.find_short_name(name)
    return word in (name, f"{offer.server}:{short}", f"mcp__{offer.server}__{short}", name.replace("-", "_"))
