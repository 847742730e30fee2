"""A run in a process of its own: starts the process, reads its output, applies limits and judges the result.

Other components treat it as any other run. MUST NOT know surfaces, nor open the session that the child writes.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from retinue.core.clock import Clock
from retinue.core.environment import BUDGET_FD, LIMITS_DIR, QUESTION_FD
from retinue.core.errors import RetinueError, quote
from retinue.core.events import AttemptStarted, MessageFinished, Warned
from retinue.core.messages import THINKING_LEVELS, TextContent, UserContent, UserMessage, join_text
from retinue.core.model import ModelInfo
from retinue.core.run import Outcome, Reason, Status
from retinue.core.tool import SharedTool
from retinue.core.tool_table import ASK
from retinue.engine.clock import make_uuid
from retinue.engine.external.budget_socket import ProcessReservations, open_draws
from retinue.engine.external.command_line import OURS, ProcessPurpose
from retinue.engine.external.events import EventPublisher
from retinue.engine.external.input_files import open_input_files
from retinue.engine.external.output import Stream
from retinue.engine.external.program import ProcessContext
from retinue.engine.external.question_socket import open_asking
from retinue.engine.external.result import ProcessReport, list_calls, read_usage
from retinue.engine.loop import Ending
from retinue.engine.prompt import render_prompt
from retinue.engine.run_config import RemoteRequest, Runner
from retinue.engine.runner import LiveRun
from retinue.engine.scope import start_beside
from retinue.engine.setup import RunSetup
from retinue.models.gate import Passage
from retinue.models.registry import OutOfReach
from retinue.sessions.files import make_private
from retinue.sessions.log import Session
from retinue.tools.ask_parent import Ask, ask_nobody
from retinue.tools.process import Exit, ProcessCommand, run_process
from retinue.tools.process_tree import TreeProbe

LIMIT_STATUS = 75
"""Exit status of our program when it has ended at a usage limit."""
GRACE_S = 5.0
"""Seconds for a child that exceeded a limit to exit."""
HURRY_S = 0.3
"""Seconds for a child to exit if a user or parent waits for it."""
MAX_ERROR_CHARS = 16_000
ACTIVITY = frozenset({"message_end", "tool_result_end", "turn_end"})
"""Records that restart the idle time; a child can print others forever."""
_ANSWERED = ("stop", "toolUse", "length")
_TREES = TreeProbe(kind="supervisor")
_CONFINED: dict[Runner, str] = {
    "process": "its own process confines its commands by the same settings",
    "pi": "none: its commands are started by a pi",
}


class ExternalRun(LiveRun):
    """The local side of a run in another process. Its own session is in memory and holds only the task."""

    def __init__(
        self, setup: RunSetup, post: ProcessPurpose, process_context: ProcessContext, *, clock: Clock, ask: Ask
    ) -> None:
        memory = Session.create(cwd=setup.cwd, directory=None, clock=clock, new_id=make_uuid)
        super().__init__(setup, memory, clock=clock)
        self._post = post
        self._process_context = process_context
        self._ask = ask
        self._said: list[str] = []
        self._has_begun = False
        self._exit_code: int | None = None
        self._draws: ProcessReservations | None = None
        """What our child process has reserved of the budget; None for pi, whose usage is counted after each reply."""
        self._report = ProcessReport()
        self._refused: tuple[str, int] | None = None
        """The usage limit that the child has reached: the provider, and until when in milliseconds."""
        self._passage: Passage | None = None
        self._sharing: asyncio.Task[None] | None = None
        """Tells other processes whether the provider accepts requests."""
        self._model = setup.model
        """The model that the child asks: its own, or a fallback model."""
        self._stream = self._open_stream()

    @property
    def hears(self) -> bool:
        """False once the process has started: it receives nothing but its task."""
        return not self._has_begun

    def steer(self, content: str | Sequence[UserContent]) -> None:
        """Add a text to the task. Raises RetinueError once the process has started."""
        if self._has_begun:
            raise RetinueError(f"run {self.setup.run_id!r} is a process of its own and accepts no messages")
        self._said.append(join_text(content))

    async def _work(self, blocks: list[UserContent]) -> Ending:
        self._begin()
        self._report, self._stream = ProcessReport(), self._open_stream()
        self._has_begun, self._exit_code = True, None
        if self._is_spent():
            return Ending(Reason.BUDGET, error="the budget is spent")
        text = "\n\n".join((join_text(blocks), *self._said))
        self._said = []
        run_id = self.setup.run_id
        self._taken_up = None
        self._publish(AttemptStarted(run_id=run_id))
        if text:
            said = UserMessage([TextContent(text)], self._clock.now_ms())
            self._publish(MessageFinished(run_id=run_id, message=said))
        try:
            while (ended := await self._pass_gate(text)) is None:
                text = ""  # the child has its task in its session
        except (OSError, ValueError, RetinueError) as error:
            name = "pi" if self._post.remote_request.runner == "pi" else "retinue"
            return Ending(Reason.ERROR, error=f"Failed to spawn {name}: {error}")
        return self._conclude(ended)

    async def _pass_gate(self, text: str) -> Exit | None:
        """Start the process as soon as its provider accepts requests; None if it has ended at a usage limit.

        Without a task it continues the work in its session.
        """
        self._refused = None
        gates, runner = self.setup.gates, self._post.remote_request.runner
        # A process of our own that is told of our limits passes the gates itself.
        claims = runner == "pi" or gates is None or not gates.covers_children
        self._model, self._passage = await self.limit_wait.choose(self.setup.model, claims=claims)
        try:
            async with AsyncExitStack() as sockets:
                ended = await self._run(text, await self._open_sockets(sockets))
            if ended.code == LIMIT_STATUS and self._refused is not None:
                passage, self._passage = self._passage or Passage(), None
                await self.limit_wait.close(passage, self._model.info, *self._refused)
                return None
            self._settle_passage(is_answered=not ended.signal_name)
            return ended
        finally:
            self._settle_passage(is_answered=False)
            if self._sharing is not None:
                await self._sharing

    def _settle_passage(self, *, is_answered: bool = True) -> None:
        """Tell the other runs that the provider of the child accepts requests, or that it was not asked."""
        passage, self._passage = self._passage, None
        if passage is None:
            return
        info = self._model.info
        if is_answered:
            self.limit_wait.leave(passage, info, None)
        else:
            self.limit_wait.give_up(passage)
        self._sharing = start_beside(self.limit_wait.share(passage, info, is_known=is_answered))

    async def _open_sockets(self, stack: AsyncExitStack) -> dict[str, int]:
        """Open what the process needs of this one; returns the descriptors by the variables that name them."""
        asked, descriptors = self._post.remote_request, dict[str, int]()
        if asked.runner == "pi":
            return descriptors
        if asked.lease.is_limited:
            self._draws, descriptors[BUDGET_FD] = await stack.enter_async_context(open_draws(asked.lease))
        if ASK in asked.rights.tools:
            asking = open_asking(partial(self._ask, self.setup.run_id))
            descriptors[QUESTION_FD] = await stack.enter_async_context(asking)
        return descriptors

    async def _run(self, text: str, descriptors: dict[str, int]) -> Exit:
        setup, post, process_context = self.setup, self._post, self._process_context
        if self._model is not setup.model:
            setup, post = setup.change(model=self._model), replace(post, model=self._model.info.ref)
        remote_request = post.remote_request
        program = process_context.find_command(remote_request.runner, setup.cwd)
        tools, missing = post.list_tools(setup, process_context)
        for reason in missing:
            warning = f"agent {remote_request.definition.name}: {reason}; the agent runs without it"
            self._publish(Warned(run_id=setup.run_id, text=warning))
        if remote_request.session_file:
            make_private(Path(remote_request.session_file).parent)
        # Tools of pi with these names are not ours, and get none of their keys.
        ours = () if remote_request.runner == "pi" else tools
        marks = post.render_marks(setup) | {name: str(number) for name, number in descriptors.items()}
        if setup.gates is not None and setup.gates.folder is not None:
            marks[LIMITS_DIR] = str(setup.gates.folder)
        environment = process_context.build_environment(setup.model.info, marks, setup.cwd, ours)
        with open_input_files(render_prompt(setup.sections), post.render_task(text)) as input_files:
            flags = post.render_flags(setup, tools, input_files.prompt, trusted=process_context.trusted)
            words = input_files.words if text else ()
            return await run_process(
                ProcessCommand([*program, *flags, *words], str(setup.cwd), environment, tuple(descriptors.values())),
                on_output=self._stream.feed,
                on_error=self._stream.feed_error,
                tree=await _TREES.find(),
                find_grace_s=self._find_grace_s,
            )

    def _open_stream(self) -> Stream:
        # Not with `_publish`, which restarts the idle time.
        telling = EventPublisher(self.setup.run_id, self.bus.publish, self._clock)

        def take(record: dict[str, Any]) -> None:
            self._report.add(record)
            if str(record.get("type")) in ACTIVITY:
                self._scope.touch()
            telling.tell(record)
            self._share(record)
            self._note_limit(record)
            self._check(record)

        def show(kind: str, line: bytes) -> None:
            if self.bus.is_watched:
                telling.tell_piece(kind, line)

        return Stream(take, show)

    def _share(self, record: dict[str, Any]) -> None:
        """Tell our side of a tool about the calls of the child."""
        message = record.get("message")
        if record.get("type") != "message_end" or not isinstance(message, dict) or message.get("role") != "assistant":
            return
        for call in list_calls(message):
            tool = self.setup.tools.get(str(call.get("name")))
            if isinstance(tool, SharedTool):
                tool.hear(call.get("arguments"))

    def _note_limit(self, record: dict[str, Any]) -> None:
        """Remember the usage limit that the child has reached; its first reply shows that there is none."""
        until_ms, message = record.get("until"), record.get("message")
        if record.get("type") == "subagents:waiting" and isinstance(until_ms, int):
            self._refused = str(record.get("provider")), until_ms
        elif record.get("type") == "turn_end" and isinstance(message, dict) and message.get("stopReason") in _ANSWERED:
            self._settle_passage()

    def _check(self, record: dict[str, Any]) -> None:
        """Count what a reply used, and stop the child if a limit is exceeded."""
        message, limits = record.get("message"), self.setup.limits
        if record.get("type") != "message_end" or not isinstance(message, dict) or message.get("role") != "assistant":
            return
        if self._draws is None and (used := read_usage(message.get("usage"))) is not None:
            self._post.remote_request.lease.settle(0, 0.0, used)
        if self._draws is None and self._is_spent() and message.get("stopReason") == "toolUse":
            self._scope.cancel(Reason.BUDGET)
        elif limits.max_turns is not None and self._report.replies > limits.max_turns + limits.grace_turns:
            self._scope.cancel(Reason.TURN_LIMIT)

    def _is_spent(self) -> bool:
        tokens, usd = self._post.remote_request.lease.left()
        return tokens <= 0 or usd <= 0

    def _find_grace_s(self) -> float:
        return HURRY_S if self._scope.reason in (None, Reason.USER, Reason.PARENT) else GRACE_S

    def _conclude(self, ended: Exit) -> Ending:
        stream, report = self._stream, self._report
        if not ended.stopped:
            stream.close()
        if stream.exceeded:
            error = f"Subagent child output exceeded {stream.exceeded} and was stopped."
            return Ending(Reason.OUTPUT_LIMIT, error=error)
        self._exit_code = ended.code
        if ended.code == 0 and not report.is_broken:
            return Ending(Reason.LENGTH if report.last_stop == "length" else Reason.DONE)
        if report.finalized is not None:
            return Ending(Reason.DONE)
        if self._draws is not None and self._draws.was_refused:
            return Ending(Reason.BUDGET, error=report.error)
        said = stream.errors[-MAX_ERROR_CHARS:]
        how = f"its process was killed by {ended.signal_name}" if ended.signal_name else ""
        how = how or f"its process exited with status {ended.code}"
        told = report.error or ("" if said else how)
        error = "\n".join(filter(None, (told, how if ended.signal_name and told != how else "", said)))
        return Ending(Reason.CRASH if ended.signal_name else Reason.ERROR, error=error)

    def _judge(self, ending: Ending) -> Outcome:
        report, past, reason = self._report, self._past, ending.reason
        text = report.partial or self._stream.plain
        if reason in (Reason.DONE, Reason.LENGTH):
            status, text = Status.COMPLETED, report.render(self._stream.plain)
        elif reason in (Reason.ERROR, Reason.CRASH, Reason.OUTPUT_LIMIT):
            status = Status.FAILED
        else:
            status = Status.INTERRUPTED if reason is Reason.PARENT else Status.STOPPED
        return Outcome(
            status=status,
            reason=reason,
            text=text,
            error=ending.error,
            usage=past.usage + report.usage,
            turns=past.turns + (report.turns or report.replies),
            tool_calls=past.tool_calls + report.tool_calls,
            session_file=self._post.remote_request.session_file,
            sandbox=_CONFINED[self._post.remote_request.runner],
            finalized=report.finalized,
            exit_code=self._exit_code,
        )


class ProcessStarter:
    """Lets the runs of one main agent work in processes of their own."""

    def __init__(self, process_context: ProcessContext, clock: Clock, ask: Ask = ask_nobody) -> None:
        """`ask` takes the questions of the runs."""
        self._process_context = process_context
        self._clock = clock
        self._ask = ask

    def send(self, setup: RunSetup, remote_request: RemoteRequest) -> LiveRun:
        """Return the local side of a run in a process of its own. Raises RetinueError if pi cannot use the model."""
        wanted, level = self._name_model(remote_request, setup.model.info)
        info = setup.model.info
        if remote_request.runner == "pi" and wanted in ("", info.ref) and info.api in OURS:
            raise RetinueError(
                f"agent {remote_request.definition.name}: runner pi cannot use {quote(info.ref)}, a model of retinue; "
                "name a model in the agent's file that pi knows, or choose another runner"
            )
        said = (remote_request.request.thinking, remote_request.definition.thinking, level)
        thinking = setup.thinking if any(word in THINKING_LEVELS for word in said) else ""
        purpose = ProcessPurpose(remote_request, wanted, thinking)
        return ExternalRun(setup, purpose, self._process_context, clock=self._clock, ask=self._ask)

    def _name_model(self, remote_request: RemoteRequest, inherited: ModelInfo) -> tuple[str, str | None]:
        named, is_pi = remote_request.named, remote_request.runner == "pi"
        if isinstance(named.failure, OutOfReach):
            # Always passed on: pi without an option would choose any model.
            return "" if is_pi and inherited.api in OURS else inherited.ref, None
        if named.found is None:
            # A model that is not available here; pi may know providers that we do not.
            return named.name if is_pi and named.is_choice and "/" in named.name else "", None
        return named.found.info.ref, named.found.thinking
