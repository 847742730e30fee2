"""A session as the rows of a tree: who said what after what, what is hidden, what is folded. Pure.

Takes entries in pi's form, as they are stored; anything may be in there, so nothing is taken for granted.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retinue.ui.formats import clean_line, fold_skill

FILTERS = ("default", "noTools", "userOnly", "labeledOnly", "all")
_HIDDEN = (
    "system",
    "model_change",
    "thinking_level_change",
    "custom",
    "label",
    "session_info",
    "usage",
    "context_edit",
)
"""Kinds of entries that say nothing to a person."""
_MOST = 120


@dataclass(frozen=True, slots=True)
class Leaf:
    """One row."""

    entry_id: str
    text: str
    is_user: bool
    label: str = ""
    labelled: str = ""
    """When it was marked."""
    indent: int = 0
    is_present: bool = False
    """Whether what is said next comes after it, or after something below it."""
    begins: bool = False
    """Whether a branch begins here."""
    folded: int = 0
    """How many rows are hidden below it."""


def list_leaves(
    roots: Sequence[Mapping[str, Any]], leaf_id: str | None, *, wanted: str = "default", folded: Collection[str] = ()
) -> list[Leaf]:
    """The rows, from the beginning on; of several branches the older one comes first."""
    way = set(_find_way(roots, leaf_id))
    return [
        _to_leaf(node, way, depth, begins=begins, hidden=hidden)
        for node, depth, begins, hidden in _walk(roots, wanted, frozenset(folded))
    ]


def _walk(
    roots: Sequence[Mapping[str, Any]], wanted: str, folded: frozenset[str]
) -> Iterator[tuple[Mapping[str, Any], int, bool, int]]:
    # Without recursion: a session is one long chain, thousands deep.
    todo = [(node, 0, True) for node in reversed(roots)]
    while todo:
        node, depth, begins = todo.pop()
        is_shown, children = _is_wanted(node, wanted), node["children"]
        is_folded = begins and node["entry"]["id"] in folded
        if is_shown:
            yield node, depth, begins, _count_below(node, wanted) if is_folded else 0
        if is_folded:
            continue
        splits = len(children) > 1 and sum(_leads_on(child, wanted) for child in children) > 1
        # Where a branch begins with something hidden, the next thing that is shown begins it.
        todo += [(child, depth + splits, splits or (begins and not is_shown)) for child in reversed(children)]


def _find_way(roots: Sequence[Mapping[str, Any]], leaf_id: str | None) -> Iterator[str]:
    """From the leaf to the beginning."""
    entries = {entry["id"]: entry for entry in (node["entry"] for node in _list_all(roots))}
    while leaf_id is not None and leaf_id in entries:
        yield leaf_id
        leaf_id = entries.pop(leaf_id).get("parentId")


def _list_all(nodes: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    todo = list(nodes)
    while todo:
        node = todo.pop()
        yield node
        todo += node["children"]


def _leads_on(node: Mapping[str, Any], wanted: str) -> bool:
    return any(_is_wanted(each, wanted) for each in _list_all([node]))


def _count_below(node: Mapping[str, Any], wanted: str) -> int:
    return sum(_is_wanted(each, wanted) for each in _list_all(node["children"]))


def _is_wanted(node: Mapping[str, Any], wanted: str) -> bool:
    entry = node["entry"]
    kind, role = entry.get("type"), _find_role(entry)
    if wanted == "all":
        return True
    if wanted == "labeledOnly":
        return bool(node.get("label"))
    if wanted == "userOnly":
        return role == "user"
    if kind in _HIDDEN or role == "system" or (role == "assistant" and not _find_text(entry)):
        return False
    return wanted != "noTools" or role not in ("toolResult", "bashExecution")


def _find_role(entry: Mapping[str, Any]) -> str:
    message = entry.get("message")
    return str(message.get("role", "")) if entry.get("type") == "message" and isinstance(message, dict) else ""


def _find_text(entry: Mapping[str, Any]) -> str:
    """What an entry says; empty when it says nothing."""
    message = entry.get("message")
    details = message.get("details") if isinstance(message, dict) and message.get("role") == "custom" else None
    if isinstance(details, dict) and isinstance(details.get("description"), str):
        return str(details["description"])  # a report, whose own words are for the model
    content = message.get("content") if isinstance(message, dict) else entry.get("content", entry.get("summary"))
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = " ".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        return ""
    if entry.get("type") == "branch_summary":
        content = content.partition("\n\n")[2] or content  # all of them begin with the same sentence
    return content.strip().lstrip("# ")


def _to_leaf(node: Mapping[str, Any], way: Collection[str], depth: int, *, begins: bool, hidden: int) -> Leaf:
    entry = node["entry"]
    role, text = _find_role(entry), clean_line(fold_skill(_find_text(entry)), _MOST)
    if role == "toolResult":
        message = entry["message"]
        sign = "✗" if message.get("isError") else "✓"
        text = clean_line(f"{sign} {message.get('toolName', 'tool')}: {text}", _MOST)
    elif role != "user":
        text = clean_line(f"{_name(entry, role)}: {text}" if text else _name(entry, role), _MOST)
    return Leaf(
        entry["id"], text, role == "user", clean_line(str(node.get("label") or ""), 40),
        str(node.get("labelTimestamp") or "")[:16].replace("T", " "), depth, entry["id"] in way, begins, hidden,
    )  # fmt: skip


def _name(entry: Mapping[str, Any], role: str) -> str:
    if role == "assistant":
        return "agent"
    holder = entry["message"] if role else entry
    return str(holder.get("customType") or role or str(entry.get("type", "entry")).replace("_", " "))
