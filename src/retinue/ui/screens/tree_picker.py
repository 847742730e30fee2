"""`/tree`: choose an entry of the session tree; filter entries, fold branches, set labels."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from retinue.core.errors import RetinueError
from retinue.ui.default_keys import bind, bind_all
from retinue.ui.formats import clean, clean_line, fold_skill
from retinue.ui.screens.picker import Picker, PickerRow
from retinue.ui.screens.prompt import TextPrompt

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

FILTERS = ("default", "noTools", "userOnly", "labeledOnly", "all")
_HIDDEN = (
    "system",
    "custom",
    "label",
    "session_info",
    "usage",
    "model_change",
    "thinking_level_change",
    "context_edit",
)
"""Types of entries that are not shown to the user by default."""
_MOST = 120


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One row of the tree."""

    entry_id: str
    text: str
    is_user: bool
    label: str = ""
    labelled: str = ""
    """When the label was set."""
    indent: int = 0
    is_present: bool = False
    """Whether the entry is on the current branch."""
    begins: bool = False
    """Whether a branch begins here."""
    folded: int = 0
    """The number of rows hidden below it."""


def list_leaves(
    roots: Sequence[Mapping[str, Any]], leaf_id: str | None, *, wanted: str = "default", folded: Collection[str] = ()
) -> list[TreeRow]:
    """The rows in order; of several branches, the older one comes first."""
    way = set(_find_way(roots, leaf_id))
    return [
        _to_leaf(node, way, depth, begins=begins, hidden=hidden)
        for node, depth, begins, hidden in _walk(roots, wanted, frozenset(folded))
    ]


def _walk(
    roots: Sequence[Mapping[str, Any]], wanted: str, folded: frozenset[str]
) -> Iterator[tuple[Mapping[str, Any], int, bool, int]]:
    # Not recursive: a session is a chain that can be thousands of entries deep.
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
        # If the first entry of a branch is hidden, the next visible one begins the branch.
        todo += [(child, depth + splits, splits or (begins and not is_shown)) for child in reversed(children)]


def _find_way(roots: Sequence[Mapping[str, Any]], leaf_id: str | None) -> Iterator[str]:
    """The ids from the leaf to the root."""
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
    """The text of an entry; empty if it has none."""
    message = entry.get("message")
    details = message.get("details") if isinstance(message, dict) and message.get("role") == "custom" else None
    if isinstance(details, dict) and isinstance(details.get("description"), str):
        return str(details["description"])  # a notification, whose content is for the model
    content = message.get("content") if isinstance(message, dict) else entry.get("content", entry.get("summary"))
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = " ".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        return ""
    if entry.get("type") == "branch_summary":
        content = content.partition("\n\n")[2] or content  # all of them start with the same sentence
    return content.strip().lstrip("# ")


def _to_leaf(node: Mapping[str, Any], way: Collection[str], depth: int, *, begins: bool, hidden: int) -> TreeRow:
    entry = node["entry"]
    role, text = _find_role(entry), clean_line(fold_skill(_find_text(entry)), _MOST)
    if role == "toolResult":
        message = entry["message"]
        sign = "✗" if message.get("isError") else "✓"
        text = clean_line(f"{sign} {message.get('toolName', 'tool')}: {text}", _MOST)
    elif role != "user":
        text = clean_line(f"{_name(entry, role)}: {text}" if text else _name(entry, role), _MOST)
    return TreeRow(
        entry["id"], text, role == "user", clean_line(str(node.get("label") or ""), 40),
        str(node.get("labelTimestamp") or "")[:16].replace("T", " "), depth, entry["id"] in way, begins, hidden,
    )  # fmt: skip


def _name(entry: Mapping[str, Any], role: str) -> str:
    if role == "assistant":
        return "agent"
    holder = entry["message"] if role else entry
    return str(holder.get("customType") or role or str(entry.get("type", "entry")).replace("_", " "))


_NAMES = {
    "default": "messages and tools",
    "noTools": "without tools",
    "userOnly": "only your messages",
    "labeledOnly": "only labelled",
    "all": "everything",
}


class TreePicker(Picker):
    """The result is the id of an entry, or None."""

    FROM_END = True
    LETTERS = ("app.tree.editLabel", "app.tree.toggleLabelTimestamp")
    BINDINGS = [
        *(bind(f"app.tree.filter.{name}", f"filter('{name}')", is_first=True) for name in FILTERS),
        *bind_all(
            {
                "cycle(1)": "app.tree.filter.cycleForward",
                "cycle(-1)": "app.tree.filter.cycleBackward",
                "fold": "app.tree.foldOrUp",
                "unfold": "app.tree.unfoldOrDown",
                "edit_label": "app.tree.editLabel",
                "toggle_times": "app.tree.toggleLabelTimestamp",
                "copy_lit": "app.message.copy",
            },
            is_first=True,
        ),
    ]

    def __init__(self, app: "RetinueApp", wanted: str = "default", chosen: str = "") -> None:
        """`chosen` is highlighted, or else the current entry."""
        self._history = app.link.crew.history
        self._roots = self._history.build_tree()
        self._wanted = wanted
        self._folded: set[str] = set()
        self._has_times = False
        self._leaves: list[TreeRow] = []
        super().__init__("Go back to", self._make_rows())
        present = [leaf.entry_id for leaf in self._leaves if leaf.is_present]
        self._chosen = chosen or (present[-1] if present else "")

    def on_mount(self) -> None:
        self.tell(self._describe())

    def _make_rows(self) -> list[PickerRow]:
        self._leaves = list_leaves(self._roots, self._history.leaf_id, wanted=self._wanted, folded=self._folded)
        return [self._to_choice(leaf) for leaf in self._leaves]

    def _to_choice(self, leaf: TreeRow) -> PickerRow:
        label = f"[{leaf.label}{f' {leaf.labelled}' if self._has_times else ''}] " if leaf.label else ""
        fork = "⑂ " if leaf.begins and leaf.indent else ""
        note = f"+{leaf.folded} folded" if leaf.folded else "" if leaf.is_present else "other branch"
        mark = "❯" if leaf.is_user else " "
        return PickerRow(leaf.entry_id, f"{'  ' * leaf.indent}{fork}{label}{leaf.text}", note, mark, not leaf.is_user)

    def _describe(self) -> str:
        show = self.app.keys.show
        return (
            f"enter: go there · {show('app.tree.filter.cycleForward')}: filter ({_NAMES[self._wanted]}) · "
            f"{show('app.tree.editLabel')}: label · esc: cancel"
        )

    def _renew(self, chosen: str = "") -> None:
        self.put(self._make_rows(), chosen=chosen, hint=self._describe())

    def action_filter(self, name: str) -> None:
        """Set the filter; the same key again resets it to the default."""
        self._wanted = "default" if name == self._wanted else name
        self._renew()

    def action_cycle(self, step: int) -> None:
        """Switch to the next or previous filter."""
        self._wanted = FILTERS[(FILTERS.index(self._wanted) + step) % len(FILTERS)]
        self._renew()

    def action_toggle_times(self) -> None:
        """Show or hide the times of labels."""
        self._has_times = not self._has_times
        self._renew()

    def action_fold(self) -> None:
        """Fold the branch that begins here, or go up to where it begins."""
        leaf = self._find_lit()
        if leaf is not None and leaf.begins and leaf.entry_id not in self._folded:
            self._folded.add(leaf.entry_id)
            self._renew(leaf.entry_id)
        elif leaf is not None:
            above = [each.entry_id for each in self._leaves[: self._leaves.index(leaf)] if each.begins]
            self._light(above[-1] if above else leaf.entry_id)

    def action_unfold(self) -> None:
        """Unfold the branch that begins here, or go down to the next branch or the end."""
        leaf = self._find_lit()
        if leaf is not None and leaf.entry_id in self._folded:
            self._folded.discard(leaf.entry_id)
            self._renew(leaf.entry_id)
        elif leaf is not None:
            below = [each.entry_id for each in self._leaves[self._leaves.index(leaf) + 1 :] if each.begins]
            self._light(below[0] if below else self._leaves[-1].entry_id)

    def action_edit_label(self) -> None:
        """Ask for the label of the highlighted entry."""
        self.run_worker(self._edit_label(), exclusive=True)

    async def _edit_label(self) -> None:
        leaf = self._find_lit()
        if leaf is None:
            return
        words = await self.app.push_screen_wait(TextPrompt("Label (empty removes it)", value=leaf.label))
        if words is None:
            return
        try:
            self._history.label(leaf.entry_id, words.strip())
        except RetinueError as error:
            self.notify(clean(str(error)), severity="error", markup=False)
        self._roots = self._history.build_tree()
        self._renew(leaf.entry_id)

    def action_copy_lit(self) -> None:
        """Copy the text of the highlighted entry."""
        leaf = self._find_lit()
        if leaf is not None:
            self.app.copy_to_clipboard(leaf.text)
            self.tell("copied")

    def _find_lit(self) -> TreeRow | None:
        key = None if self.lit is None else self.lit.key
        return next((leaf for leaf in self._leaves if leaf.entry_id == key), None)
