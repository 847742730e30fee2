"""What a long session holds before its end, read while the end is shown already. Must not know who shows it."""

from retinue.core.messages import Message
from retinue.sessions.log import Session
from retinue.sessions.view import Context
from retinue.views.history import Chronicle, Stats


class Backlog:
    """The conversation as it is when this is made: `run` in a thread, then `settle` in the loop."""

    def __init__(self, chronicle: Chronicle, session: Session) -> None:
        self._chronicle = chronicle
        self._session = session
        self._branch = session.present
        self._context = Context()

    def run(self) -> tuple[list[Message], Stats]:
        """All messages, and the figures of the whole session."""
        self._context = self._branch.read_context()
        return list(self._context.messages), self._chronicle.sum_up(self._context)

    def settle(self) -> None:
        """Let the session keep what was read, so that the next prompt need not read it again."""
        self._session.keep_context(self._branch, self._context)
