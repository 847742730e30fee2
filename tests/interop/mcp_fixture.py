"""A program that serves tools with the names that the conformance suite calls, through retinue's own MCP server.

`retinue mcp` offers its delegation tools only, so most scenarios would find nothing to call. Calls, tasks, questions,
progress and transport are retinue's; only what the tools do is made up here.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from retinue.core.errors import RetinueError
from retinue.core.events import Event
from retinue.core.messages import ImageContent, TextContent, ToolResultMessage
from retinue.core.model import ToolSpec
from retinue.core.run import Question, Run
from retinue.engine.questions import PendingQuestions
from retinue.serve.mcp.calls import HostCalls
from retinue.serve.mcp.http import serve_http
from retinue.serve.mcp.server import build_server

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
TEXT, NUMBER = {"type": "string"}, {"type": "number"}
TOOLS: dict[str, dict[str, Any]] = {
    "greet": {"name": TEXT},
    "slow_compute": {"seconds": NUMBER, "label": TEXT},
    "failing_job": {},
    "protocol_error_job": {},
    "confirm_delete": {"filename": TEXT},
    "test_simple_text": {},
    "test_image_content": {},
    "test_error_handling": {},
    "test_tool_with_progress": {},
}
FOREGROUND = frozenset({"slow_compute", "failing_job", "protocol_error_job", "confirm_delete"})


class Crew:
    """What the calls need from a Retinue: questions and their answers."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Event], None]] = []
        self.questions = PendingQuestions(lambda event: [hear(event) for hear in self._listeners])

    def listen(self, hear: Callable[[Event], None], *, pieces: bool) -> Callable[[], None]:
        self._listeners.append(hear)
        return lambda: self._listeners.remove(hear)

    def list_questions(self) -> list[Question]:
        return []

    def answer(self, question_id: str, text: str) -> bool:
        return self.questions.answer(question_id, text)


class Tools:
    """What the calls need from a Delegation."""

    foreground = FOREGROUND

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        specs = {name: ToolSpec(name, f"{name}.", {"properties": fields}) for name, fields in TOOLS.items()}
        self.tools = {name: SimpleNamespace(spec=spec) for name, spec in specs.items()}

    def find_line(self, run_id: str) -> list[Run]:
        return [Run(id=run_id, call_id=run_id, parent_id="", depth=1, agent="", description="")]

    def describe_work(self) -> str:
        return "at work"

    async def call(
        self, call_id: str, name: str, arguments: dict[str, Any], on_progress: Callable[[str], None]
    ) -> ToolResultMessage:
        content: list[Any] = [TextContent(f"{name} is done")]
        match name:
            case "greet":
                content = [TextContent(f"Hello, {arguments.get('name')}!")]
            case "slow_compute":
                await asyncio.sleep(float(arguments.get("seconds", 0)))
            case "protocol_error_job":
                raise RetinueError("the job broke")
            case "confirm_delete":
                question = Question(id=f"q-{call_id}", run_id=call_id, kind="confirm", title="Delete it?")
                content = [TextContent(await self._crew.questions.ask(question))]
            case "test_image_content":
                content = [ImageContent(PIXEL, "image/png")]
            case "test_tool_with_progress":
                for step in range(3):
                    on_progress(f"step {step}")
                    await asyncio.sleep(0.05)
        return ToolResultMessage(
            tool_call_id=call_id,
            tool_name=name,
            content=content,
            is_error=name in ("failing_job", "test_error_handling"),
            timestamp=0,
        )


async def main() -> None:
    crew = Crew()
    with socket.create_server(("127.0.0.1", 0)) as place:

        def tell() -> None:
            print(f"http://127.0.0.1:{place.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
            print(f"Authorization: Bearer {token}", file=sys.stderr, flush=True)

        token = os.urandom(8).hex()
        async with asyncio.TaskGroup() as group:
            calls: Any = HostCalls(crew, Tools(crew), group)  # type: ignore[arg-type]
            await serve_http(build_server(calls, "1", "Fixtures."), place, "127.0.0.1", token, tell)


if __name__ == "__main__":
    asyncio.run(main())
