"""Makes room in a conversation: when, by which model call, and what is told. A failure leaves the context as it was.

Where to cut and what to ask is in `sessions.compaction`; this file must not know that.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from retinue.core.clock import Clock
from retinue.core.errors import CompactionFailed
from retinue.core.events import Compacted, CompactionStarted, Event
from retinue.core.messages import AssistantMessage, UserMessage
from retinue.core.model import Delta, Draft, Request
from retinue.core.transcript import repair_transcript
from retinue.engine.journal import Journal
from retinue.engine.loop import Conversation
from retinue.engine.setup import RunSetup
from retinue.sessions import compaction
from retinue.sessions.log import Session

Cause = Literal["manual", "threshold", "overflow"]


class Compactor:
    """Compacts one run's conversation."""

    def __init__(
        self,
        setup: RunSetup,
        session: Session,
        journal: Journal,
        publish: Callable[[Event], None],
        clock: Clock,
        watcher: Callable[[Delta], None],
    ) -> None:
        self._setup = setup
        self._session = session
        self._journal = journal
        self._publish = publish
        self._clock = clock
        self._watcher = watcher
        """Hears the pieces of a summary."""
        self._failed_at = 0
        """Messages there were when a compaction last failed: no second try before there is something new."""

    def use(self, setup: RunSetup) -> None:
        """Go on with another model or other limits."""
        self._setup = setup

    def begin(self) -> None:
        """Another conversation: what failed before says nothing about it."""
        self._failed_at = 0

    async def check(self, talk: Conversation) -> None:
        """Summarise when too few tokens are free. Does not raise."""
        setup = self._setup
        if not setup.compaction.enabled or len(talk.messages) == self._failed_at:
            return
        tokens = compaction.count_context_tokens(self._session.context())
        if compaction.needs_compaction(tokens, setup.model.info.context_window, setup.compaction):
            await self.run(talk, "threshold")

    async def run(self, talk: Conversation, cause: Cause, *, will_retry: bool = False, instructions: str = "") -> bool:
        """Summarise now; False when there was nothing to gain or it failed, and then nothing has changed."""
        run_id = self._setup.run_id
        context, config = self._session.context(), self._setup.compaction
        plans = [compaction.prepare_compaction(context, config)]
        if cause != "threshold":
            # What would be kept may itself be too long: then keep the last message only, then nothing.
            plans.append(compaction.prepare_compaction(context, replace(config, keep_recent_tokens=1)))
            plans.append(compaction.prepare_compaction(context, config, keep_recent=False))
        usable = [plan for plan in plans if plan is not None]
        if not usable:
            self._failed_at = len(talk.messages)
            return False
        self._publish(CompactionStarted(run_id=run_id, reason=cause))
        try:
            done = await self._try(usable, instructions)
        except CompactionFailed as error:
            self._failed_at = len(talk.messages)
            self._publish(Compacted(run_id=run_id, reason=cause, error=str(error)))
            return False
        except asyncio.CancelledError:
            self._publish(Compacted(run_id=run_id, reason=cause, aborted=True))
            raise
        self._journal.write(
            lambda: self._session.append_compaction(
                done.summary, done.first_kept_entry_id, done.tokens_before, done.usage, done.details
            )
        )
        talk.usage += done.usage
        talk.load(list(repair_transcript(self._session.context().messages)))
        self._publish(Compacted(run_id=run_id, reason=cause, result=self._describe(done), will_retry=will_retry))
        return True

    async def _try(self, plans: Sequence[compaction.Preparation], instructions: str) -> compaction.Compaction:
        for plan in plans[:-1]:
            try:
                return await compaction.compact(plan, self._summarise, instructions)
            except CompactionFailed:
                continue
        return await compaction.compact(plans[-1], self._summarise, instructions)

    async def _summarise(self, system: str, prompt: str) -> AssistantMessage:
        model, now_ms = self._setup.model, self._clock.now_ms()
        request = Request(system=system, messages=[UserMessage(prompt, now_ms)], cache=False)
        return (await model.reply(request, Draft(model.info, started_ms=now_ms, watcher=self._watcher))).message

    def _describe(self, done: compaction.Compaction) -> dict[str, Any]:
        """The result as programs read it."""
        context = self._session.context()
        return {
            "summary": done.summary,
            "firstKeptEntryId": done.first_kept_entry_id or self._session.leaf_id,
            "tokensBefore": done.tokens_before,
            "estimatedTokensAfter": compaction.count_context_tokens(context),
            "usage": done.usage,
            "details": done.details,
        }
