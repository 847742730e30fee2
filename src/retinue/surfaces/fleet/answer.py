"""The tool `answer_subagent`: answers a question that a run has asked."""

from functools import cached_property
from typing import Any

from retinue.core.errors import RetinueError
from retinue.core.model import ToolSpec
from retinue.core.tool import ToolContext, ToolResult
from retinue.surfaces.fleet.ports import FleetTool, Refusal
from retinue.surfaces.fleet.status import to_word
from retinue.tools.registry import load_description


class AnswerTool(FleetTool):
    hint = "Answer a question of a background agent"

    @cached_property
    def spec(self) -> ToolSpec:
        properties = {
            "id": {"type": "string", "description": "The question-id"},
            "text": {
                "type": "string",
                "minLength": 1,
                "description": "The answer: an option or your own words",
            },
        }
        parameters = {"type": "object", "properties": properties, "required": ["id", "text"]}
        return ToolSpec("answer_subagent", load_description(__file__), parameters)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        question_id, text = str(arguments.get("id", "")).strip(), str(arguments.get("text", "")).strip()
        if not text:
            return Refusal("Missing required argument: text.").to_result()
        questions = self._caller.manager.questions
        try:
            # Like its results, a run's questions concern only those above it.
            run, question = questions.find(question_id, lambda run: self._caller.find_run(run.id) is not None)
            run = questions.answer(question.id, text, "parent")
        except RetinueError as error:
            return Refusal(str(error)).to_result()
        details = {"agentId": run.id, "questionId": question.id, "status": to_word(run)}
        return ToolResult.of(f"Answered. Agent {run.id} continues with your answer.", details)
