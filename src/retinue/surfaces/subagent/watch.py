"""Collects what one attempt says: the items to show, and the usage as this surface counts it."""

from collections.abc import Callable
from typing import Any

from retinue.core.events import Event, MessageFinished, RunStarted, ToolFinished, TurnFinished
from retinue.core.messages import AssistantMessage, TextContent, ToolCall, Usage
from retinue.core.tool_table import FINALIZE
from retinue.engine.manager import Manager

RUNNING = "(running...)"
_NAMES = {MessageFinished: "message_end", ToolFinished: "tool_result_end", TurnFinished: "turn_end"}


class AttemptWatch:
    """Follows one run from its start; each further attempt needs a new object."""

    def __init__(
        self, manager: Manager, run_id: str, clean: Callable[[Any], Any], on_change: Callable[["AttemptWatch"], None]
    ) -> None:
        """`clean` masks each text, once per text because updates repeat earlier ones."""
        self.items: list[dict[str, Any]] = []
        """Texts and tool calls in conversation order, without the call that delivers the answer."""
        self.text = ""
        """The last text."""
        self.usage = Usage()
        """Sum of all replies."""
        self.last_usage = Usage()
        """Of the last reply that reports any."""
        self.replies = 0
        self.turns = 0
        self.tool_results = 0
        self.last_stop = ""
        self.last_event = "none"
        """Its name in the event stream of a child."""
        self._manager = manager
        self._run_id = run_id
        self._clean = clean
        self._on_change = on_change
        self._stops = [manager.root.bus.listen(self._await_start, pieces=False)]

    def close(self) -> None:
        for stop in self._stops:
            stop()
        self._stops.clear()

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [item for item in self.items if item["type"] == "toolCall"]

    def describe_silence(self) -> str:
        """Return a text in place of a missing answer."""
        stop = self.last_stop or "none"
        return (
            f"(no answer: the last event was {self.last_event}, the last stop reason was {stop}, "
            f"and {self.tool_results} tool executions were completed)"
        )

    def _await_start(self, event: Event) -> None:
        if isinstance(event, RunStarted) and event.run_id == self._run_id:
            live = self._manager.live(self._run_id)
            if live is not None and len(self._stops) == 1:
                self._stops.append(live.bus.listen(self._hear, pieces=False))

    def _hear(self, event: Event) -> None:
        self.last_event = _NAMES.get(type(event), self.last_event)
        if isinstance(event, MessageFinished) and isinstance(event.message, AssistantMessage):
            self._note(event.message)
        elif isinstance(event, ToolFinished):
            self.tool_results += 1
        else:
            self.turns += isinstance(event, TurnFinished)
            return
        self._on_change(self)

    def _note(self, message: AssistantMessage) -> None:
        self.replies += 1
        self.last_stop = message.stop_reason
        self.usage += message.usage
        if message.usage != Usage():
            self.last_usage = message.usage
        for block in message.content:
            if isinstance(block, TextContent) and block.text.strip():
                self.items.append({"type": "text", "text": self._clean(block.text)})
            elif isinstance(block, ToolCall) and block.name != FINALIZE:
                self.items.append({"type": "toolCall", "name": block.name, "args": self._clean(block.arguments)})
        if message.text.strip():
            self.text = self._clean(message.text.strip())
