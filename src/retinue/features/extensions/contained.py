"""Wrappers around what an extension registers, so that its errors follow the engine's rules.

A failing tool returns an error result, a failing guard denies, a failing observer changes nothing, a failing model
returns a failed reply. Must not know how extensions are found or loaded.
"""

import inspect
import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import msgspec
from msgspec import Struct, structs

from retinue.core.errors import RetinueError, ToolFailed, quote
from retinue.core.messages import ToolCall
from retinue.core.model import Draft, Failure, Model, ModelInfo, ModelRequest, Reply, ToolSpec
from retinue.core.run import Outcome
from retinue.core.tool import Amendment, Effect, Tool, ToolContext, ToolResult
from retinue.engine.calls import Answer
from retinue.engine.setup import Feature, RunSetup
from retinue.features.extensions.foreign import (
    ForeignFailed,
    await_foreign,
    await_limited,
    call_foreign,
    call_in_thread,
    find_place,
)
from retinue.features.hooks.hook_table import Hook
from retinue.features.hooks.points import ANYWHERE, DECIDED, LIMIT_S, HookFailed, HookLate, Kind

Function = Callable[..., Any]


class ExtensionTool(Struct, frozen=True):
    """A tool of an extension, as it was when registered."""

    extension: str
    path: str
    """The extension's file, for messages."""
    spec: ToolSpec
    effect: Effect
    hint: str
    guidelines: tuple[str, ...]
    run: Function
    """Called with the arguments and the context."""
    deferred: bool = False
    """Hidden from the model until found with `tool_search`."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool; everything it raises except cancellation becomes an error result."""
        try:
            return await await_foreign(lambda: self.run(arguments, context))
        except ForeignFailed as error:
            if isinstance(error.cause, ToolFailed):
                return ToolResult.of(str(error.cause), {}, is_error=True)
            return ToolResult.of(f"{self.spec.name} failed: {_tell(self, error)}", {}, is_error=True)


def to_tool_call(function: Function) -> Function:
    """Adapt a plain function to a tool call: arguments by name, `context` if it has that parameter, any result."""
    parameters = inspect.signature(function).parameters
    has_context = "context" in parameters
    is_async = _is_async(function)

    async def run(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        named = {**arguments, "context": context} if has_context else arguments
        if is_async:
            return to_result(await function(**named))
        return to_result(await call_in_thread(lambda: function(**named)))

    return run


def to_result(value: Any) -> ToolResult:
    """Convert a function's return value to a tool result: text as it is, other values as JSON."""
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult.of("(no output)")
    if isinstance(value, str):
        return ToolResult.of(value)
    return ToolResult.of(msgspec.json.encode(value).decode(), msgspec.to_builtins(value))


class ExtensionHook(Struct, frozen=True):
    """A call hook of an extension with `before`, `after` or both."""

    extension: str
    path: str
    inner: Any

    @property
    def wants(self) -> dict[str, bool]:
        """Which parts of a remote call are needed here; True: the call waits for the answer."""
        names = {"call": "before", "result": "after"}
        return {kind: True for kind, name in names.items() if getattr(self.inner, name, None) is not None}

    async def before(self, call: ToolCall, tool: Tool) -> Answer:
        """Ask the hook; a failing hook denies the call."""
        if getattr(self.inner, "before", None) is None:
            return None
        # A copy: changes to the arguments would bypass all checks.
        shown = structs.replace(call, arguments=deepcopy(call.arguments))
        try:
            answer = await await_foreign(lambda: self.inner.before(shown, tool))
        except ForeignFailed as error:
            return ToolResult.of(f"{call.name} was not run: a hook failed: {_tell(self, error)}", {}, is_error=True)
        if isinstance(answer, Amendment):
            return Amendment(answer.arguments, (self.extension,))
        if answer is None or isinstance(answer, ToolResult):
            return answer
        text = f"{call.name} was not run: a hook of extension {quote(self.extension)} returned no result"
        return ToolResult.of(text, {}, is_error=True)

    async def after(self, call: ToolCall, tool: Tool, result: ToolResult) -> ToolResult:
        """Show the hook the result; if it fails, the result stays unchanged."""
        if getattr(self.inner, "after", None) is None:
            return result
        try:
            answer = await await_foreign(lambda: self.inner.after(call, tool, result))
        except ForeignFailed as error:
            get_log(self.extension).error("a hook failed after %s: %s", call.name, _tell(self, error))
            return result
        return answer if isinstance(answer, ToolResult) else result


class ExtensionPoint(Struct, frozen=True):
    """A function of an extension that is called at a hook point of a run."""

    extension: str
    path: str
    point: str
    function: Function
    priority: int = 0
    fault: str = ""
    """Why the extension could not be loaded; everything it would have guarded is denied."""

    def to_hook(self, *, is_own: bool) -> Hook:
        """`is_own`: the extension is the user's, not a project's."""
        name = f"{self.extension}:{getattr(self.function, '__name__', 'hook')}"
        kind: Kind = "decision" if self.point in (*DECIDED, ANYWHERE) else "observer"
        return Hook(name, self.point, kind, self.priority, "global" if is_own else "project", is_own, self.ask)

    async def ask(self, payload: Mapping[str, Any]) -> Any:
        """Raises HookFailed."""
        if self.fault:
            raise HookFailed(f"cannot be asked: {self.fault}; fix the extension or remove it")
        try:
            given = deepcopy(dict(payload))
            if _is_async(self.function):
                return await await_limited(lambda: self.function(given), LIMIT_S)
            return await call_in_thread(lambda: self.function(given), LIMIT_S)
        except ForeignFailed as error:
            kind = HookLate if error.cause is None else HookFailed
            raise kind(f"failed: {_tell(self, error)}") from error


class ExtensionFeature:
    """A feature of an extension around one run; created when the run starts."""

    def __init__(self, extension: str, path: str, factory: Callable[[], Feature]) -> None:
        self.name = f"extension {extension}"
        self.extension = extension
        self.path = path
        self._factory = factory
        self._inner: Feature | None = None

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Create the feature and let it change the setup. Raises RetinueError, which fails the run."""
        try:
            self._inner = inner = call_foreign(self._factory)
            entered = await await_foreign(lambda: inner.enter(setup))
        except ForeignFailed as error:
            raise RetinueError(_tell(self, error)) from error
        if not isinstance(entered, RunSetup):
            raise RetinueError(f"enter of extension {quote(self.extension)} returned no setup")
        return entered

    async def leave(self, outcome: Outcome) -> Outcome:
        """Let the feature clean up. Raises RetinueError, which is reported in the outcome."""
        inner = self._inner
        if inner is None:
            return outcome
        try:
            left = await await_foreign(lambda: inner.leave(outcome))
        except ForeignFailed as error:
            raise RetinueError(_tell(self, error)) from error
        return left if isinstance(left, Outcome) else outcome


class ExtensionModel(Struct, frozen=True):
    extension: str
    path: str
    inner: Model
    info: ModelInfo

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        """Call the model; an exception becomes a failed reply that is not retried."""
        try:
            reply = await await_foreign(lambda: self.inner.reply(request, draft))
        except ForeignFailed as error:
            text = f"{self.info.ref}: {_tell(self, error)}"
        else:
            if isinstance(reply, Reply):
                return reply
            text = f"{self.info.ref}: extension {quote(self.extension)} returned no reply"
        return Reply(draft.finish("error", error=text), Failure("protocol", text))


class ExtensionCommand(Struct, frozen=True):
    """A command of an extension, for front ends that have commands."""

    extension: str
    path: str
    name: str
    handler: Function
    help: str = ""

    async def run(self, text: str) -> str:
        """Call the handler with the text after the command name; returns what to show. Raises RetinueError."""
        try:
            if _is_async(self.handler):
                shown = await await_foreign(lambda: self.handler(text))
            else:
                shown = await call_in_thread(lambda: self.handler(text))
        except ForeignFailed as error:
            raise RetinueError(f"/{self.name} failed: {_tell(self, error)}") from error
        return "" if shown is None else str(shown)


class ExtensionSurface(Struct, frozen=True):
    """A surface of an extension, which builds tools for the calling run."""

    extension: str
    path: str
    inner: Any

    @property
    def name(self) -> str:
        return str(self.inner.name)

    def build_tools(self, seat: Any) -> tuple[Any, ...]:
        """Return the surface's tools, not yet validated. Raises RetinueError."""
        try:
            return tuple(call_foreign(lambda: self.inner.build_tools(seat)))
        except (ForeignFailed, TypeError) as error:
            told = _tell(self, error) if isinstance(error, ForeignFailed) else "build_tools returned no list"
            raise RetinueError(f"the surface {quote(self.name)} cannot be offered: {told}") from error


class Renderer(Struct, frozen=True):
    """Renders one kind of data for an extension."""

    extension: str
    path: str
    kind: str
    function: Function

    def render(self, data: Any) -> str | None:
        """Return the text; None if the function returns none or fails, so the caller shows the plain data."""
        try:
            shown = call_foreign(lambda: self.function(data))
        except ForeignFailed as error:
            get_log(self.extension).error("the renderer of %s failed: %s", self.kind, _tell(self, error))
            return None
        return shown if isinstance(shown, str) else None


class Handler(Struct, frozen=True, eq=False):
    """A function of an extension that is called after an event."""

    extension: str
    path: str
    events: frozenset[type]
    function: Function
    is_async: bool = False


def make_handler(extension: str, path: str, events: frozenset[type], function: Function) -> Handler:
    return Handler(extension, path, events, function, _is_async(function))


def get_log(extension: str) -> logging.Logger:
    """Return the logger for messages of and about an extension."""
    return logging.getLogger(f"retinue.extension.{extension}")


def _is_async(function: Function) -> bool:
    kind: Any = type(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(kind.__call__)


def _tell(owner: Any, error: ForeignFailed) -> str:
    """Describe the failure with the extension and the line in its code."""
    file, line = find_place(error.cause, owner.path)
    where = f", {file}:{line}" if line is not None else ""
    return f"{error} (extension {quote(owner.extension)}{where})"
