"""Turns the events of one session into the `session/update` notifications of the Agent Client Protocol.

The main agent's text, thoughts and tool calls are sent as they happen. Each subagent is shown as one tool call whose
content is renewed with each of its calls. Knows the protocol's records, not the connection.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from retinue.core import events as ev
from retinue.core.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserContent,
    UserMessage,
)
from retinue.core.run import Status

Record = dict[str, Any]
KINDS = {
    "read": "read",
    "ls": "search",
    "find": "search",
    "grep": "search",
    "edit": "edit",
    "write": "edit",
    "bash": "execute",
    "web_search": "fetch",
    "fetch_content": "fetch",
    "todo_write": "think",
}
"""Our tool → the protocol's kind of tool; others are `other`."""
MAX_DIFF_BYTES = 1024 * 1024
MAX_LINES = 12
"""Lines that are shown of a subagent at work."""
_CHUNKS = {"text_delta": "agent_message_chunk", "thinking_delta": "agent_thought_chunk"}
_TITLE_ARGUMENTS = ("command", "path", "pattern", "query", "url", "description", "agent", "id")


class Updates:
    """The notifications of one session."""

    def __init__(self, send: Callable[[Record], None], run_id: str, cwd: str) -> None:
        """`send` receives the `update` of each notification; `run_id` is the main agent's."""
        self._send = send
        self._run_id = run_id
        self._cwd = cwd
        self._before: dict[str, tuple[str, str | None]] = {}
        """Path and text, before the call, of files that open calls change."""
        self._subagents: dict[str, list[str]] = {}
        self._open: dict[str, tuple[str, str]] = {}
        """Run and tool of calls that have not ended."""

    def __call__(self, event: ev.Event) -> None:
        if event.run_id != self._run_id:
            self._tell_subagent(event)
            return
        match event:
            case ev.MessageDelta():
                kind = _CHUNKS.get(event.delta.type)
                if kind and isinstance(event.delta.delta, str):
                    self._send_text(kind, event.delta.delta)
            case ev.ToolStarted():
                self._start_call(event.call_id, event.name, event.arguments)
            case ev.ToolProgress():
                self.update_call(event.call_id, content=to_content(event.content))
            case ev.ToolFinished():
                self._finish_call(event.result)
            case ev.SessionRenamed():
                self._send({"sessionUpdate": "session_info_update", "title": event.name or None})
            case _:
                pass

    def replay(self, messages: Iterable[Message]) -> None:
        """Send a stored conversation."""
        for message in messages:
            match message:
                case UserMessage():
                    blocks = [TextContent(message.content)] if isinstance(message.content, str) else message.content
                    for block in blocks:
                        self._send({"sessionUpdate": "user_message_chunk", "content": to_block(block)})
                case AssistantMessage():
                    for part in message.content:
                        self._replay_part(part)
                case ToolResultMessage():
                    self._finish_call(message)
                case _:
                    pass

    def note_text(self, path: str, text: str) -> None:
        """Take a text that the client saves as the one before the calls that change its file."""
        self._before |= {call_id: (path, text) for call_id, (other, _) in self._before.items() if other == path}

    def take_call(self, run_id: str, tool: str) -> str:
        """The id of the first open call of a tool by the main agent that nobody asked about yet; empty if unknown."""
        for call_id, found in self._open.items():
            if found == (run_id, tool):
                self._open[call_id] = "", ""
                return call_id
        return ""

    def _replay_part(self, part: Any) -> None:
        match part:
            case TextContent() if part.text:
                self._send_text("agent_message_chunk", part.text)
            case ThinkingContent() if part.thinking:
                self._send_text("agent_thought_chunk", part.thinking)
            case ToolCall():
                self._send({**self._describe_call(part.id, part.name, part.arguments), "status": "pending"})
            case _:
                pass

    def _send_text(self, kind: str, text: str) -> None:
        if text:
            self._send({"sessionUpdate": kind, "content": {"type": "text", "text": text}})

    def _start_call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> None:
        self._open[call_id] = self._run_id, name
        path = self._find_path(arguments)
        if KINDS.get(name) == "edit" and path:
            self._before[call_id] = path, read_text(path)
        self._send({**self._describe_call(call_id, name, arguments), "status": "in_progress"})

    def _describe_call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> Record:
        path = self._find_path(arguments)
        place = {"path": path, **({"line": arguments["offset"]} if isinstance(arguments.get("offset"), int) else {})}
        return {
            "sessionUpdate": "tool_call",
            "toolCallId": call_id,
            "title": to_title(name, arguments),
            "kind": KINDS.get(name, "other"),
            "rawInput": dict(arguments),
            **({"locations": [place]} if path else {}),
        }

    def _find_path(self, arguments: Mapping[str, Any]) -> str:
        path = arguments.get("path")
        return (
            os.path.normpath(os.path.join(self._cwd, os.path.expanduser(path)))
            if path and isinstance(path, str)
            else ""
        )

    def update_call(self, call_id: str, **fields: Any) -> None:
        self._send({"sessionUpdate": "tool_call_update", "toolCallId": call_id, **fields})

    def _finish_call(self, result: ToolResultMessage) -> None:
        self._open.pop(result.tool_call_id, None)
        content = to_content(result.content)
        path, old = self._before.pop(result.tool_call_id, ("", None))
        if path and not result.is_error and (new := read_text(path)) is not None and new != old:
            content = [to_diff(path, old, new)]
            # Another call of the same reply may change the file next.
            self._before |= {call_id: (path, new) for call_id, (other, _) in self._before.items() if other == path}
        status = "failed" if result.is_error else "completed"
        self.update_call(result.tool_call_id, status=status, content=content)
        details = result.details
        if result.tool_name == "todo_write" and isinstance(details, Mapping) and not result.is_error:
            entries = [{**item, "priority": "medium"} for item in details.get("todos", [])]
            self._send({"sessionUpdate": "plan", "entries": entries})

    def _tell_subagent(self, event: ev.Event) -> None:
        call_id = f"run-{event.run_id}"
        match event:
            case ev.RunQueued():
                self._subagents[event.run_id] = []
                title = f"{event.run.agent}: {event.run.description}"
                call = {"sessionUpdate": "tool_call", "toolCallId": call_id, "title": title, "kind": "other"}
                self._send({**call, "status": "pending"})
            case ev.RunStarted() if event.run_id in self._subagents:
                self.update_call(call_id, status="in_progress")
            case ev.ToolStarted() if event.run_id in self._subagents:
                self._add_line(event.run_id, to_title(event.name, event.arguments))
            case ev.MessageFinished() if event.run_id in self._subagents:
                if isinstance(event.message, AssistantMessage) and event.message.text.strip():
                    self._add_line(event.run_id, event.message.text.strip())
            case ev.RunFinished() if event.run_id in self._subagents:
                outcome = event.outcome
                is_done = outcome.status is Status.COMPLETED
                text = (
                    outcome.text
                    if is_done
                    else "\n\n".join(filter(None, (outcome.error or f"stopped: {outcome.reason}", outcome.text)))
                )
                self.update_call(
                    call_id, status="completed" if is_done else "failed", content=to_content([TextContent(text)])
                )
            case _:
                pass

    def _add_line(self, run_id: str, line: str) -> None:
        lines = self._subagents[run_id]
        lines.append(line)
        del lines[:-MAX_LINES]
        self.update_call(f"run-{run_id}", content=to_content([TextContent("\n".join(lines))]))


def to_title(name: str, arguments: Mapping[str, Any]) -> str:
    """A tool and what it works on, in one line."""
    subject = next((str(arguments[key]) for key in _TITLE_ARGUMENTS if arguments.get(key)), "")
    line = " ".join(f"{name} {subject}".split())
    return line if len(line) <= 200 else f"{line[:199]}…"


def to_block(block: UserContent) -> Record:
    if isinstance(block, ImageContent):
        return {"type": "image", "data": block.data, "mimeType": block.mime_type}
    return {"type": "text", "text": block.text}


def to_content(blocks: Iterable[UserContent]) -> list[Record]:
    return [{"type": "content", "content": to_block(block)} for block in blocks]


def to_diff(path: str, old: str | None, new: str) -> Record:
    return {"type": "diff", "path": path, "newText": new, **({} if old is None else {"oldText": old})}


def read_text(path: str) -> str | None:
    """Read a text file of moderate size; None if there is none."""
    try:
        # Opening a pipe would wait for a writer.
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            data = file.read(MAX_DIFF_BYTES + 1)
        return None if len(data) > MAX_DIFF_BYTES or b"\0" in data else data.decode("utf-8", "replace")
    except OSError:
        return None
