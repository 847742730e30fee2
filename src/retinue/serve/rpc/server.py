"""RPC server: reads commands line by line, runs them and answers each exactly once.

Nothing a caller sends ends the process; only the end of the input does.
"""

import asyncio
from collections.abc import Coroutine
from inspect import isawaitable
from typing import Any

from msgspec import UNSET

from retinue.app import Retinue
from retinue.core.errors import RetinueError, UsageError, quote
from retinue.core.events import Compacted, CompactionStarted, Event
from retinue.serve.jsonl import JsonFrontend
from retinue.serve.outlet import Outlet
from retinue.serve.rpc import models, prompts, sessions
from retinue.serve.rpc.command import Actions, RpcCommand, RpcConnection, parse_command
from retinue.serve.rpc.lines import Lines
from retinue.serve.rpc.questions import Questions, send_notice

ACTIONS: Actions = {**prompts.ACTIONS, **sessions.ACTIONS, **models.ACTIONS}
SWITCHES = frozenset({"new_session", "switch_session", "fork", "clone"})
"""No other command is read while one of these runs."""
_PACE_S = 0.02


class RpcServer:
    """Serves one caller."""

    def __init__(self, crew: Retinue, lines: Lines, outlet: Outlet) -> None:
        self._crew = crew
        self._lines = lines
        self._outlet = outlet
        self._group = asyncio.TaskGroup()
        self._link = RpcConnection(crew, outlet.write, lambda work: self._group.create_task(self._guard(work)))
        self._questions = Questions(self._link)
        self._tasks: set[asyncio.Task[None]] = set()
        self._run_id = crew.run_id
        """The run id of the main agent whose events are sent; during a session switch, still the previous one."""
        self._frontend = self._open_frontend()

    async def serve(self) -> None:
        """Serve until the input ends or is closed, then stop running work."""
        stop_listening = self._crew.listen(self._hear)
        try:
            async with self._group:
                with self._crew.questions.attend():
                    self._show_questions()
                    async for line in self._lines:
                        await self._take(line)
                        await self._keep_pace()
                    await self._finish()
        finally:
            stop_listening()

    def _show_questions(self) -> None:
        """Send the questions of subagents that an earlier process has left."""
        for question in self._crew.list_questions():
            self._questions.show(question)

    async def _take(self, line: bytes | None) -> None:
        try:
            if line is None:
                raise UsageError("the line is too long")
            command = parse_command(line)
        except UsageError as error:
            self._answer_badly(UNSET, "parse", f"Failed to parse command: {error}")
            return
        if command.type == "extension_ui_response":
            self._questions.answer(command.fields)
        elif command.type in SWITCHES:
            # Run in this task, because the task that opened a session must also close it.
            await self._run(command)
            if self._crew.run_id != self._run_id:
                self._run_id, self._link.is_compacting = self._crew.run_id, False
                self._show_questions()
                self._frontend = self._open_frontend()
        else:
            task = self._group.create_task(self._run(command))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, command: RpcCommand) -> None:
        """Run a command and answer it exactly once."""
        action = None if command.type is None else ACTIONS.get(command.type)
        if action is None:
            shown = "a command needs a type, which is a string" if command.type is None else quote(command.type)[1:-1]
            self._answer_badly(command.id, command.type, f"Unknown command: {shown}")
            return
        try:
            data = action(self._link, command)
            data = await data if isawaitable(data) else data
        except asyncio.CancelledError:
            # No answer is needed when the connection ends; any other cancellation must be answered.
            if not self._link.is_open:
                raise
            self._answer_badly(command.id, command.type, "cancelled")
        except RetinueError as error:
            self._answer_badly(command.id, command.type, str(error))
        except Exception as error:
            self._answer_badly(command.id, command.type, f"internal error: {type(error).__name__}: {error}")
        else:
            self._answer(command.id, command.type, success=True, **({} if data is UNSET else {"data": data}))

    async def _guard(self, work: Coroutine[Any, Any, object]) -> None:
        """Report any failure of background work to the caller instead of ending the process."""
        try:
            await work
        except RetinueError as error:
            send_notice(self._link, str(error), "error")
        except Exception as error:
            send_notice(self._link, f"internal error: {type(error).__name__}: {error}", "error")

    def _answer(self, command_id: Any, name: str | None, **rest: Any) -> None:
        head = {} if command_id is UNSET else {"id": command_id}
        kind = {} if name is None else {"command": name}
        self._link.send({**head, "type": "response", **kind, **rest})

    def _answer_badly(self, command_id: Any, name: str | None, error: str) -> None:
        self._answer(command_id, name, success=False, error=error)

    def _hear(self, event: Event) -> None:
        if isinstance(event, CompactionStarted | Compacted) and event.run_id == self._run_id:
            self._link.is_compacting = isinstance(event, CompactionStarted)
        self._questions.hear(event)
        self._frontend(event)

    def _open_frontend(self) -> JsonFrontend:
        return JsonFrontend(self._outlet.write, self._crew.describe_life(), self._run_id)

    async def _keep_pace(self) -> None:
        """Wait before reading the next command until the caller has read our output."""
        await asyncio.sleep(0)
        # Polled, so that a signal can still close the input while the caller reads nothing.
        while self._outlet.is_behind and not self._lines.is_closed:  # noqa: ASYNC110
            await asyncio.sleep(_PACE_S)

    async def _finish(self) -> None:
        """Let commands that finish at once be answered; stop the others."""
        await asyncio.sleep(0)
        self._link.is_open = False
        for task in list(self._tasks):
            task.cancel()
        await self._link.abort()
