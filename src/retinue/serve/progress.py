"""Progress of a run on a plain terminal: one line per tool call and an animated status line.

Writes to standard error only. Untrusted text is escaped before it reaches the terminal.
"""

import time
from collections.abc import Callable
from typing import Any

from retinue.core import events as ev
from retinue.core.figures import count_tokens, format_tokens
from retinue.core.messages import AssistantMessage, Usage
from retinue.core.run import Status
from retinue.core.terminal import escape_line

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SHOWN_ARGUMENTS = ("command", "pattern", "query", "url", "prompt", "description")


class Progress:
    """Shows the progress of one run and its subagents."""

    def __init__(self, write: Callable[[str], None], *, columns: int, model: str, color: bool = True) -> None:
        self._write = write
        self._columns = max(20, columns)
        self.model = model
        self._color = color
        self._begun_s = time.monotonic()
        self._painted_s = 0.0
        self._turn = 0
        self._usage = Usage()
        self._doing = "starting"
        self._frame = 0
        self._has_status = False
        self._is_resting = False
        self._crew: dict[str, tuple[str, str]] = {}
        self._active = 0

    def __call__(self, event: ev.Event) -> None:
        match event:
            case ev.TurnStarted():
                self._is_resting = False
                self._turn = event.turn
                self._doing = "thinking"
            case ev.MessageDelta():
                self._doing = "writing" if event.delta.type.startswith("text") else "thinking"
            case ev.MessageFinished(message=AssistantMessage() as message):
                self._usage += message.usage
            case ev.ToolStarted():
                name = escape_line(event.name, 60)
                self._line(f"  {self._paint(name, 36)} {_describe(event.arguments)}")
                self._doing = name
            case ev.CallChanged():
                by = escape_line(", ".join(event.by), 100)
                self._line(f"  {self._paint('!', 33)} changed by {by}: {_describe(event.arguments)}")
            case ev.ToolFinished() if event.result.is_error:
                first = next((block.text for block in event.result.content if hasattr(block, "text")), "")
                self._line(f"  {self._paint('!', 31)} {escape_line(f'{event.result.tool_name}: {first}', 260)}")
            case ev.AttemptEnded() if self._active:
                self._doing = f"waiting for {self._active} agent{'s' if self._active != 1 else ''}"
            case ev.RetryScheduled():
                self._tell_wait(event)
                self._doing = "waiting"
            case ev.CompactionStarted():
                self._doing = "summarising the context"
            case ev.Compacted() if event.error:
                self._line(f"  {self._paint('!', 33)} could not summarise: {escape_line(event.error, 300)}")
            case ev.RunFinished():
                self.close()
                return
        self._status()

    def tell_subagent(self, event: ev.Event) -> None:
        """Print a line when a subagent starts and when it ends."""
        if isinstance(event, ev.RunQueued):
            self._crew[event.run_id] = event.run.agent, event.run.description
        agent, description = self._crew.get(event.run_id, ("", ""))
        if not agent:
            return
        what = f"{self._paint(escape_line(agent, 40), 35)} {escape_line(description, 80)}"
        if isinstance(event, ev.RunQueued):
            self._active += 1
        elif isinstance(event, ev.RunStarted):
            self._line(f"  {what}")
        elif isinstance(event, ev.RetryScheduled):
            self._tell_wait(event)
        elif isinstance(event, ev.RunFinished):
            self._active -= 1
            outcome = event.outcome
            mark = self._paint("✓", 32) if outcome.status is Status.COMPLETED else self._paint("✗", 31)
            self._line(f"  {mark} {what}{escape_line(f': {outcome.error}', 120) if outcome.error else ''}")

    def _tell_wait(self, event: ev.RetryScheduled) -> None:
        pause = f"attempt {event.attempt} of {event.max_attempts} in {event.delay_ms / 1000:.1f} s"
        self._line(f"  {self._paint('!', 33)} {escape_line(event.error, 300)}; {pause}")

    def tick(self) -> None:
        """Redraw the status line when no event has arrived."""
        if not self._is_resting:
            self._frame += 1
            self._status(force=True)

    def rest(self) -> None:
        """Remove the status line until the next turn."""
        self.clear()
        self._is_resting = True

    def close(self) -> None:
        """Remove the status line and print a summary."""
        self.rest()
        self._write(f"{self._paint(f'{escape_line(self.model, 120)} · {self._list_figures()}', 2)}\n")

    def _list_figures(self) -> str:
        parts = [f"{self._turn} turn{'s' if self._turn != 1 else ''}"]
        parts.append(f"{format_tokens(count_tokens(self._usage))} tokens")
        if self._usage.cost.total:
            parts.append(f"${self._usage.cost.total:.4f}")
        parts.append(f"{time.monotonic() - self._begun_s:.1f} s")
        return " · ".join(parts)

    def _status(self, *, force: bool = False) -> None:
        now_s = time.monotonic()
        if not force and now_s - self._painted_s < 0.1:
            return
        self._painted_s = now_s
        # The least important facts come last, where a narrow terminal cuts the line.
        facts = (self._doing, self._list_figures(), escape_line(self.model, 120))
        text = f"{_SPINNER[self._frame % len(_SPINNER)]} {' · '.join(facts)}"
        self._write(f"\r\x1b[K{self._paint(text[: self._columns - 1], 2)}")
        self._has_status = True

    def _line(self, text: str) -> None:
        self.clear()
        self._write(f"{text}\n")

    def clear(self) -> None:
        """Remove the status line before other output; the next event or tick redraws it."""
        if self._has_status:
            self._write("\r\x1b[K")
            self._has_status = False

    def _paint(self, text: str, code: int) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._color else text


def _describe(arguments: dict[str, Any]) -> str:
    """Describe a tool call in a few words."""
    path, offset = arguments.get("path"), arguments.get("offset")
    place = f"{path}:{offset}" if path and offset else str(path or "")
    said = next((str(arguments[name]) for name in _SHOWN_ARGUMENTS if arguments.get(name)), "")
    if said and place:
        return f"{escape_line(said, 70)} in {escape_line(place, 60)}"
    others = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return escape_line(said or place or others, 100)
