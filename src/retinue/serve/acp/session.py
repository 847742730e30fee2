"""One open session of an ACP client: its events, questions, modes and options."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from acp.exceptions import RequestError
from acp.schema import SessionConfigOptionSelect, SessionMode, SessionModeState

from retinue.app import Retinue
from retinue.core.errors import UsageError, quote
from retinue.core.events import (
    Answered,
    Asked,
    Event,
    MessageFinished,
    ModelChanged,
    RunStarted,
    ThinkingChanged,
    ToolStarted,
)
from retinue.core.messages import THINKING_LEVELS, TextContent, UserContent
from retinue.core.run import Outcome, Question
from retinue.serve.acp.updates import Updates, to_content, to_diff

if TYPE_CHECKING:
    from retinue.serve.acp.agent import AcpAgent

MODES = {
    "ask": ("Ask", "Ask before changes and commands", "ask"),
    "plan": ("Plan", "Read only; changes are refused", "plan"),
    "auto": ("Auto", "Work without questions, inside the sandbox", "never"),
}
"""Mode of the protocol → name, description, our approval mode."""


class AcpSession:
    """One open session of the client."""

    def __init__(self, crew: Retinue, agent: "AcpAgent", cwd: str) -> None:
        self.crew = crew
        self.id = crew.history.id
        self.cwd = cwd
        self.closed = asyncio.Event()
        """Set to close the session."""
        self.ended = asyncio.Event()
        """Set when it is closed."""
        self.is_working = False
        self.first_mode = crew.approvals
        self.updates = Updates(self._send, crew.run_id, cwd)
        self._agent = agent
        self._asked: dict[str, asyncio.Task[None]] = {}

    def hear(self, event: Event) -> None:
        if isinstance(event, Asked):
            self._asked[event.question.id] = self._agent.start(self._ask(event.question))
        elif isinstance(event, Answered):
            if (task := self._asked.pop(event.question_id, None)) is not None and event.by == "nobody":
                task.cancel()
        else:
            self.updates(event)
        if isinstance(event, ModelChanged | ThinkingChanged) and event.run_id == self.crew.run_id:
            self.tell_options()
        if isinstance(event, RunStarted) and event.run_id != self.crew.run_id:
            self.crew.session_runs.overhear(
                event.run_id, self.updates, pieces=False, kinds=(ToolStarted, MessageFinished)
            )

    def _send(self, update: Mapping[str, Any]) -> None:
        self._agent.notify("session/update", {"sessionId": self.id, "update": update})

    def offer_commands(self) -> None:
        """Tell the client the slash commands."""
        offers = [
            {"name": each.name, "description": each.description or each.name, "input": {"hint": "arguments"}}
            for each in self.crew.catalogue.list()
        ]
        self._send({"sessionUpdate": "available_commands_update", "availableCommands": offers})

    def tell_options(self) -> None:
        options = [each.model_dump(by_alias=True, exclude_none=True) for each in self.options]
        self._send({"sessionUpdate": "config_option_update", "configOptions": options})

    async def _ask(self, question: Question) -> None:
        """Let the client's user decide; anything but a valid answer counts as the safe default."""
        answer = question.default
        call_id = self.updates.take_call(question.run_id, question.tool)
        shown_id = call_id or f"question-{question.id}"
        try:
            if question.options:
                reply = await self._agent.request("session/request_permission", self._describe(question, shown_id))
                outcome = reply.get("outcome") if isinstance(reply, dict) else None
                if isinstance(outcome, dict) and outcome.get("outcome") == "selected":
                    chosen = outcome.get("optionId")
                    answer = chosen if isinstance(chosen, str) and chosen in question.options else question.default
        except (RequestError, ConnectionError):
            pass
        finally:
            if not call_id:
                # The client shows a question of a subagent as a tool call of its own, which nothing else ends.
                update = {"sessionUpdate": "tool_call_update", "toolCallId": shown_id, "status": "completed"}
                self._send(update)
        self.crew.questions.answer(question.id, answer)

    def _describe(self, question: Question, call_id: str) -> dict[str, Any]:
        from retinue.views.call_changes import read_texts

        title = f"{question.agent}: {question.title}" if question.agent else question.title
        texts = read_texts(question)
        content = [to_diff(*texts)] if texts else to_content([TextContent(question.text or question.title)])
        options = [
            {"optionId": option, "name": option, "kind": _to_option_kind(number, option, question)}
            for number, option in enumerate(question.options)
        ]
        kind = {"kind": "edit"} if texts else {}
        call = {"toolCallId": call_id, "title": title, "content": content, "status": "pending", **kind}
        return {"sessionId": self.id, "toolCall": call, "options": options}

    @property
    def mode(self) -> str:
        return {mode: name for name, (_, _, mode) in MODES.items()}.get(self.crew.approvals, "auto")

    @property
    def modes(self) -> SessionModeState:
        offered = [SessionMode(id=key, name=name, description=text) for key, (name, text, _) in MODES.items()]
        return SessionModeState(current_mode_id=self.mode, available_modes=offered)

    def choose_mode(self, mode: str) -> None:
        if mode not in MODES:
            raise UsageError(f"unknown mode {quote(mode)}; choose one of: {', '.join(MODES)}")
        # A user whose settings say `bypass` gets that back with `auto`.
        is_bypass = mode == "auto" and self.first_mode == "bypass"
        self.crew.approvals = "bypass" if is_bypass else MODES[mode][2]
        self._send({"sessionUpdate": "current_mode_update", "currentModeId": mode})
        self.tell_options()

    @property
    def options(self) -> list[SessionConfigOptionSelect]:
        """The modes are among them, because clients that know options show nothing else."""
        selection = self.crew.selection
        models = {info.ref: info.name or info.id for info in selection.list_models()}
        models.setdefault(selection.model.ref, selection.model.name or selection.model.id)
        modes = {key: name for key, (name, _, _) in MODES.items()}
        return [
            _to_option("mode", "Mode", "mode", self.mode, modes),
            _to_option("model", "Model", "model", selection.model.ref, models),
            _to_option("thinking", "Thinking", "thought_level", selection.thinking, {n: n for n in selection.levels}),
        ]

    def choose_option(self, key: str, value: Any) -> None:
        """Change the mode, the model or the thinking level. Raises RetinueError."""
        if not isinstance(value, str):
            raise UsageError(f"{key} needs a text")
        if key == "mode":
            self.choose_mode(value)
        elif key == "model":
            provider, _, model = value.partition("/")
            self.crew.selection.select(provider, model)
        elif key == "thinking":
            level = next((level for level in THINKING_LEVELS if level == value), None)
            if level is None:
                raise UsageError(f"unknown thinking level {quote(value)}; choose one of: {', '.join(THINKING_LEVELS)}")
            self.crew.selection.think(level)
        else:
            raise UsageError(f"unknown option {quote(key)}; choose one of: mode, model, thinking")

    async def prompt(self, blocks: list[UserContent]) -> Outcome | None:
        """Run the main agent and what it starts; None for a slash command, which does not involve it."""
        first = blocks[0] if blocks else None
        if isinstance(first, TextContent) and first.text.startswith("/"):
            name, _, words = first.text[1:].partition(" ")
            if self.crew.commands.has(name):
                shown = await self.crew.commands.run(name, words.strip())
                if shown:
                    self._send({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": shown}})
                return None
            blocks = [TextContent(self.crew.catalogue.expand(first.text)), *blocks[1:]]
        return await self.crew.prompt(blocks, settle=True)


def _to_option(key: str, name: str, category: Any, value: str, choices: Mapping[str, str]) -> SessionConfigOptionSelect:
    options = [{"value": value, "name": shown} for value, shown in choices.items()]
    fields = {"id": key, "name": name, "category": category, "currentValue": value, "options": options}
    return SessionConfigOptionSelect.model_validate({**fields, "type": "select"})


def _to_option_kind(number: int, option: str, question: Question) -> str:
    if option in (question.default, "deny"):
        return "reject_once"
    return "allow_once" if number == 0 else "allow_always"
