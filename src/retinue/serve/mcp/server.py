"""MCP server through the library: revision 2026-07-28 on any transport, earlier ones over HTTP.

The tasks extension (SEP-2663) is ours, on the library's extension points. Imports the library, so it must be imported
only when a client needs it.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding, compose_tool_call_handler
from mcp.server.lowlevel import Server
from mcp.server.mcpserver.server import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import (
    HEADER_MISMATCH,
    CallToolRequestParams,
    ListToolsResult,
    PaginatedRequestParams,
    RequestParams,
    jsonrpc_message_adapter,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field, ValidationError

from retinue.core.jsonline import encode_json
from retinue.serve.mcp.calls import (
    INTERNAL,
    KEEP_S,
    CallRefused,
    HostCall,
    HostCalls,
    describe_tool,
    render_requests,
    to_result,
)

TASKS = "io.modelcontextprotocol/tasks"
POLL_MS = 1000
Context = ServerRequestContext[Any, Any]


def build_server(calls: HostCalls, version: str, instructions: str) -> Server[Any]:
    """Return the library's server for our tools, with tasks."""

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        tools = [describe_tool(tool) for tool in calls.delegation.tools.values()]
        return ListToolsResult.model_validate({"tools": tools})

    async def call_tool(context: Context, params: CallToolRequestParams) -> HandlerResult:
        with _Refusals():
            if params.request_state is None:
                call = calls.start(params.name, params.arguments or {}, asks=_can_ask(context))
            else:
                call = calls.resume(params.request_state, params.name, params.arguments or {})
                calls.answer(call, _to_plain(params.input_responses))
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(_report(context, calls, call))
            await calls.settle(call)
            telling.cancel()
        return _render_end(call)

    server: Server[Any] = Server("retinue", version=version, instructions=instructions, on_list_tools=list_tools)
    tasks = CallTasks(calls)
    server.add_request_handler("tools/call", CallToolRequestParams, compose_tool_call_handler([tasks], call_tool))
    for method in tasks.methods():
        server.add_request_handler(method.method, method.params_type, method.handler)
    server.extensions[tasks.identifier] = tasks.settings()
    return server


async def _report(context: Context, calls: HostCalls, call: HostCall) -> None:
    count = 0
    async for text in calls.follow(call):
        count += 1
        await context.session.report_progress(count, None, text)


def _render_end(call: HostCall) -> dict[str, Any]:
    """Return the result of a call that is over, or what its agents ask. Raises MCPError."""
    if call.result is not None:
        return {"resultType": "complete", **to_result(call.result)}
    if call.open:
        return {"resultType": "input_required", "inputRequests": render_requests(call), "requestState": call.id}
    raise MCPError(code=INTERNAL, message=call.error or "the call was stopped")


def _can_ask(context: Context) -> bool:
    """Whether the client shows forms to its user. Only the newer revision lets a call wait for them."""
    capabilities = context.session.client_capabilities
    offered = capabilities.elicitation if capabilities is not None else None
    has_forms = offered is not None and (offered.form is not None or offered.url is None)
    return has_forms and context.protocol_version in MODERN_PROTOCOL_VERSIONS


def _to_plain(responses: Any) -> dict[str, Any]:
    """Return the client's answers as JSON values; the library has read those whose form it knows."""
    answers = (responses or {}).items()
    return {key: each.model_dump(by_alias=True) if isinstance(each, BaseModel) else each for key, each in answers}


class _Refusals:
    """Turns a refusal into the library's error."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, CallRefused):
            raise MCPError(code=error.code, message=str(error)) from error


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId")


class TaskAnswers(TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses")


class CallTasks(Extension):
    """Calls of foreground tools as tasks."""

    identifier = TASKS

    def __init__(self, calls: HostCalls) -> None:
        self._calls = calls

    def methods(self) -> list[MethodBinding]:
        return [
            MethodBinding("tasks/get", TaskParams, self._get),
            MethodBinding("tasks/update", TaskAnswers, self._update),
            MethodBinding("tasks/cancel", TaskParams, self._cancel),
        ]

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: Context, call_next: CallNext
    ) -> HandlerResult:
        """Answer a call of a foreground tool with a task, if the client knows tasks."""
        capabilities = ctx.session.client_capabilities
        is_known = capabilities is not None and TASKS in (capabilities.extensions or {})
        is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not (is_known and is_modern and params.name in self._calls.delegation.foreground):
            return await call_next(ctx)
        with _Refusals():
            call = self._calls.start(params.name, params.arguments or {}, asks=_can_ask(ctx))
        return {**_render_task(call), "resultType": "task"}

    async def _get(self, context: Context, params: TaskParams) -> dict[str, Any]:
        call = self._find(context, params)
        task = _render_task(call)
        match call.status:
            case "completed" if call.result is not None:
                task["result"] = {"resultType": "complete", **to_result(call.result)}
            case "failed":
                task["error"] = {"code": INTERNAL, "message": call.error}
            case "input_required":
                task["inputRequests"] = render_requests(call)
        return task

    async def _update(self, context: Context, params: TaskAnswers) -> dict[str, Any]:
        self._calls.answer(self._find(context, params), _to_plain(params.input_responses))
        return {}

    async def _cancel(self, context: Context, params: TaskParams) -> dict[str, Any]:
        self._find(context, params).stop()
        return {}

    def _find(self, context: Context, params: TaskParams) -> HostCall:
        """Return the call behind a task. Raises MCPError."""
        require_client_extension(context, TASKS)
        named = context.request.headers.get("mcp-name") if context.request is not None else params.task_id
        if named != params.task_id:
            raise MCPError(code=HEADER_MISMATCH, message="the header Mcp-Name is not the taskId of the request")
        with _Refusals():
            return self._calls.find(params.task_id)


def _render_task(call: HostCall) -> dict[str, Any]:
    """Return what all forms of a task have. Its time to live is counted from its creation and grows while it works."""
    return {
        "taskId": call.id,
        "status": call.status,
        **({"statusMessage": call.note} if call.note and not call.is_over else {}),
        "createdAt": _render_time(call.created_s),
        "lastUpdatedAt": _render_time(call.changed_s),
        "ttlMs": int((call.changed_s - call.created_s + KEEP_S) * 1000),
        "pollIntervalMs": POLL_MS,
    }


def _render_time(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class McpStream:
    """The library's server on a pair of streams."""

    def __init__(self, server: Server[Any], write: Callable[[bytes], None], group: asyncio.TaskGroup) -> None:
        self._write = write
        self._input, theirs = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        ours, self._output = anyio.create_memory_object_stream[SessionMessage](0)
        self._serving = group.create_task(server.run(theirs, ours, server.create_initialization_options()))
        self._sending = group.create_task(self._send())

    async def feed(self, message: dict[str, Any]) -> bool:
        """Hand in a message; False if it is none of the protocol."""
        try:
            parsed = jsonrpc_message_adapter.validate_python(message, by_name=False)
        except ValidationError:
            return False
        await self._input.send(SessionMessage(parsed))
        return True

    async def close(self) -> None:
        """End the input; running requests are cancelled."""
        await self._input.aclose()
        await asyncio.wait([self._serving, self._sending])

    async def _send(self) -> None:
        async with self._output:
            async for item in self._output:
                self._write(
                    encode_json(item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)) + b"\n"
                )
