"""Reads a finished or saved session with all its runs: messages, time spans, usage and cost. Read-only."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from retinue.core.errors import SessionError
from retinue.core.messages import (
    AssistantMessage,
    Message,
    TextContent,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.core.model import ModelInfo
from retinue.core.receipt import Receipts, Verification
from retinue.core.run import Run
from retinue.settings.request import Request

if TYPE_CHECKING:
    from retinue.sessions.log import Session

Kind = Literal["waiting", "model", "tool"]


class TimeSpan(Struct, frozen=True):
    """A period in which a run waited, called a model or ran a tool."""

    kind: Kind
    start_ms: int
    end_ms: int
    label: str = ""


class ConversationReport(Struct):
    """One conversation: that of the main agent or of a run."""

    id: str
    title: str
    agent: str = ""
    parent_id: str = ""
    depth: int = 0
    status: str = ""
    error: str = ""
    model: str = ""
    messages: list[Message] = []
    spans: list[TimeSpan] = []
    usage: Usage = Usage()
    turns: int = 0
    tool_uses: int = 0
    verification: Verification = "not verified"
    receipts: Receipts | None = None

    @property
    def start_ms(self) -> int:
        """Start of the first span; 0 if there are none."""
        return min((span.start_ms for span in self.spans), default=0)

    @property
    def end_ms(self) -> int:
        """End of the last span; 0 if there are none."""
        return max((span.end_ms for span in self.spans), default=0)


class SessionReport(Struct):
    """A whole session: the main conversation and its runs."""

    session_id: str
    title: str
    cwd: str
    created: str
    path: str
    main: ConversationReport
    runs: list[ConversationReport]
    """In the order they were requested."""
    damage: str = ""

    @property
    def chapters(self) -> list[ConversationReport]:
        """All conversations, the main agent's first."""
        return [self.main, *self.runs]

    def measure_savings(self, models: Iterable[ModelInfo] = ()) -> dict[str, float]:
        """Return the dollars that the prompt cache saved, by the id of the conversation; `models` have the prices."""
        from retinue.views.session_cost import measure_savings

        saved = measure_savings([(chapter.model, chapter.usage) for chapter in self.chapters], models)
        return {chapter.id: each for chapter, each in zip(self.chapters, saved, strict=True)}

    def map_children(self) -> dict[str, list[ConversationReport]]:
        """Runs by the id of their parent, in order; runs with an unknown parent belong to the main agent."""
        known = {chapter.id for chapter in self.chapters}
        below: dict[str, list[ConversationReport]] = {}
        for run in self.runs:
            below.setdefault(run.parent_id if run.parent_id in known else self.main.id, []).append(run)
        return below


def find_session_file(reference: str, request: Request) -> str:
    """Find a session file by path, id or id prefix; without a reference, the newest of this folder.

    Raises SessionError.
    """
    from retinue.sessions.search import find_recent, find_session
    from retinue.settings.layers import load_settings
    from retinue.settings.paths import find_paths, find_session_dir

    paths = find_paths(".", os.environ)
    setting = load_settings(paths, os.environ, approve=request.approve).settings.session_dir
    flag = request.session.directory or None
    directory = find_session_dir(paths, os.environ, flag=flag, setting=setting)
    if reference:
        return str(find_session(reference, directory=directory, agent_dir=paths.agent_dir, cwd=paths.cwd))
    found = find_recent(directory, str(paths.cwd))
    if found is None:
        raise SessionError("this folder has no sessions; see retinue sessions --all")
    return str(found)


def read_report(path: str | Path) -> SessionReport:
    """Read a session and the sessions of all its runs. Raises SessionError if the main session cannot be read."""
    from retinue.engine.clock import SystemClock, make_uuid
    from retinue.engine.journal import CREW
    from retinue.engine.recovery import read_remains
    from retinue.sessions.log import Session

    session = Session.open(path, clock=SystemClock(), new_id=make_uuid, read_only=True)
    try:
        main = ConversationReport("main", session.name, agent="main")
        _read_session(session, main)
        remains = read_remains(session.customs(CREW))
        is_own = _is_own(Path(path))
        runs = [*remains.past.values(), *remains.runs.values()]
        return SessionReport(
            session_id=session.id,
            title=session.name or _find_title(main.messages),
            cwd=session.cwd,
            created=str(session.header.get("timestamp", "")),
            path=str(path),
            main=main,
            runs=[_read_run(run, Path(path), is_own=is_own) for run in runs],
            damage=str(session.damage) if session.damage else "",
        )
    finally:
        session.close()


def _is_own(path: Path) -> bool:
    """Whether the session is in our own folder. Any other session must not choose which files are read with it."""
    from retinue.settings.paths import find_agent_dir, find_home

    folder = find_agent_dir(os.environ, find_home(os.environ))
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _read_run(run: Run, main: Path, *, is_own: bool) -> ConversationReport:
    from retinue.engine.clock import SystemClock, make_uuid
    from retinue.sessions.log import Session

    outcome = run.outcome
    chapter = ConversationReport(
        run.id,
        run.description,
        agent=run.agent,
        parent_id=run.parent_id if run.depth > 1 else "main",
        depth=run.depth,
        status=str(run.status),
        error=outcome.error if outcome is not None else "",
        usage=run.usage if run.status.is_final else Usage(),
    )
    if outcome is not None:
        chapter.verification, chapter.receipts = outcome.verification, outcome.receipts
    if run.queued_ms and run.started_ms > run.queued_ms:
        chapter.spans.append(TimeSpan("waiting", run.queued_ms, run.started_ms, "queued"))
    told = outcome.session_file if outcome is not None and is_own else ""
    path = Path(told) if told else main.with_suffix("") / run.id / "session.jsonl"
    try:
        session = Session.open(path, clock=SystemClock(), new_id=make_uuid, read_only=True)
    except SessionError as error:
        chapter.error = chapter.error or str(error)
        return chapter
    try:
        _read_session(session, chapter)
    finally:
        session.close()
    return chapter


def _read_session(session: "Session", chapter: ConversationReport) -> None:
    """Fill a chapter with everything on the session's branch, including what was compacted."""
    from retinue.sessions.view import parse_time_ms, to_messages
    from retinue.views.session_cost import sum_by_model

    begun = dict[str, int]()
    for entry in session.drop_inherited(session.entries()):
        at_ms = parse_time_ms(entry.timestamp)
        for message in to_messages(entry):
            chapter.messages.append(message)
            if isinstance(message, AssistantMessage):
                chapter.turns += 1
                chapter.model = f"{message.provider}/{message.model}"
                chapter.spans.append(TimeSpan("model", min(message.timestamp, at_ms), at_ms, message.model))
                begun.update({call.id: at_ms for call in message.calls})
            elif isinstance(message, ToolResultMessage):
                chapter.tool_uses += 1
                start_ms = begun.pop(message.tool_call_id, at_ms)
                chapter.spans.append(TimeSpan("tool", start_ms, max(start_ms, message.timestamp), message.tool_name))
    if chapter.usage == Usage():  # the main agent, or a run that has not ended
        chapter.usage = sum(sum_by_model(session).values(), Usage())


def _find_title(messages: Iterable[Message]) -> str:
    for message in messages:
        if isinstance(message, UserMessage):
            content = message.shown
            texts = [content] if isinstance(content, str) else [b.text for b in content if isinstance(b, TextContent)]
            return " ".join(" ".join(texts).split())[:80]
    return "empty session"
