"""`offline/rules`: a deterministic model that searches and quotes, and needs no key and no network.

A reply is a pure function of the request. Facts about a repository come only through the offered tools; this file must
not use files, the clock or randomness.
"""

import json
import re

from retinue.core.messages import ToolCall, Usage
from retinue.core.model import Draft, ModelInfo, ModelRequest, Reply
from retinue.core.tool_table import FINALIZE
from retinue.models.catalog import OFFLINE_MODEL
from retinue.models.offline.actions import Action, Read, find_tools, to_call
from retinue.models.offline.answer import NOTE, render_topic, render_uses
from retinue.models.offline.chat import render_chat
from retinue.models.offline.delegation import AGENT, FETCH, can_delegate, read_delegated, split_work, to_start_call
from retinue.models.offline.evidence import collect_findings
from retinue.models.offline.file_answers import render_file
from retinue.models.offline.merged_reports import merge_round, render_other_notices
from retinue.models.offline.plan import plan_turn
from retinue.models.offline.project import render_fact, render_overview, render_run
from retinue.models.offline.question import Kind, OfflineQuestion, parse_question, parse_questions
from retinue.models.offline.scores import Ranking
from retinue.models.offline.transcript import Transcript, is_summary_request, read_transcript, render_summary

INFO = OFFLINE_MODEL

_RENDER = {
    Kind.OVERVIEW: render_overview,
    Kind.RUN: render_run,
    Kind.FACT: render_fact,
    Kind.FILE: render_file,
    Kind.USES: render_uses,
    Kind.WHERE: render_topic,
    Kind.HOW: render_topic,
}


class OfflineModel:
    def __init__(self, info: ModelInfo = INFO) -> None:
        self.info = info

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        """Answer with tool calls or with the final text; never fails."""
        turn = Turn(request, self.info.ref)
        text, calls = turn.take()
        if not calls and any(tool.name == FINALIZE for tool in request.tools):
            text, calls = turn.deliver(text)
        draft.usage = _estimate_usage(request, text, calls)
        _write(draft, text, calls)
        return Reply(draft.finish("toolUse" if calls else "stop"))


class Turn:
    """Builds one reply: delegates, searches further, fetches reports or answers."""

    def __init__(self, request: ModelRequest, model: str) -> None:
        self._request = request
        self._model = model
        """The model of the subagents it starts."""
        self._transcript = read_transcript(request.messages, request.tools)
        self._delegated = read_delegated(request.messages)
        self._tool_names = find_tools(request.tools)
        self._is_over = self._transcript.wrap_up or is_summary_request(self._transcript.question)

    def take(self) -> tuple[str, list[ToolCall]]:
        mine = None if self._transcript.is_news else self._delegated.find(self._transcript.start)
        if self._transcript.is_news or (mine is not None and mine.is_started):
            return self._fetch() or self._report([])
        questions = read_questions(self._transcript)
        if mine is None and (prompts := self._split(questions)):
            calls = [to_start_call(prompt, self._name(index), self._model) for index, prompt in enumerate(prompts)]
            return f"Asking {len(prompts)} `{AGENT}` agents, a part of the question each.", calls
        findings = collect_findings(self._transcript.exchanges, self._request.memo)
        rankings = [Ranking(question, findings, self._request.memo) for question in questions]
        turns = self._transcript.turns
        actions = [] if self._is_over else plan_turn(rankings, self._tool_names, turns)
        if actions:
            calls = [to_call(action, self._tool_names, self._name(index)) for index, action in enumerate(actions)]
            return describe_step(questions, actions, turns), calls
        return self._fetch() or self._report([render_answer(rankings, self._transcript)])

    def deliver(self, text: str) -> tuple[str, list[ToolCall]]:
        """Wrap the final text in the call that the run must end with."""
        call = ToolCall(self._name(0), FINALIZE, {"status": "SUCCESS", "result": text})
        return "Delivering the answer.", [call]

    def _split(self, questions: list[OfflineQuestion]) -> list[str]:
        if self._is_over or self._transcript.turns or self._transcript.is_child:
            return []
        if not can_delegate(self._request.tools):
            return []
        return split_work(self._transcript.question, questions)

    def _fetch(self) -> tuple[str, list[ToolCall]] | None:
        """Calls that fetch the complete reports, once all runs have finished; None if there is nothing to fetch."""
        parts = [part for each in self._delegated.due for part in each.parts]
        unread = [part.run_id for part in parts if part.run_id and part.result is None]
        if not unread or self._transcript.wrap_up or all(tool.name != FETCH for tool in self._request.tools):
            return None
        calls = [ToolCall(self._name(index), FETCH, {"agent_id": run_id}) for index, run_id in enumerate(unread)]
        return f"Reading {len(unread)} reports.", calls

    def _report(self, answers: list[str]) -> tuple[str, list[ToolCall]]:
        """The final text: the answer, the results of subagents, and what is still open."""
        rounds = [*self._delegated.due, *(self._delegated.pending if self._transcript.wrap_up else [])]
        answers = [*answers, *(merge_round(each) for each in rounds)]
        if self._delegated.other_notices:
            answers.append(render_other_notices(self._delegated.other_notices))
        waiting = [part for each in self._delegated.pending for part in each.parts]
        if waiting and not self._transcript.wrap_up:
            done = sum(part.is_settled for part in waiting)
            asked = " ".join(part.question for part in waiting)
            news = f"{done} of {len(waiting)} reports are in."
            answers.append(news if done else f"{len(waiting)} `{AGENT}` agents are working on: {asked}")
        return "\n\n".join(answers) or "Nothing new to report.", []

    def _name(self, index: int) -> str:
        return f"rules_{self._transcript.next_call + index}"


def read_questions(transcript: Transcript) -> list[OfflineQuestion]:
    """Parse the questions, with pronouns resolved from earlier ones."""
    previous: OfflineQuestion | None = None
    for text in transcript.earlier:
        previous = parse_question(text, previous)
    return parse_questions(transcript.question, previous)


def describe_step(questions: list[OfflineQuestion], actions: list[Action], turns: int) -> str:
    """One line that says what the calls are for."""
    if turns == 0:
        questions = [each for each in questions if each.kind is not Kind.CHAT]
        names = [name for each in questions for name in (*each.symbols, *each.phrases)]
        words = list(dict.fromkeys([*names, *(concept.word for each in questions for concept in each.concepts)]))[:6]
        return f"Looking for {', '.join(words)}." if words else "Looking around."
    reads = list(dict.fromkeys(action.path for action in actions if isinstance(action, Read)))
    if reads:
        return f"Reading {', '.join(reads[:4])}{', …' if len(reads) > 4 else ''}."
    return "Searching further."


def render_answer(rankings: list[Ranking], transcript: Transcript) -> str:
    question, findings = rankings[0].question, rankings[0].findings
    if is_summary_request(transcript.question):
        return render_summary(transcript.question)
    if question.kind is Kind.CHAT:
        return render_chat(question, findings)
    if not findings.actions:
        lead = "I cannot answer this without the tools `grep`, `find`, `read` and `ls`: I know only what they show me."
        return f"{lead} Allow them and ask again.\n\n{NOTE}"
    text = join_answers([(each.question.text, _RENDER[each.question.kind](each)) for each in rankings])
    return f"(Stopped early: this is what was found until then.)\n\n{text}" if transcript.wrap_up else text


def join_answers(answers: list[tuple[str, str]]) -> str:
    """Answers to several questions as one text with one footer."""
    if len(answers) == 1:
        return answers[0][1]
    parts: list[str] = []
    footer = ""
    for asked, text in answers:
        body, _, footer = text.rpartition("\n---\n")
        sure = footer.partition(".")[0].removeprefix("Confidence: ")
        parts.append(f"### {asked.rstrip('?')}? ({sure})\n{body.strip()}\n")
    rest = footer.partition(". ")[2]
    return "\n".join([*parts, f"---\n{rest}"])


def _estimate_usage(request: ModelRequest, text: str, calls: list[ToolCall]) -> Usage:
    """Four characters per token; no cost."""
    size = len(request.system)
    for message in request.messages:
        content = getattr(message, "content", "")
        blocks = [] if isinstance(content, str) else content
        size += len(content) if isinstance(content, str) else 0
        size += sum(len(getattr(block, "text", "") or str(getattr(block, "arguments", ""))) for block in blocks)
    output = len(text) + sum(len(json.dumps(call.arguments)) for call in calls)
    return Usage(input=size // 4, output=output // 4, total_tokens=size // 4 + output // 4)


def _write(draft: Draft, text: str, calls: list[ToolCall]) -> None:
    index = draft.open_text()
    if draft.watcher is None:
        draft.add(index, text)
    else:
        for piece in re.findall(r"(?:\S+\s*){1,4}|\s+", text):
            draft.add(index, piece)
    draft.close_text(index)
    for call in calls:
        index = draft.open_call(call.id, call.name)
        draft.add(index, json.dumps(call.arguments))
        draft.close_call(index, call)
