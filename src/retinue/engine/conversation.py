"""The conversation of one run, loaded from its session on demand and kept in sync with it.

MUST NOT know models or tools.
"""

from collections.abc import Callable, Sequence
from functools import partial

from retinue.core.errors import SessionError, quote
from retinue.core.events import EntryAppended, Event, Warned
from retinue.core.messages import AssistantMessage, BashExecutionMessage
from retinue.core.transcript import list_orphans, repair_transcript
from retinue.engine.journal import Journal
from retinue.engine.loop import RunConversation
from retinue.sessions.log import Session

MOST_LOSSES = 5
"""How many unreadable parts of a session a warning names."""


class StoredConversation:
    def __init__(self, run_id: str, session: Session, journal: Journal, publish: Callable[[Event], None]) -> None:
        self._run_id = run_id
        self._session = session
        self._journal = journal
        self._publish = publish
        self._talk: RunConversation | None = None
        self._told: set[str] = set()

    @property
    def talk(self) -> RunConversation:
        """The conversation, loaded on first use: a long session that is only viewed need not be loaded."""
        if self._talk is None:
            self._talk = RunConversation()
            self.load()
        return self._talk

    def load(self) -> None:
        """Reload from the session, which after an abort is the only reliable state."""
        talk = self.talk
        try:
            context = self._session.context()
        except SessionError as error:
            self._publish(Warned(run_id=self._run_id, text=str(error)))
            return
        talk.load(list(repair_transcript(context.messages)))
        orphans = [
            f"the result of call {quote(each.tool_call_id)} ({each.tool_name}) is left out: the session lacks that call"
            for each in list_orphans(context.messages)
        ]
        self.tell_losses([*context.lost, *orphans])

    def drop(self) -> None:
        """Reload on next use: the session continues from another entry."""
        self._talk = None

    def add(self, message: BashExecutionMessage) -> None:
        talk = self.talk  # loaded before the session contains it
        self._journal.write(partial(self._session.append_message, message))
        talk.messages.append(message)

    def find_answer(self) -> AssistantMessage | None:
        """Return the last message if it is an answer without tool calls."""
        last = self.talk.messages[-1] if self.talk.messages else None
        return last if isinstance(last, AssistantMessage) and not last.calls else None

    def omit_last(self) -> None:
        """Remove the failed reply from the context; the session keeps it."""
        talk, target = self.talk, self._journal.last_message_id
        if talk.messages and isinstance(talk.messages[-1], AssistantMessage):
            talk.messages.pop()
            talk.memo.clear()  # keyed by identity, and the id of the removed message may be reused
            talk.turns -= 1
        if target:
            edit_id = self._journal.write(lambda: self._session.append_context_edit(target, None))
            if edit_id:
                self._publish(EntryAppended(run_id=self._run_id, entry=self._session.read_entry(edit_id)))

    def tell_losses(self, losses: Sequence[str]) -> None:
        """Warn once about parts of the session that the model will not see."""
        fresh = [text for text in losses if text not in self._told]
        self._told.update(fresh)
        if fresh:
            more = f"; and {len(fresh) - MOST_LOSSES} more" if len(fresh) > MOST_LOSSES else ""
            text = f"{'; '.join(fresh[:MOST_LOSSES])}{more}"
            text = f"not all of session {self._session.id} can be shown to the model: {text}"
            self._publish(Warned(run_id=self._run_id, text=text))
