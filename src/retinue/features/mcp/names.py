"""What the model calls a server's tool: `mcp__server__tool`, in letters every provider takes. Pure."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

PREFIX = "mcp__"
MAX_CHARS = 64
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_HASH_CHARS = 8


def name_tools(server: str, tools: Iterable[str]) -> dict[str, str]:
    """For each tool of a server the name the model sees; names that would be the same all get a hash."""
    plain = {tool: f"{PREFIX}{_ODD.sub('_', server)}__{_ODD.sub('_', tool)}" for tool in tools}
    uses = Counter(plain.values())
    return {
        tool: name if uses[name] == 1 and len(name) <= MAX_CHARS else _add_hash(name, tool)
        for tool, name in plain.items()
    }


def fold_name(name: str) -> str:
    """A name in letters, digits and `_`, for comparison: `-` and `_` are the same."""
    return _ODD.sub("_", name).replace("-", "_")


def find_server(name: str, servers: Iterable[str]) -> str | None:
    """The server whose tool a name would be, folded or not; of several the one with the longest name."""
    folded = fold_name(name)
    fitting = [server for server in servers if folded.startswith(f"{PREFIX}{fold_name(server)}__")]
    return max(fitting, key=len, default=None)


def _add_hash(name: str, tool: str) -> str:
    digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{name[: MAX_CHARS - _HASH_CHARS - 1]}_{digest}"
