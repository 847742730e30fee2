"""How agent files name tools: plainly, by an alias, as `server:tool` of an MCP server, or by `ext:` selectors. Pure.

Says which tools a word means; must not know who may use them.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from retinue.core.definition import Definition, Selection
from retinue.core.tool import Effect

SELECTOR = "ext:"
NOTHING = (SELECTOR,)
"""A selector that means no tool."""
MCP = "mcp"
"""As which all servers appear where files name extensions."""
_PLAIN = re.compile(r"(?!(?i:mcp_))[\w-]+\Z")
_CODE_FILE = re.compile(r"\.(py|ts|js|mjs)\Z")
_INDEX_NAMES = ("index", "__init__")


class Offer(Struct, frozen=True):
    """One tool that exists for a run."""

    effect: Effect
    """The most it can do; for a tool from elsewhere what the *user* vouches for, not what it says of itself."""
    extension: str | None = None
    """Where it comes from; None for retinue's own tools. Tools of MCP servers come from `mcp`."""
    server: str | None = None
    """The MCP server behind it."""
    tool: str = ""
    """What the server calls it, when that is known."""
    is_approved: bool = False
    """Whether the user approved it for agents that name its extension by path: their parent need not have it."""
    is_deferred: bool = False
    """Whether it is shown only to who looks for it with `tool_search`."""

    def find_short_name(self, name: str) -> str:
        """What the server calls its tool that the model knows as `name`."""
        return self.tool or name.removeprefix(f"mcp__{self.server}__") if self.server is not None else name


def match_tools(word: str, available: Mapping[str, Offer], aliases: Mapping[str, str]) -> list[str]:
    """The tools a word of an agent file means; none when it means no tool that exists."""
    target = aliases.get(word, word)
    if target in available:
        return [target]
    if word.startswith(SELECTOR):
        return [name for name, offer in available.items() if is_selected(word, name, offer)]
    return [name for name, offer in available.items() if _is_named(word, name, offer)]


def choose_selectors(definition: Definition) -> tuple[str, ...]:
    """The words of a list that choose among tools from elsewhere: any one makes them an allow-list.

    All but plain names count, also those that nothing answers to: a slip of the pen must not let everything in. An
    empty list chooses nothing, unless the file says beside it which extensions it wants.
    """
    declared = definition.tools
    found = (*declared.selectors, *(word for word in declared.names or () if not _PLAIN.match(word)))
    is_empty = declared.names == () and not declared.all_builtins and not declared.inherits
    has_wish = definition.extensions is not True or "extensions" in definition.lines
    return NOTHING if is_empty and not found and not has_wish else found


def match_denied(words: Iterable[str], available: Mapping[str, Offer], aliases: Mapping[str, str]) -> set[str]:
    """The tools that denying words mean; in doubt denied, so case does not matter, and `*` and `all` mean all."""
    denied: set[str] = set()
    for word in words:
        if word.lower() in ("*", "all"):
            return set(available)
        folded = {aliases.get(word, word).lower(), word.lower()}
        denied.update(name for name in available if name.lower() in folded)
        denied.update(match_tools(word, available, aliases))
    return denied


def is_selected(selector: str, name: str, offer: Offer) -> bool:
    """Whether a selector means this tool; only an extension's case does not matter."""
    if not selector.startswith(SELECTOR):
        return _is_named(selector, name, offer)
    extension, slash, tool = selector.removeprefix(SELECTOR).partition("/")
    if offer.extension is None or offer.extension.lower() != extension.strip().lower():
        return False
    short = offer.find_short_name(name)
    return not slash or tool in (name, short, f"{offer.server}:{short}")


def is_exposed(selectors: Collection[str], servers: Collection[str], name: str, offer: Offer) -> bool:
    """Whether a set of selectors lets a tool through: naming one tool of an extension hides its others.

    `servers` are those that the file lists whole: of them only naming one of their own tools hides the others.
    """
    extension = (offer.extension or "").lower()
    own = [text for text in selectors if _get_extension(text) == extension]
    narrow = [text for text in own if "/" in text or not text.startswith(SELECTOR)]
    if name in selectors or any(is_selected(text, name, offer) for text in narrow or own):
        return True
    return offer.server in servers and not any(may_mean(text, offer.server or "") for text in narrow)


def list_extensions(selection: Selection) -> set[str] | None:
    """The lower-case names of a list of extensions; None when all are meant."""
    if isinstance(selection, bool):
        return None if selection else set()
    return None if "*" in selection else {to_extension_name(entry) for entry in selection}


def to_extension_name(entry: str) -> str:
    """The name an entry stands for: a path stands for its file, or for the folder of an index file."""
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
    """Whether a selector may be about tools of a server: it names that one, or none."""
    word = selector.removeprefix(f"{SELECTOR}{MCP}/")
    is_open = ":" not in word and not word.startswith("mcp__")
    return is_open or word.startswith(
        (f"{server}:", f"mcp__{server}__", f"mcp__{re.sub(r'[^A-Za-z0-9_]', '_', server)}__")
    )


def _is_named(word: str, name: str, offer: Offer) -> bool:
    """Whether `server:tool` or `mcp__server__tool`, as the server spells them, or with `_` for `-`, means this tool."""
    if offer.server is None:
        return False
    short = offer.find_short_name(name)
    return word in (name, f"{offer.server}:{short}", f"mcp__{offer.server}__{short}", name.replace("-", "_"))
