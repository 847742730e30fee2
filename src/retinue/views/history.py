"""The main session for front ends: messages, entries and their tree, and name, in pi's format.

Changes nothing in the session except its name and labels.
"""

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.core.errors import SessionError, quote
from retinue.core.events import SessionRenamed
from retinue.core.messages import AssistantMessage, Message, TextContent, UserMessage
from retinue.engine.runner import LiveRun
from retinue.sessions.entry import Entry
from retinue.sessions.log import Session
from retinue.sessions.view import Context
from retinue.views.runs import SessionRuns
from retinue.views.session_cost import AgentCost, Stats, count_stats, list_costs

if TYPE_CHECKING:
    from retinue.views.context_use import ContextUse


class ForkPoint(Struct, rename="camel"):
    """A user message from which the session can be forked."""

    entry_id: str
    text: str


class SessionHistory:
    """Access to the session of one main agent."""

    def __init__(self, main: LiveRun) -> None:
        self._main = main
        self._session = main.session

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def file(self) -> str | None:
        """The path of the session file; None if the session is not saved."""
        return None if self._session.path is None else str(self._session.path)

    @property
    def name(self) -> str:
        """The session's name; empty if it has none."""
        return self._session.name

    @property
    def leaf_id(self) -> str | None:
        """The id of the entry that will be the parent of the next one."""
        return self._session.leaf_id

    def rename(self, name: str) -> None:
        main = self._main
        main.journal.write(lambda: main.session.append_session_info(name))
        main.bus.publish(SessionRenamed(run_id=main.setup.run_id, name=self.name))

    def label(self, entry_id: str, label: str) -> None:
        """Set the label of an entry; an empty label removes it. Raises SessionError."""
        main = self._main
        main.journal.write(lambda: main.session.append_label(entry_id, label or None))

    def list_messages(self) -> list[Message]:
        """The conversation as the model sees it."""
        return self._session.context().messages

    def list_recent(self, count: int) -> tuple[list[Message], bool]:
        """About the last `count` messages, and whether that is the whole conversation. Reads no more than needed."""
        if len(self._session) < count:
            return self.list_messages(), True
        return self._session.present.read_recent(count)

    def __len__(self) -> int:
        """Number of entries on all branches."""
        return len(self._session)

    def list_entries(self, since: str | None = None) -> list[dict[str, Any]]:
        """All entries as stored, or those after the entry `since`. Raises SessionError if `since` does not exist."""
        return self._session.stored_entries(since)

    def build_tree(self) -> list[dict[str, Any]]:
        """All entries as a tree of nodes: `entry`, `children`, `label`, `labelTimestamp`."""
        entries = self._session.stored_entries()
        nodes: dict[str, dict[str, Any]] = {entry["id"]: {"entry": entry, "children": []} for entry in entries}
        roots: list[dict[str, Any]] = []
        for entry in entries:
            parent = nodes.get(entry["parentId"] or "")
            (roots if parent is None else parent["children"]).append(nodes[entry["id"]])
            if entry.get("type") == "label":
                _label(nodes.get(str(entry.get("targetId"))), entry)
        return roots

    def list_prompts(self) -> list[ForkPoint]:
        """User messages on all branches, oldest first."""
        said = [(entry.id, to_text(entry)) for entry in self._session.all_entries()]
        return [ForkPoint(entry_id, text) for entry_id, text in said if text]

    def find_prompt(self, entry_id: str) -> tuple[str, str | None]:
        """The text of a user message and the id of the entry before it. Raises SessionError for any other id."""
        for entry in self._session.all_entries():
            if entry.id == entry_id and isinstance(entry.message, UserMessage):
                return to_text(entry), self._session.read_entry(entry_id)["parentId"]
        raise SessionError(f"Invalid entry ID for forking: {quote(entry_id)} is not a user message of this session")

    def find_last_text(self) -> str | None:
        """The text of the last assistant message; None if there is none."""
        for message in reversed(self.list_messages()):
            if isinstance(message, AssistantMessage) and (message.content or message.stop_reason != "aborted"):
                return message.text.strip() or None
        return None

    def open_backlog(self) -> "HistoryReader":
        """Return a reader for the whole conversation that can run in a thread."""
        return HistoryReader(self, self._session)

    def count(self) -> Stats:
        """Count statistics of the whole session, including context usage."""
        return self.sum_up(self._session.context())

    def measure(self) -> "ContextUse":
        """What fills the context window now."""
        from retinue.views.context_use import measure_context

        return measure_context(self._main.setup, self._session.context())

    def list_costs(self, session_runs: SessionRuns) -> list[AgentCost]:
        """What the main agent and all its runs have used, by agent and model."""
        return list_costs(self._session, session_runs.runs, session_runs.find_model)

    def sum_up(self, context: Context) -> Stats:
        """Count statistics, with a context that was already read. May be called in another thread."""
        return count_stats(self._session, context, self._main.setup.model.info.context_window)


class HistoryReader:
    """Reads the conversation as it was at creation: call `run` in a thread, then `settle` in the event loop."""

    def __init__(self, history: SessionHistory, session: Session) -> None:
        self._history = history
        self._session = session
        self._branch = session.present
        self._context = Context()

    def run(self) -> tuple[list[Message], Stats]:
        """Return all messages and the statistics of the whole session."""
        self._context = self._branch.read_context()
        return list(self._context.messages), self._history.sum_up(self._context)

    def settle(self) -> None:
        """Cache the context that was read in the session, so that the next prompt need not read it again."""
        self._session.keep_context(self._branch, self._context)


def to_text(entry: Entry) -> str:
    """Return the text of a user message; empty for other entries."""
    message = entry.message
    if not isinstance(message, UserMessage):
        return ""
    content = message.content
    return content if isinstance(content, str) else "".join(b.text for b in content if isinstance(b, TextContent))


def _label(node: dict[str, Any] | None, entry: dict[str, Any]) -> None:
    if node is None:
        return
    for name in ("label", "labelTimestamp"):
        node.pop(name, None)
    if entry.get("label"):
        node.update(label=entry["label"], labelTimestamp=entry.get("timestamp"))
