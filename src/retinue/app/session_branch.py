"""Other points of the same session to go on from: the next thing said hangs on the chosen entry, nothing is lost.

What is left can be summed up for the branch that is entered. Runs belong to the session and not to a branch: they go
on. Knows no face.
"""

from contextlib import nullcontext

from retinue.app.reactions import Reactions
from retinue.core.clock import Clock
from retinue.core.errors import SessionError, quote
from retinue.core.messages import AssistantMessage
from retinue.engine.compaction import CAREFUL_CHARS_PER_TOKEN, ask_for_summary
from retinue.engine.runner import LiveRun
from retinue.sessions.branch_summary import BranchSummary, has_words, prepare_parting, sum_up
from retinue.settings.schema import BranchSummaries
from retinue.views.history import Chronicle

_WINDOW = 128_000
"""Of a model that does not say its own."""
_MOST_TOKENS = 4096
"""Of a summary."""


class Branching:
    """The branches of one main agent's session. What fails leaves everything as it was."""

    def __init__(self, main: LiveRun, reactions: Reactions | None, clock: Clock, settings: BranchSummaries) -> None:
        self._main = main
        self._session = main.session
        self._reactions = reactions
        self._clock = clock
        self._settings = settings

    @property
    def asks(self) -> bool:
        """Whether the user wants to be asked about a summary."""
        return not self._settings.skip_prompt

    def is_here(self, entry_id: str) -> bool:
        """Whether nothing was said after an entry, so that going there would change nothing. Raises SessionError."""
        _, leaf_id = self._find(entry_id)
        is_after = leaf_id == entry_id and self._session.present.passes(entry_id)
        return is_after and not self.leaves_words(entry_id)

    def leaves_words(self, entry_id: str) -> bool:
        """Whether going to an entry leaves something behind that can be summed up. Raises SessionError."""
        self._find(entry_id)
        return has_words(self._session.present.load_beyond(entry_id))

    async def go(self, entry_id: str, *, summarise: bool = False, instructions: str = "") -> str:
        """Go on from an entry: from before it where the user said it, and those words are returned.

        With `summarise` the model first sums up what is left, which is then the first entry of the new branch. Reports
        of runs wait for the next prompt. Raises RetinueError: the agent works, there is no such entry, no summary came
        of it, or it cannot be written.
        """
        words, leaf_id = self._find(entry_id)
        self._check()
        with self._reactions.held() if self._reactions is not None else nullcontext():
            summary = await self._sum_up(entry_id, instructions) if summarise else None
            self._move(leaf_id, summary)
        return words

    def _find(self, entry_id: str) -> tuple[str, str | None]:
        """The words to say again, and the entry to go on from."""
        try:
            stored = self._session.read_entry(entry_id)
        except KeyError:
            raise SessionError(f"Entry not found: session {self._session.id} has no {quote(entry_id)}") from None
        message = stored.get("message")
        if stored.get("type") == "message" and isinstance(message, dict) and message.get("role") == "user":
            return Chronicle(self._main).find_prompt(entry_id)
        return "", entry_id

    def _check(self) -> None:
        main = self._main
        if main.is_busy:
            raise SessionError("the agent works: stop it, or wait until it is done, before going to another branch")
        main.journal.flush()
        if not main.journal.is_saved:
            # What is missing would be written to the wrong branch later.
            raise SessionError(f"session {self._session.id} cannot be written, so this branch cannot be left")

    async def _sum_up(self, entry_id: str, instructions: str) -> BranchSummary | None:
        main = self._main
        left = self._session.present.load_beyond(entry_id)
        if not has_words(left):
            return None
        said = main.journal.last_message_id
        window = main.setup.model.info.context_window or _WINDOW
        room = window - min(self._settings.reserve_tokens, window // 2)
        parting = prepare_parting(left, room)
        summary = await sum_up(parting, self._ask, instructions, room * CAREFUL_CHARS_PER_TOKEN)
        self._check()
        if main.journal.last_message_id != said:
            raise SessionError("something was said while the summary was made; nothing has changed")
        return summary

    async def _ask(self, system: str, prompt: str) -> AssistantMessage:
        main, info = self._main, self._main.setup.model.info
        most = min(_MOST_TOKENS, info.max_tokens or _MOST_TOKENS, max(256, info.context_window // 4))
        return await ask_for_summary(main.setup, self._clock, main.bus.publish, system, prompt, most)

    def _move(self, leaf_id: str | None, summary: BranchSummary | None) -> None:
        main, former = self._main, self._session.leaf_id
        main.branch(leaf_id)
        if summary is None:
            return
        try:
            self._session.append_branch_summary(summary.summary, former, summary.usage, summary.details)
        except SessionError:
            main.branch(former)
            raise
