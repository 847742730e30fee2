"""LiveRun: executes one run from its prompt to its outcome, with retries and compaction.

It ends in exactly one final state, whatever happens. MUST NOT know surfaces, settings or other runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import RetinueError
from retinue.core.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    MessageFinished,
    RunFinished,
    RunStarted,
    Steered,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    Warned,
)
from retinue.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CustomMessage,
    Message,
    SystemMessage,
    TextContent,
    UserContent,
    UserMessage,
    has_image,
)
from retinue.core.model import Delta, ModelRequest
from retinue.core.run import Outcome, Reason, Status
from retinue.core.tool import Effect, ToolContext
from retinue.engine.bus import Bus
from retinue.engine.calls import MAX_RESULT_CHARS, CallPorts, keep_data, run_calls
from retinue.engine.compaction import Compactor
from retinue.engine.conversation import StoredConversation
from retinue.engine.fork import InheritedPart, SentHead, choose_marks, read_head, read_inherited
from retinue.engine.inbox import Inbox
from retinue.engine.journal import Journal
from retinue.engine.limit_wait import LimitWait
from retinue.engine.limits import judge_turn
from retinue.engine.loop import Ending, LoopPorts, run_loop
from retinue.engine.model_choice import CurrentModel, UnaskedModel, replace_model
from retinue.engine.prompt import declare_change, render_prompt
from retinue.engine.retries import Attempts, EarlierUsage, judge_ending
from retinue.engine.scope import Scope
from retinue.engine.setup import FeatureStack, ListeningFeature, RunSetup
from retinue.engine.window import FittedPrompt, FittedSpecs, RunWindow, bound_result, count_head, fit_sections
from retinue.models.gate import Gates
from retinue.models.retry import GiveUp, is_limit, plan_retry
from retinue.sessions.log import Session

Stay = Callable[[Outcome], Awaitable[Outcome]]
_FINISHED = (MessageFinished, ToolFinished, TurnFinished)


class LiveRun:
    """A run that can be prompted, steered and aborted; between prompts it is idle."""

    def __init__(self, setup: RunSetup, session: Session, *, clock: Clock) -> None:
        self._scope = Scope()
        setup = setup.change(session_id=session.id, pause_idle=self._scope.pause_idle)
        self.setup = setup
        self.session = session
        self.journal = Journal(
            setup.run_id, session, lambda text: self.bus.publish(Warned(run_id=setup.run_id, text=text))
        )
        self.bus = Bus(self.journal, self.journal.record_all)
        self.inbox = Inbox(
            steering_mode=setup.steering_mode, follow_up_mode=setup.follow_up_mode, on_change=self._tell_queue
        )
        for feature in setup.features:
            if isinstance(feature, ListeningFeature):
                self.bus.listen(feature.hear, pieces=False, kinds=(ToolStarted, ToolFinished))
        self._clock = clock
        self._conversation = StoredConversation(setup.run_id, session, self.journal, self._publish)
        self._window = RunWindow(lambda: self.setup.model.info, self._warn)
        self.limit_wait = LimitWait(
            *(setup.run_id, setup.gates or Gates(clock), self._scope, clock, self._publish),
            lambda: self.setup.retry,
            msgspec.structs.replace(setup.fallbacks, agent=setup.name),
            setup.warm_up,
        )
        self._compactor = self._open_compactor()
        self._attempts = Attempts(setup.run_id, self._publish)
        self._current = CurrentModel(
            lambda: (self.setup.model, self.setup.thinking),
            self._warn,
            lambda: self._window.output_tokens,
            self._mark,
            self.limit_wait.ask,
        )
        self.inherited: InheritedPart | None = read_inherited(session) if setup.is_fork else None
        """The part of the conversation that was its parent's request."""
        self._sent: tuple[Mapping[str, str], FittedSpecs] | None = None
        """Prompt and tools of the last request."""
        self._last_text = ""
        self._is_open = False
        self._outcome = Outcome(Status.FAILED, Reason.CRASH)
        self._past = EarlierUsage()
        self._base = setup
        self._around = FeatureStack()
        self._noted: list[BashExecutionMessage] = []
        self._taken_up: EarlierUsage | None = None
        self._has_replied = False
        self._calls: dict[str, str] = {}
        """Names of the tools that are working, by call."""

    async def prompt(self, content: str | Sequence[UserContent], *, stay: Stay | None = None) -> Outcome:
        """Send a message and work until it is done. Allowed only while idle; while busy, use `steer`.

        `stay` keeps the run and its features open after the answer, and returns the final outcome.
        """
        return await self._open(_to_blocks(content) if self._taken_up is None else [], stay)

    def take_up(self, past: EarlierUsage) -> None:
        """Treat the next prompt as begun by another process: it is not sent again, and its earlier usage counts."""
        self._taken_up = past

    async def go_on(self, *, stay: Stay | None = None) -> Outcome:
        """Continue from the session without a new message, after another process began the work."""
        return await self._open([], stay)

    async def wake(self) -> Outcome | None:
        """Process the queued messages; None if there are none."""
        if not self.inbox:
            return None
        # A run kept open by `stay` is the same run: it neither starts nor ends again.
        return await self._converse([]) if self._is_open else await self._open([], None)

    def steer(self, content: str | Sequence[UserContent]) -> None:
        self.inbox.steer(UserMessage(_to_blocks(content), self._clock.now_ms()))

    @property
    def hears(self) -> bool:
        return True

    def follow_up(self, content: str | Sequence[UserContent]) -> None:
        self.inbox.follow_up(UserMessage(_to_blocks(content), self._clock.now_ms()))

    def change(self, **parts: Any) -> None:
        """Change parts of the setup; a model or thinking level applies from the next reply on."""
        # Wrappers that features put around the model also wrap the new model.
        current = parts
        if "model" in parts:
            current = {**parts, "model": replace_model(self.setup.model, parts["model"])}
        self._base, self.setup = self._base.change(**parts), self.setup.change(**current)
        self._compactor.use(self.setup)

    def note(self, message: BashExecutionMessage) -> None:
        """Add a command that the user ran to the conversation; while the run works, it is added at its end."""
        self._noted.append(message)
        if not self._is_open:
            self._write_notes()

    def abort(self, reason: Reason = Reason.USER) -> bool:
        """Stop at once; False if the run is idle."""
        return self._scope.cancel(reason)

    def branch(self, entry_id: str | None) -> None:
        """Continue from another entry of the session, None for its beginning. Raises RetinueError while working."""
        if self._is_open:
            raise RetinueError(f"run {self.setup.run_id!r} is working; stop it or wait for it")
        self.session.branch(entry_id)
        self._conversation.drop()
        self._compactor.begin()

    async def compact(self, instructions: str = "") -> bool:
        """Summarise the context now; False if there was nothing to gain or it failed."""
        return await self._compactor.run(self._conversation.talk, "manual", instructions=instructions)

    @property
    def outcome(self) -> Outcome:
        """How the last prompt ended, even if it was cut off."""
        return self._outcome

    @property
    def is_busy(self) -> bool:
        """Whether it works or waits for its children."""
        return self._is_open

    @property
    def is_answered(self) -> bool:
        """Whether the model has said all that it was asked for."""
        return not self._conversation.talk.messages or self._conversation.find_answer() is not None

    @property
    def is_still(self) -> bool:
        """Whether it does nothing by itself: it is idle, or waits for a usage limit or for runs that it started."""
        if self.limit_wait.is_waiting or not self._scope.is_active:
            return True
        open_tools = (self.setup.tools.get(name) for name in self._calls.values())
        return bool(self._calls) and all(tool is not None and tool.effect is Effect.DELEGATE for tool in open_tools)

    def hold_times(self) -> Callable[[], None]:
        """Let all time limits of the run stand still; returns a function that ends it."""
        self._scope.hold()
        return self._scope.release

    @property
    def is_retrying(self) -> bool:
        return self._is_open and self._attempts.is_waiting

    @property
    def messages(self) -> list[Message]:
        return self._conversation.talk.messages

    @property
    def cache_key(self) -> str:
        return self.setup.cache_key or self.session.id

    @property
    def head(self) -> SentHead:
        """What it sends before its messages."""
        if self.inherited is not None:
            return self.inherited.head
        if self._sent is None:
            return read_head(self.session, self.cache_key)
        sections, specs = self._sent
        return SentHead(sections, specs(), self.cache_key)

    def _mark(self, request: ModelRequest) -> None:
        request.marks, request.shared = choose_marks(self.inherited, request.messages)

    def _introduce(self, blocks: list[UserContent]) -> list[UserContent]:
        """Add to the first message what is special about this run; all before it is shared with other runs."""
        if not blocks or not self._is_new():
            return blocks
        preface, tag = self.setup.preface, self.setup.tag
        if preface and isinstance(blocks[0], TextContent):
            blocks = [TextContent(f"{preface}{blocks[0].text}"), *blocks[1:]]
        return [*blocks, TextContent(tag)] if tag else blocks

    def _is_new(self) -> bool:
        """Whether nothing was said to it yet."""
        if self.inherited is None or self.session.fork is None:
            return all(isinstance(message, SystemMessage) for message in self.messages)
        return self.session.context().entry_ids[-1:] == [self.session.fork["entryId"]]

    def _write_notes(self) -> None:
        noted, self._noted = self._noted, []
        for message in noted:
            self._conversation.add(message)

    async def _open(self, blocks: list[UserContent], stay: Stay | None) -> Outcome:
        if self._is_open:
            raise RetinueError(f"run {self.setup.run_id!r} is working; steer it or wait for it")
        self._is_open = True
        self._outcome, self._past = Outcome(Status.FAILED, Reason.CRASH), EarlierUsage()
        try:
            self._publish(RunStarted(run_id=self.setup.run_id, at_ms=self._clock.now_ms()))
            error = await self._enter()
            if isinstance(error, Ending):
                self._outcome = self._settle(error)
            else:
                began_s = self._scope.measure_s()
                self._outcome = await self._converse(self._introduce(blocks))
                if stay is not None:
                    self._outcome = await stay(self._outcome)
                await self._review(stay, began_s)
        finally:
            try:
                if self._around:
                    await self._leave()
            finally:
                self._is_open = False
                self.limit_wait.settle(self._outcome.reason)
                self._write_notes()
                end = RunFinished(run_id=self.setup.run_id, outcome=self._outcome, at_ms=self._clock.now_ms())
                self._publish(end)
        return self._outcome

    async def _review(self, stay: Stay | None, began_s: float) -> None:
        """Continue the run as long as reviewers send it back; they limit how often. The wall time is not extended."""
        while self.setup.reviewers:
            words = await self._scope.run(self._ask_reviewers())
            if isinstance(words, Reason):
                self._outcome = msgspec.structs.replace(self._outcome, status=Status.STOPPED, reason=words)
                return
            if not words:
                return
            spent_s = self._scope.measure_s() - began_s
            if isinstance(words, CustomMessage):
                self.inbox.steer(words)
            self._outcome = await self._converse([TextContent(words)] if isinstance(words, str) else [], spent_s)
            if stay is not None:
                self._outcome = await stay(self._outcome)

    async def _ask_reviewers(self) -> str | CustomMessage:
        for reviewer in self.setup.reviewers:
            if self._outcome.status is not Status.COMPLETED:
                break
            verdict = await reviewer.review(self._outcome)
            if isinstance(verdict, str | CustomMessage):
                return verdict
            self._outcome = verdict or self._outcome
        return ""

    async def _converse(self, blocks: list[UserContent], spent_s: float = 0) -> Outcome:
        """Work once under the run's limits; the outcome is kept even if a cancel interrupts it."""
        limits = self.setup.limits
        wall_s = None if limits.wall_s is None else max(0.0, limits.wall_s - spent_s)
        ending = Ending(Reason.CRASH)
        try:
            work = self._work(blocks)
            ended = await self._scope.run(work, wall_s=wall_s, idle_s=limits.idle_s, measure=self._measure)
            ending = ended if isinstance(ended, Ending) else Ending(ended)
        except asyncio.CancelledError:
            ending = Ending(Reason.PARENT, error="cancelled from outside")
            raise
        except Exception as error:
            ending = Ending(Reason.CRASH, error=f"{type(error).__name__}: {error}")
            raise
        finally:
            self._outcome = self._settle(ending)
            self._past = EarlierUsage(self._outcome.usage, self._outcome.turns, self._outcome.tool_calls)
        return self._outcome

    async def _enter(self) -> Ending | None:
        if not self._base.features:
            self.setup = self._base.hide_secrets()
            return None
        self._begin()
        entered = await self._scope.run(self._around.enter(self._base), wall_s=self._base.limits.wall_s)
        if isinstance(entered, Reason):
            return Ending(entered)
        if isinstance(entered, Ending):
            return entered
        self.setup = entered.hide_secrets()
        self._compactor = self._open_compactor()
        return None

    async def _leave(self) -> None:
        try:
            await self._around.leave(self._outcome, self._base.limits.cleanup_s)
        finally:
            self.setup, self._outcome = self._base, self._around.outcome

    async def _work(self, blocks: list[UserContent]) -> Ending:
        """Try until an attempt succeeds or another one makes no sense."""
        attempts, talk, strength = self._attempts, self._conversation.talk, 0
        self._begin()
        if self._taken_up is not None:
            (talk.usage, talk.turns, talk.tool_calls), self._taken_up = self._taken_up, None
        chars = sum(len(each.text) for each in blocks if isinstance(each, TextContent))
        ports, lack = self._fit_ports(chars)
        if not lack:
            self._window.tell_scaled(self.setup.compaction, self._compactor.head_tokens)
            await self._compactor.check(talk)
        if not blocks and not self.inbox and (answer := self._conversation.find_answer()) is not None:
            self._last_text = answer.text
            return Ending(Reason.LENGTH if answer.stop_reason == "length" else Reason.DONE, answer)
        opening: list[Message] = self._opening(blocks, ports)
        while True:
            attempts.begin()
            self._has_replied = False
            ending = await run_loop(talk, opening, ports)
            opening = []
            failure = ending.failure
            if failure is None:
                attempts.end()
                await self._compactor.check(talk)
                return ending
            if failure.kind == "overflow":
                strength = 0 if self._has_replied else strength
                attempts.end()
                self._conversation.omit_last()
                if self._window.learn(failure.message):
                    ports, lack = self._fit_ports(0 if self._has_replied else chars)
                    if lack:
                        return replace(ending, error=lack)
                    opening = self._opening([], ports)
                if await self._compactor.run(talk, "overflow", will_retry=True, strength=strength):
                    strength += 1
                    continue
                return ending
            if failure.kind == "budget":
                attempts.end()
                return replace(ending, reason=Reason.BUDGET)
            if is_limit(failure, self.setup.retry):
                # Refused in the middle of a reply: ask again, which waits.
                attempts.end()
                self._conversation.omit_last()
                continue
            plan = plan_retry(failure, attempts.failed + 1, self.setup.retry, self.setup.random)
            if isinstance(plan, GiveUp):
                attempts.end()
                attempts.give_up(failure.message)
                return replace(ending, error="; ".join(filter(None, (ending.error, plan.reason))))
            attempts.schedule(plan.delay_s, self.setup.retry.max_retries, ending.error)
            with self._scope.pause_idle():
                await self._clock.sleep(plan.delay_s)
            self._conversation.omit_last()

    def _measure(self) -> int:
        """Return a number that changes with each part of a reply, to restart the idle time."""
        return 0 if self.setup.limits.strict_idle else self._current.size

    def _hear_piece(self, delta: Delta) -> None:
        if not self.setup.limits.strict_idle:
            self._scope.touch()

    def _open_compactor(self) -> Compactor:
        return Compactor(
            self.setup,
            self.session,
            self.journal,
            self._publish,
            self._clock,
            self._hear_piece,
            lambda: self._window.tokens,
            self.limit_wait.ask,
        )

    def _fit_ports(self, chars: int = 0) -> tuple[LoopPorts, str]:
        """Return the loop's ports for the current window, and why a message of `chars` characters does not fit."""
        ports = self._ports()
        head = self._compactor.head_tokens = count_head(ports.system, ports.tool_specs())
        lack = self._window.explain(head, chars)
        if lack:
            ports = msgspec.structs.replace(ports, model=UnaskedModel(self.setup.model.info, lack))
        return ports, lack

    def _begin(self) -> None:
        self._conversation.talk.begin()
        self._last_text, self._attempts.failed = "", 0
        self._calls.clear()

    def _opening(self, blocks: list[UserContent], ports: LoopPorts) -> list[Message]:
        """Return the first messages: the system prompt if it is new or changed, then the user's message."""
        setup, context, now_ms = self.setup, self.session.context(), self._clock.now_ms()
        info = setup.model.info
        if context.model != (info.provider, info.id):
            self.journal.write(lambda: self.session.append_model_change(info.provider, info.id))
        if context.thinking != setup.thinking:
            self.journal.write(lambda: self.session.append_thinking_level(setup.thinking))
        known = [str(tool.get("name")) for tool in context.tools]
        head, specs = self._fit_prompt(), ports.tool_specs()
        change = declare_change(context.sections, head.sections, known, specs, now_ms)
        if not setup.name:
            offered = {spec.name for spec in specs}
            self._window.tell_short(head.left_out, [name for name in setup.tools if name not in offered])
        if info.image_refusal and has_image([*self._conversation.talk.messages, UserMessage(blocks, now_ms)]):
            self._conversation.tell_losses([f"images are left out: {info.image_refusal}"])
        said: list[Message] = [UserMessage(blocks, now_ms)] if blocks else []
        if blocks and self.inherited is not None and self._is_new():
            # The prompt is its parent's, so its own instructions come as a message.
            said.insert(0, UserMessage([TextContent(render_prompt(setup.sections))], now_ms))
        return said if change is None else [change, *said]

    def _ports(self) -> LoopPorts:
        setup, window = self.setup, self._window.tokens
        calls = CallPorts(
            run_id=setup.run_id,
            tools=setup.tools,
            context=ToolContext(
                cwd=setup.cwd,
                run_id=setup.run_id,
                run_name=setup.name,
                environment=setup.build_environment(self.session.path),
                spill_dir=setup.spill_dir,
                redact=setup.redact or keep_data,
                confinement=setup.confinement,
                find_territory=setup.find_territory,
            ),
            publish=self._publish,
            clock=self._clock,
            hooks=setup.hooks,
            pause_idle=self._scope.pause_idle,
            refusals={**self._refuse_inherited(), **setup.refusals},
            tool_s=setup.limits.tool_s,
            limit=self._scope.limit,
            max_chars=bound_result(window, MAX_RESULT_CHARS),
            watched=lambda: self.bus.is_watched,
            redact=setup.redact or keep_data,
            find_stop=lambda: self._scope.reason,
        )
        sections = self._fit_prompt().sections
        specs = FittedSpecs(setup.tools, setup.redact or keep_data, window)
        self._sent = sections, specs
        inherited = self.inherited
        return LoopPorts(
            run_id=setup.run_id,
            model=self._current,
            system=render_prompt(sections),
            tool_specs=specs if inherited is None else lambda: inherited.head.specs,
            thinking=setup.thinking,
            session_id=self.cache_key if inherited is None else inherited.head.cache_key,
            publish=self._publish,
            watched=lambda: self.bus.is_watched,
            run_calls=lambda asked, faults: run_calls(asked, faults, calls),
            inlet=self.inbox,
            judge=lambda talk: judge_turn(setup.limits, talk.turns, talk.usage, wrapping_up=talk.wrapping_up),
            prepare=self._compactor.check,
            clock=self._clock,
        )

    def _fit_prompt(self) -> FittedPrompt:
        if self.inherited is not None:
            return FittedPrompt(self.inherited.head.sections)
        return fit_sections(self.setup.sections, self._window.tokens)

    def _refuse_inherited(self) -> dict[str, str]:
        """Return error texts for tools that are listed because its parent has them, and that it may not use."""
        if self.inherited is None:
            return {}
        own = [spec.name for spec in self.inherited.head.specs if spec.name in self.setup.tools]
        listed = f"Available: {', '.join(own) or 'none'}"
        text = "{} was not run: this agent may not use it. It is listed because the agent that started you has it. {}"
        names = [spec.name for spec in self.inherited.head.specs]
        return {name: text.format(name, listed) for name in names if name not in self.setup.tools}

    def _settle(self, ending: Ending) -> Outcome:
        if ending.reply is None:
            self._attempts.cut_off()
            self._conversation.load()
        return self._judge(ending)

    def _judge(self, ending: Ending) -> Outcome:
        talk = self._conversation.talk
        status, error = judge_ending(ending)
        return Outcome(
            status=status,
            reason=ending.reason,
            text=self._last_text,
            error=error,
            usage=self._past.usage + talk.usage,
            turns=self._past.turns + talk.turns,
            tool_calls=self._past.tool_calls + talk.tool_calls,
            session_file=str(self.session.path or ""),
        )

    def _warn(self, text: str) -> None:
        self._publish(Warned(run_id=self.setup.run_id, text=text))

    def _publish(self, event: Event) -> None:
        kind = type(event)
        if not self.setup.limits.strict_idle or kind in _FINISHED:
            self._scope.touch()
        if kind is AttemptStarted:
            self._attempts.is_open = True
        elif kind is AttemptEnded:
            self._attempts.is_open = False
        elif kind is ToolStarted:
            self._calls[event.call_id] = event.name  # type: ignore[union-attr]
        elif kind is ToolFinished:
            self._calls.pop(event.result.tool_call_id, None)  # type: ignore[union-attr]
        self.bus.publish(event)
        if kind is MessageFinished and type(event.message) is AssistantMessage:  # type: ignore[union-attr]
            self._note_reply(event.message)  # type: ignore[union-attr]

    def _note_reply(self, message: AssistantMessage) -> None:
        text = message.text
        if text.strip():
            self._last_text = text
        if message.stop_reason not in ("error", "aborted"):
            self._has_replied = True
            self._attempts.succeed()

    def _tell_queue(self, steering: list[str], follow_up: list[str]) -> None:
        self.bus.publish(Steered(run_id=self.setup.run_id, steering=steering, follow_up=follow_up))


def _to_blocks(content: str | Sequence[UserContent]) -> list[UserContent]:
    return [TextContent(content)] if isinstance(content, str) else list(content)


async def contain(work: Awaitable[Outcome]) -> Outcome:
    """Turn every exception into a failed outcome; only a cancel is raised."""
    try:
        return await work
    except RetinueError as error:
        return Outcome(Status.FAILED, Reason.ERROR, error=str(error))
    except Exception as error:
        return Outcome(Status.FAILED, Reason.CRASH, error=f"{type(error).__name__}: {error}")
