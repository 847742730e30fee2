"""Compacts a conversation: decides when, asks the model for a summary, and publishes what happened.

A failure leaves the context unchanged, unless it no longer fits: then its older part is replaced by a note.
`sessions.compaction` decides where to cut and what to ask.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import CompactionFailed
from retinue.core.events import Compacted, CompactionStarted, Event, RetryEnded, RetryScheduled, Warned
from retinue.core.messages import AssistantMessage, UserMessage
from retinue.core.model import Delta, Draft, ModelRequest
from retinue.core.transcript import repair_transcript
from retinue.engine.journal import Journal
from retinue.engine.loop import RunConversation
from retinue.engine.model_choice import Ask, ask_model
from retinue.engine.setup import RunSetup
from retinue.models.retry import GiveUp, plan_retry
from retinue.sessions import compaction
from retinue.sessions.log import Session
from retinue.sessions.view import Context

Cause = Literal["manual", "threshold", "overflow"]
PASSING = ("auth", "missing", "budget", "record", "network", "timeout", "rate")
"""Failures after which nothing is removed: the run could not continue anyway, and a later summary may succeed."""
UNABLE = ("overloaded", "stalled", "truncated")
"""Failures that another cut would not fix."""
PROMPT_TOKENS = 700
"""Size of a summary request without the conversation."""
CAREFUL_CHARS_PER_TOKEN = 3
"""Code has fewer characters per token than prose."""
SHORT_TOKENS = 4_096
"""Below this, the model is asked for a shorter summary."""


class Compactor:
    def __init__(
        self,
        setup: RunSetup,
        session: Session,
        journal: Journal,
        publish: Callable[[Event], None],
        clock: Clock,
        watcher: Callable[[Delta], None],
        find_window: Callable[[], int],
        ask: Ask = ask_model,
    ) -> None:
        """`find_window` returns the tokens that the model accepts; `watcher` receives the parts of a summary."""
        self._ask = ask
        self._setup = setup
        self._find_window = find_window
        self._session = session
        self._journal = journal
        self._publish = publish
        self._clock = clock
        self._watcher = watcher
        self._failed_at = 0
        """Number of messages at the last failed compaction: it is not tried again until there are new ones."""
        self.head_tokens = 0
        """Estimated size of prompt and tools."""

    def use(self, setup: RunSetup) -> None:
        self._setup = setup

    def begin(self) -> None:
        """Reset the failure state for another conversation."""
        self._failed_at = 0

    async def check(self, talk: RunConversation) -> None:
        """Compact if too few tokens are free. Does not raise."""
        if not self._setup.compaction.enabled or len(talk.messages) == self._failed_at:
            return
        tokens = compaction.count_context_tokens(self._session.context(), self.head_tokens)
        if compaction.needs_compaction(tokens, self._window, self._fit()):
            await self.run(talk, "threshold")

    async def run(
        self,
        talk: RunConversation,
        cause: Cause,
        *,
        will_retry: bool = False,
        instructions: str = "",
        strength: int = 0,
    ) -> bool:
        """Compact now; False if there was nothing to gain or it failed, and then nothing has changed.

        If the conversation does not fit and no summary can be made, its older part is replaced by a note. `strength` 1
        keeps only the last message, 2 keeps nothing.
        """
        run_id = self._setup.run_id
        context = self._session.context()
        is_full = compaction.count_context_tokens(context, self.head_tokens) >= self._window
        must = cause == "overflow" or (cause == "threshold" and is_full)
        plans = self._plan(context, strength, is_weak=cause == "threshold" and not must)
        if not plans:
            self._failed_at = len(talk.messages)
            return False
        self._publish(CompactionStarted(run_id=run_id, reason=cause))
        try:
            done = await self._try(plans, instructions, must=must)
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
        if done.first_kept_entry_id is None and context.messages and isinstance(context.messages[-1], UserMessage):
            model = f"{self._setup.model.info.ref} ({self._window} tokens)"
            text = f"your message does not fit into the context window of {model}; the model gets a summary of it"
            self._publish(Warned(run_id=run_id, text=text))
        talk.usage += done.usage
        talk.load(list(repair_transcript(self._session.context().messages)))
        self._publish(Compacted(run_id=run_id, reason=cause, result=self._describe(done), will_retry=will_retry))
        return True

    @property
    def _window(self) -> int:
        return self._find_window()

    def _fit(self) -> compaction.CompactionConfig:
        return self._setup.compaction.fit(self._window, self.head_tokens)

    def _plan(self, context: Context, strength: int, *, is_weak: bool) -> list[compaction.Preparation]:
        """Return the possible cuts, the one that keeps most first; even the kept part may be too long."""
        config = self._fit()
        plans = [
            compaction.prepare_compaction(context, config),
            compaction.prepare_compaction(context, replace(config, keep_recent_tokens=1)),
            compaction.prepare_compaction(context, config, keep_recent=False),
        ]
        usable = [plan for plan in (plans[:1] if is_weak else plans[strength:]) if plan is not None]
        taken = self.head_tokens + self._find_output()
        return [plan for plan in usable if taken + plan.kept_tokens <= self._window] or usable[-1:]

    def _find_output(self) -> int:
        return min(self._setup.model.info.max_tokens, max(256, self._fit().reserve_tokens * 4 // 5))

    async def _try(
        self, plans: Sequence[compaction.Preparation], instructions: str, *, must: bool
    ) -> compaction.Compaction:
        error = CompactionFailed("there is nothing to summarise")
        room = max(1_000, (self._window - self._find_output() - PROMPT_TOKENS) * CAREFUL_CHARS_PER_TOKEN)
        for plan in plans:
            for most_chars in (room, room // 2, room // 4):
                try:
                    return await compaction.compact(plan, self._summarise, instructions, most_chars)
                except CompactionFailed as failed:
                    error = failed
                if error.kind != "overflow":
                    break
            if error.kind in (*PASSING, *UNABLE):
                break
        if not must or error.kind in PASSING:
            raise error
        done = compaction.leave_out(plans[0], str(error), self._window // 2)
        model = f"{self._setup.model.info.ref} ({self._window} tokens)"
        text = f"the conversation does not fit into the context window of {model}, and {error}; "
        text += "its older part is replaced by a note to the model, but stays in the session file"
        self._publish(Warned(run_id=self._setup.run_id, text=text))
        return done

    async def _summarise(self, system: str, prompt: str) -> AssistantMessage:
        most = self._find_output()
        if most < SHORT_TOKENS:
            system += f" Use at most {most // 2} words."
        watcher, ask = self._watcher, self._ask
        return await ask_for_summary(self._setup, self._clock, self._publish, system, prompt, most, watcher, ask)

    def _describe(self, done: compaction.Compaction) -> dict[str, Any]:
        context = self._session.context()
        return {
            "summary": done.summary,
            "firstKeptEntryId": done.first_kept_entry_id or self._session.leaf_id,
            "tokensBefore": done.tokens_before,
            "estimatedTokensAfter": compaction.count_context_tokens(context),
            "usage": done.usage,
            "details": done.details,
        }


async def ask_for_summary(
    setup: RunSetup,
    clock: Clock,
    publish: Callable[[Event], None],
    system: str,
    prompt: str,
    max_tokens: int,
    watcher: Callable[[Delta], None] | None = None,
    ask: Ask = ask_model,
) -> AssistantMessage:
    """Ask a run's model, with the usual retries. `watcher` receives the parts of the reply. Raises CompactionFailed."""
    model, attempt = setup.model, 0
    while True:
        now_ms = clock.now_ms()
        messages = [UserMessage(prompt, now_ms)]
        request = ModelRequest(system=system, messages=messages, max_tokens=max_tokens, cache=False)
        reply = await ask(model, request, Draft(model.info, started_ms=now_ms, watcher=watcher))
        failure = reply.failure
        if failure is None:
            if attempt:
                publish(RetryEnded(run_id=setup.run_id, success=True, attempt=attempt))
            return reply.message
        plan = plan_retry(failure, attempt + 1, setup.retry, setup.random)
        if isinstance(plan, GiveUp):
            if attempt:
                publish(RetryEnded(run_id=setup.run_id, success=False, attempt=attempt, error=failure.message))
            reason = "; ".join(filter(None, (failure.message, plan.reason)))
            raise CompactionFailed(f"the summary failed: {reason}", failure.kind)
        attempt += 1
        publish(
            RetryScheduled(
                run_id=setup.run_id,
                attempt=attempt,
                max_attempts=setup.retry.max_retries,
                delay_ms=round(plan.delay_s * 1000),
                error=failure.message,
            )
        )
        await clock.sleep(plan.delay_s)
