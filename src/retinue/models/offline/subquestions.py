"""Which questions are worth several agents, and what each of them is asked. Pure text.

A prompt stands alone: what its "it" means, and what the question as a whole is about, is said behind it. This file must
not know messages or reports.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from retinue.core.messages import ToolCall
from retinue.core.model import ToolSpec
from retinue.models.offline import cues
from retinue.models.offline.errands import FETCH, START
from retinue.models.offline.question import Kind, Question, parse_question

AGENT = "Explore"
MAX_ERRANDS = 5
_SEARCHED = (Kind.WHERE, Kind.HOW, Kind.USES, Kind.FILE, Kind.FILES)
"""Kinds that cost searches of their own; the others look at the same few files."""
_FIXED = {Kind.OVERVIEW: "Describe the project", Kind.RUN: "Find the commands"}
_VERBS = {
    Kind.WHERE: "Find",
    Kind.HOW: "Trace",
    Kind.USES: "Find uses of",
    Kind.FILE: "Outline",
    Kind.FILES: "List files for",
    Kind.FACT: "Look up",
}
_FACETS = (
    "What does this project do?",
    "What are the entry points?",
    "How do I run the tests?",
    "Which dependencies does it have?",
)
_CHILD = re.compile(r"<active_agent |\byou are (?:now )?a sub-?agent\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Task:
    """What one agent is to find out."""

    description: str
    prompt: str

    def to_call(self, call_id: str, model: str) -> ToolCall:
        """The call that starts it; it runs on the same rules, so that nothing leaves the machine."""
        arguments = {"subagent_type": AGENT, "description": self.description, "prompt": self.prompt, "model": model}
        return ToolCall(call_id, START, arguments)


def can_delegate(tools: Sequence[ToolSpec], system: str) -> bool:
    """Whether there is somebody to ask; who was asked itself asks nobody."""
    specs = {tool.name: tool for tool in tools}
    if not {START, FETCH} <= specs.keys() or _CHILD.search(system):
        return False
    return re.search(rf"\b{AGENT}\b", specs[START].description) is not None


def split_work(text: str, questions: Sequence[Question]) -> list[Task]:
    """The parts worth an agent each; none when one agent does as well."""
    if any(question.change or question.kind is Kind.CHAT for question in questions):
        return []
    if len(questions) > 1:
        if sum(question.kind in _SEARCHED for question in questions) < 2:
            return []
        return [Task(describe(question), to_prompt(question)) for question in questions[:MAX_ERRANDS]]
    sides = cues.COMPARE.search(text)
    if sides is not None:
        asked = [f"How does {side.strip(' ,')} work?" for side in sides.groups() if side]
    else:
        asked = list(_FACETS) if cues.WHOLE.search(text) else []
    return [Task(describe(parse_question(each)), each) for each in asked]


def to_prompt(question: Question) -> str:
    """The question so that it can be understood alone."""
    text = question.text.strip().rstrip(" ?.!,;")
    text = text[:1].upper() + text[1:] + ("?" if cues.ASKING.match(text) else ".")
    about: list[str] = []
    marked = [(name, f"`{name}`") for name in (*question.symbols, *question.phrases)]
    bare = [(name, name) for name in (*question.paths, *(concept.word for concept in question.concepts))]
    for name, written in (*marked, *bare):
        if name.lower() not in f"{text} {' '.join(about)}".lower():
            about.append(written)
    return f"{text} (This is about {', '.join(about)}.)" if about else text


def describe(question: Question) -> str:
    """Three to five words for a list."""
    if question.kind in _FIXED:
        return _FIXED[question.kind]
    names = [*question.symbols, *question.paths, *question.phrases]
    known = {name.lower() for name in names}
    names += [concept.word for concept in question.concepts if concept.word.lower() not in known]
    verb = _VERBS[question.kind].split()
    words = [*verb, *names[: max(1, 4 - len(verb))]]
    return " ".join(words if len(words) > 2 else [*words, "in", "code"])[:60]
