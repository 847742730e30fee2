"""Runs the tool calls of one reply concurrently: validation, hooks, limits, results in source order.

MUST NOT know particular tools, sessions or surfaces. Whatever a tool does, each call gets exactly one result.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import UNSET, Struct, structs

from retinue.core.clock import Clock
from retinue.core.errors import ToolFailed, quote
from retinue.core.events import CallChanged, Event, MessageFinished, ToolFinished, ToolProgress, ToolStarted, Warned
from retinue.core.messages import TextContent, ToolCall, ToolResultMessage, UserContent
from retinue.core.run import Reason
from retinue.core.schema import fit_arguments
from retinue.core.tool import Amendment, Refusing, Tool, ToolContext, ToolResult, find_code
from retinue.engine.scope import run_together
from retinue.sessions.summary import shorten

MAX_RESULT_CHARS = 400_000
"""Maximum text of one result, for tools that do not limit their output themselves."""


def keep_data(value: Any) -> Any:
    """The `redact` function for when there are no secrets."""
    return value


Answer: TypeAlias = ToolResult | Amendment | None


class CallHook(Protocol):
    """Called before and after every tool call. MUST NOT raise."""

    async def before(self, call: ToolCall, tool: Tool) -> Answer:
        """Return a result to answer the call without the tool, an Amendment to change its arguments, or None."""
        ...

    async def after(self, call: ToolCall, tool: Tool, result: ToolResult) -> ToolResult: ...


@runtime_checkable
class CancellableTool(Protocol):
    """A tool with its own message for a cancelled call, because a cancel leaves nothing half done."""

    def abandon(self) -> ToolResult:
        """Return the result of a cancelled call. MUST NOT raise."""
        ...


class CallPorts(Struct, frozen=True):
    """What a batch needs from its run."""

    run_id: str
    tools: Mapping[str, Tool]
    context: ToolContext
    publish: Callable[[Event], None]
    clock: Clock
    hooks: Sequence[CallHook] = ()
    pause_idle: Callable[[], AbstractContextManager[None]] = nullcontext
    """Suspends the idle time while hooks are asked, which may wait for a person."""
    refusals: Mapping[str, str] = {}
    """Error texts for tools that are known but not available; other names are unknown."""
    tool_s: float | None = None
    limit: Callable[[float], AbstractAsyncContextManager[Any]] = asyncio.timeout
    """Raises TimeoutError in its body after this time."""
    max_chars: int = MAX_RESULT_CHARS
    """Maximum text of one result."""
    watched: Callable[[], bool] = lambda: True
    redact: Callable[[Any], Any] = keep_data
    """Removes secrets from texts and plain data."""
    find_stop: Callable[[], Reason | None] = lambda: None
    """Returns why the run is being stopped; None if it is not, or not by a decision of its own."""


class Batch(Struct, frozen=True):
    """The results of one reply's calls, in source order."""

    results: list[ToolResultMessage]
    refusal: tuple[str, str] | None = None
    """Tool and error, if every call was refused with the same error and the error has no code."""
    ends_run: bool = False
    """Whether a call asked to end the run."""


class _Refused(Exception):
    """The call cannot be run; the text, or the tool's own result, says why."""

    def __init__(self, text: str, result: ToolResult | None = None) -> None:
        super().__init__(text)
        self.result = result or ToolResult.of(text, {}, is_error=True)


async def run_calls(calls: Sequence[ToolCall], faults: Mapping[str, str], ports: CallPorts) -> Batch:
    """Run all calls. On cancel, calls without a result get one that says so, then the cancel is raised."""
    batch = _Running(calls, ports)
    for call in calls:
        ports.publish(ToolStarted(run_id=ports.run_id, call_id=call.id, name=call.name, arguments=call.arguments))
    try:
        await run_together(
            [batch.answer(index, call, faults.get(call.id)) for index, call in enumerate(calls)],
            lambda index: ports.publish(
                Warned(run_id=ports.run_id, text=f"tool {calls[index].name} does not stop; continuing without it")
            ),
        )
    except asyncio.CancelledError:
        batch.abandon()
        raise
    finally:
        batch.tell_messages()
    return Batch(batch.in_order(), batch.find_refusal(), batch.ends_run)


class _Running:
    def __init__(self, calls: Sequence[ToolCall], ports: CallPorts) -> None:
        self._calls = calls
        self._ports = ports
        self._results: list[ToolResultMessage | None] = [None] * len(calls)
        self._in_order = [False] * len(calls)
        self._refusals: dict[int, tuple[str, str]] = {}
        self._cut: dict[str, tuple[float, Callable[[str], ToolResult]]] = {}
        """When a call began, and what renders its result so far."""
        self.ends_run = False

    async def answer(self, index: int, call: ToolCall, fault: str | None) -> None:
        """Produce the result of one call. Raises only a cancel."""
        clock = self._ports.clock
        try:
            tool, arguments = self._prepare(call, fault)
        except _Refused as error:
            if not find_code(error.result.details):
                self._refusals[index] = (call.name, self._ports.redact(str(error)))
            self._settle(index, error.result, None)
            return
        begun_s = clock.steady_s()
        result = await self._run(call, tool, arguments)
        self.ends_run = self.ends_run or result.ends_run
        self._settle(index, result, round((clock.steady_s() - begun_s) * 1000))

    def find_refusal(self) -> tuple[str, str] | None:
        kinds = set(self._refusals.values())
        return kinds.pop() if len(kinds) == 1 and len(self._refusals) == len(self._calls) else None

    def abandon(self) -> None:
        """Add results for unfinished calls: their effect is unknown and the model must know that."""
        for index, result in enumerate(self._results):
            if result is None:
                self._settle(index, self._describe_loss(self._calls[index]), None)

    def _describe_loss(self, call: ToolCall) -> ToolResult:
        tool = self._ports.tools.get(call.name)
        if call.id in self._cut:
            begun_s, render = self._cut[call.id]
            by = " by the user" if self._ports.find_stop() is Reason.USER else ""
            return render(f"interrupted{by} after {self._ports.clock.steady_s() - begun_s:.1f} s")
        if isinstance(tool, CancellableTool):
            return tool.abandon()
        text = "The call was interrupted before it finished; its effect is unknown."
        return ToolResult.of(text, {}, is_error=True)

    def tell_messages(self) -> None:
        for result in self.in_order():
            self._ports.publish(MessageFinished(run_id=self._ports.run_id, message=result))

    def in_order(self) -> list[ToolResultMessage]:
        return [result for result in self._results if result is not None]

    def _prepare(self, call: ToolCall, fault: str | None) -> tuple[Tool, dict[str, Any]]:
        tool = self._ports.tools.get(call.name)
        if tool is None:
            refusal = self._ports.refusals.get(call.name)
            raise _Refused(refusal or _name_unknown(call.name, list(self._ports.tools)))
        if fault is not None:
            raise _Refused(f"{call.name} was not run: {fault}")
        if tool.spec.checks_itself:
            return tool, call.arguments
        arguments, problems = fit_arguments(call.arguments, tool.spec.parameters)
        if problems:
            text = f"{call.name} was not run: " + "; ".join(problems[:8])
            raise _Refused(text, tool.refuse(call.arguments, text) if isinstance(tool, Refusing) else None)
        return tool, arguments

    async def _run(self, call: ToolCall, tool: Tool, arguments: dict[str, Any]) -> ToolResult:
        ports = self._ports
        facts: dict[str, Any] = {}
        try:
            with ports.pause_idle():
                answer = await ask_hooks(call, tool, ports.hooks)
            if isinstance(answer, Amendment):
                arguments, facts = answer.arguments, answer.describe()
                call = structs.replace(call, arguments=arguments)
                self._tell_change(call, answer.by)
            elif answer is not None:
                return answer
            begun_s = ports.clock.steady_s()
            context = structs.replace(
                ports.context,
                call_id=call.id,
                progress=self._progress(call),
                on_cut=lambda render: self._cut.update({call.id: (begun_s, render)}),
            )
            limit_s = None if tool.spec.limits_itself else ports.tool_s
            result = await self._contain(tool.call(arguments, context), call, limit_s)
            with ports.pause_idle():
                for hook in ports.hooks:
                    result = await hook.after(call, tool, result)
        except Exception as error:
            result = _tell_unexpected(call.name, error)
        bounded = _bound(result, call.name, ports.max_chars)
        return bounded.note(facts) if facts else bounded

    def _tell_change(self, call: ToolCall, by: Sequence[str]) -> None:
        ports, arguments = self._ports, self._ports.redact(call.arguments)
        ports.publish(
            CallChanged(run_id=ports.run_id, call_id=call.id, name=call.name, arguments=arguments, by=list(by))
        )

    async def _contain(self, work: Awaitable[ToolResult], call: ToolCall, limit_s: float | None) -> ToolResult:
        """Return a result even if the tool fails, so that hooks see failures too."""
        try:
            return await self._limited(work, call, limit_s)
        except ToolFailed as error:
            return ToolResult.of(str(error), {}, is_error=True)
        except Exception as error:
            return _tell_unexpected(call.name, error)

    async def _limited(self, work: Awaitable[ToolResult], call: ToolCall, limit_s: float | None) -> ToolResult:
        if limit_s is None:
            return await work
        try:
            async with self._ports.limit(limit_s):
                return await work
        except TimeoutError as error:
            reason = f"stopped after {limit_s:g} s, the limit for one tool call"
            if call.id in self._cut:
                return self._cut[call.id][1](reason)
            raise ToolFailed(f"{call.name} was {reason}") from error

    def _progress(self, call: ToolCall) -> Callable[[ToolResult], None]:
        def tell(partial: ToolResult) -> None:
            if self._ports.watched():
                self._ports.publish(
                    ToolProgress(
                        run_id=self._ports.run_id,
                        call_id=call.id,
                        name=call.name,
                        arguments=call.arguments,
                        content=self._redact(partial.content),
                        details=self._ports.redact(partial.details),
                    )
                )

        return tell

    def _redact(self, content: Sequence[UserContent]) -> list[UserContent]:
        redact = self._ports.redact
        return [TextContent(redact(block.text)) if isinstance(block, TextContent) else block for block in content]

    def _settle(self, index: int, result: ToolResult, duration_ms: int | None) -> None:
        if self._results[index] is not None:
            return  # a call that ignored its cancel returned late
        call = self._calls[index]
        message = ToolResultMessage(
            tool_call_id=call.id,
            tool_name=call.name,
            content=self._redact(result.content),
            details={} if result.is_error and result.details is UNSET else self._ports.redact(result.details),
            is_error=result.is_error,
            timestamp=self._ports.clock.now_ms(),
        )
        self._results[index] = message
        # Results are in order only while no earlier call is unfinished; the others follow as messages at the end.
        is_next = self._in_order[index] = all(self._in_order[:index])
        self._ports.publish(
            ToolFinished(run_id=self._ports.run_id, result=message, duration_ms=duration_ms, in_order=is_next)
        )


async def ask_hooks(call: ToolCall, tool: Tool, hooks: Sequence[CallHook]) -> Answer:
    """Ask all hooks about a call; return a result that replaces it, changed arguments, or None.

    After a change all other hooks are asked again about the changed call; a hook is not asked about its own change. If
    a hook changes the call a second time, the hooks disagree and the call is refused.
    """
    made: Amendment | None = None
    at, changer, changers = 0, -1, set[int]()
    while at < len(hooks):
        answer = await hooks[at].before(call, tool) if at != changer else None
        if isinstance(answer, ToolResult):
            return answer if made is None else answer.note(made.describe())
        if answer is None or answer.arguments == call.arguments:
            at += 1
            continue
        by = (*(made.by if made else ()), *answer.by)
        arguments, problems = fit_arguments(answer.arguments, tool.spec.parameters)
        if problems:
            text = f"{', '.join(map(quote, answer.by))} changed its arguments: {'; '.join(problems[:8])}"
            return ToolResult.of(f"{call.name} was not run: {text}", {}, is_error=True)
        if at in changers:
            return ToolResult.of(f"{call.name} was not run: {describe_hook_conflict(by)}", {}, is_error=True)
        call, made = structs.replace(call, arguments=arguments), Amendment(arguments, by)
        changers.add(at)
        at, changer = 0, at
    return made


def describe_hook_conflict(by: Sequence[str]) -> str:
    return f"hooks do not agree about its arguments ({', '.join(map(quote, dict.fromkeys(by)))})"


def _name_unknown(name: str, known: list[str]) -> str:
    if not name.strip():
        return f"The call names no tool. Available: {', '.join(known) or 'none'}"
    from difflib import get_close_matches  # slow import, needed for mistakes only

    close = get_close_matches(name.lower(), [each.lower() for each in known], 1, 0.6)
    hint = next((f" Did you mean {each!r}?" for each in known if close and each.lower() == close[0]), "")
    return f"Tool {quote(name)} not found.{hint} Available: {', '.join(known) or 'none'}"


def _tell_unexpected(name: str, error: Exception) -> ToolResult:
    text = f"{name} failed unexpectedly: {type(error).__name__}: {quote(str(error), 500)}"
    return ToolResult.of(text, {}, is_error=True)


def _bound(result: ToolResult, name: str, most: int) -> ToolResult:
    """Check the type of a result and truncate it to `most` characters."""
    if not isinstance(result, ToolResult):
        return ToolResult.of(f"{name} returned {quote(type(result).__name__)} instead of a result", {}, is_error=True)
    total = sum(len(block.text) for block in result.content if isinstance(block, TextContent))
    if total <= most:
        return result
    left, content = most, list[UserContent]()
    for block in result.content:
        if isinstance(block, TextContent):
            content.append(TextContent(shorten(block.text, left)))
            left = max(0, left - len(block.text))
        else:
            content.append(block)
    note = f"\n[{name} returned {total} characters; cut to {most}: ask for less]"
    return ToolResult([*content, TextContent(note)], result.details, result.is_error, result.ends_run)
