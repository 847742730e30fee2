"""The ask_parent tool: a child asks the agent that started it, or the user, and waits for the answer.

MUST NOT know who answers: that is the function it is created with.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.tools.registry import load_description

NO_ANSWER = "no answer: decide yourself and say so"
MAX_OPTIONS = 9
MAX_CHARS = 6_000
"""Of a question with its options."""
Ask: TypeAlias = Callable[[str, str, Sequence[str]], Awaitable[str]]
"""Takes the run's id, the question and the possible answers; returns the answer. Limits its time itself."""


async def ask_nobody(run_id: str, question: str, options: Sequence[str]) -> str:
    return NO_ANSWER


class AskParentTool:
    effect = Effect.READ
    hint = "Ask whoever gave you the task"
    guidelines: tuple[str, ...] = ()

    def __init__(self, ask: Ask = ask_nobody) -> None:
        self._ask = ask

    @cached_property
    def spec(self) -> ToolSpec:
        option = {"type": "string", "minLength": 1}
        properties = {
            "question": {"type": "string", "minLength": 1, "description": "The question, with all that is needed"},
            "options": {
                "type": "array",
                "items": option,
                "maxItems": MAX_OPTIONS,
                "description": "Answers to choose from, if there are some; others are possible",
            },
        }
        parameters = {"type": "object", "properties": properties, "required": ["question"]}
        return ToolSpec("ask_parent", load_description(__file__), parameters, limits_itself=True)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Wait for the answer; the result of a cancelled call says nothing about it."""
        question = context.redact(str(arguments["question"]).strip())
        options = [context.redact(str(option).strip()) for option in arguments.get("options") or ()]
        size = len(question) + sum(map(len, options))
        if not question or size > MAX_CHARS:
            problem = f"the question has {size} characters; ask in at most {MAX_CHARS}" if question else "it is empty"
            return ToolResult.of(f"ask_parent was not run: {problem}.", {}, is_error=True)
        options = list(dict.fromkeys(filter(None, options)))
        answer = await self._ask(context.run_id, question, options)
        return ToolResult.of(answer, {"question": question, "answer": answer, "isAnswered": answer != NO_ANSWER})
