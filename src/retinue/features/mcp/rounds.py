"""One tool call on a server of revision 2026-07-28: the rounds in which it asks, and the task that it may become.

Imports the MCP library, so it must be imported only when a server is used.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeAlias

from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitResult,
    InputRequiredResult,
    Request,
    RequestParams,
    Result,
)
from pydantic import Discriminator, Field, Tag, TypeAdapter

from retinue.features.mcp.server import McpFailed
from retinue.features.mcp.tool_list import clean_text

Elicit: TypeAlias = Callable[[Any], Awaitable[ElicitResult]]
"""Puts the parameters of an `elicitation/create` to the user."""
TASKS = "io.modelcontextprotocol/tasks"
MAX_ROUNDS = 20
POLL_S = 1.0
FASTEST_S, SLOWEST_S = 0.1, 30.0
CANCEL_S = 2.0


class ServerTask(Result):
    """A task as a server describes it, when it creates it or when it is asked."""

    result_type: Literal["task"] = Field(default="task", alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str
    message: str | None = Field(default=None, alias="statusMessage")
    poll_ms: float | None = Field(default=None, alias="pollIntervalMs")


class TaskState(ServerTask):
    result_type: str = Field(default="complete", alias="resultType")  # type: ignore[assignment]
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    asked: dict[str, dict[str, Any]] | None = Field(default=None, alias="inputRequests")


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId")
    answers: dict[str, Any] | None = Field(default=None, alias="inputResponses")


class TaskRequest(Request[TaskParams, str]):
    name_param = "taskId"


class ServerTasks(ClientExtension):
    """Tells servers that they may answer a call with a task."""

    identifier = TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=ServerTask, resolve=_refuse),)


async def _refuse(task: ServerTask, context: ClaimContext) -> CallToolResult:
    raise McpFailed("it answered with a task where none is expected")


def _find_kind(value: Any) -> str:
    kind = value.get("resultType") if isinstance(value, Mapping) else getattr(value, "result_type", None)
    return "task" if kind == "task" else "core"


_ANSWER: TypeAdapter[Any] = TypeAdapter(
    Annotated[
        Annotated[CallToolResult | InputRequiredResult, Tag("core")] | Annotated[ServerTask, Tag("task")],
        Discriminator(_find_kind),
    ]
)


class ToolRounds:
    """Makes one call."""

    def __init__(self, session: ClientSession, on_progress: ProgressFnT, elicit: Elicit | None) -> None:
        self._session = session
        self._on_progress = on_progress
        self._elicit = elicit
        self._told = 0

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool once and answer what the server asks. Raises McpFailed and what the library raises."""
        # Not the library's call_tool: that validates the result against the server's schema, whose patterns could hang
        # us.
        given: dict[str, Any] = {}
        for _ in range(MAX_ROUNDS):
            params = CallToolRequestParams(name=tool, arguments=arguments, **given)
            request = CallToolRequest(params=params)
            answer = await self._session.send_request(request, _ANSWER, progress_callback=self._on_progress)
            if isinstance(answer, CallToolResult):
                return answer
            if isinstance(answer, ServerTask):
                return await self._follow(answer)
            given = {"request_state": answer.request_state}
            if answer.input_requests:
                given["input_responses"] = await self._answer_all(answer.input_requests)
            else:
                await asyncio.sleep(FASTEST_S)
        raise McpFailed(f"it asked for more than {MAX_ROUNDS} rounds of input")

    async def _answer_all(self, requests: Mapping[str, Any]) -> dict[str, ElicitResult]:
        answers = {}
        for key, request in requests.items():
            parsed = ElicitRequest.model_validate(request) if isinstance(request, Mapping) else request
            if not isinstance(parsed, ElicitRequest) or self._elicit is None:
                raise McpFailed(f"it sent the request {clean_text(parsed.method, 60)!r}, which is refused")
            answers[key] = await self._ask_user(self._elicit(parsed.params))
        return answers

    async def _ask_user(self, question: Awaitable[ElicitResult]) -> ElicitResult:
        """Wait for an answer; meanwhile the time limit of the call does not count."""
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(self._tell_waiting())
            try:
                return await question
            finally:
                telling.cancel()

    async def _tell_waiting(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            await self._tell("waiting for an answer of the user")

    async def _tell(self, message: str | None) -> None:
        self._told += 1
        await self._on_progress(self._told, None, message)

    async def _follow(self, task: ServerTask) -> CallToolResult:
        """Poll a task until it ends. If we are cancelled, so is the task."""
        known: dict[str, Any] = {}
        wait_s = POLL_S
        try:
            while True:
                if task.poll_ms is not None:
                    wait_s = min(max(task.poll_ms / 1000, FASTEST_S), SLOWEST_S)
                await asyncio.sleep(wait_s)
                state = await self._send("tasks/get", TaskParams(taskId=task.task_id), TaskState)
                match state.status:
                    case "completed":
                        return CallToolResult.model_validate(state.result or {}, by_name=False)
                    case "failed":
                        raise McpFailed(clean_text(str((state.error or {}).get("message", "its task failed")), 2_000))
                    case "cancelled":
                        raise McpFailed("its task was cancelled")
                    case "input_required":
                        asked = {key: each for key, each in (state.asked or {}).items() if key not in known}
                        known |= await self._answer_all(asked)
                        if asked:
                            answers = {key: known[key].model_dump(by_alias=True, exclude_none=True) for key in asked}
                            await self._send("tasks/update", TaskParams(taskId=task.task_id, inputResponses=answers))
                # It is alive, so the time limit of the call begins anew.
                await self._tell(state.message)
                task = state
        except asyncio.CancelledError:
            with suppress(MCPError, TimeoutError):
                async with asyncio.timeout(CANCEL_S):
                    await self._send("tasks/cancel", TaskParams(taskId=task.task_id))
            raise

    async def _send(self, method: str, params: TaskParams, kind: type[Any] = Result) -> Any:
        return await self._session.send_request(TaskRequest(method=method, params=params), kind)
