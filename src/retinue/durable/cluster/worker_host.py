"""Executes a run on a worker for another machine: an ordinary main agent, with a record and remote approvals."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec

from retinue.core.errors import RetinueError, quote
from retinue.core.events import Answered, Asked, Event, RunContinued, RunPaused, Warned
from retinue.core.messages import AssistantMessage, Message, Usage, UserMessage, join_text
from retinue.core.receipt import Receipts
from retinue.core.run import Outcome, Reason, Status
from retinue.durable.cluster.assignment import Assignment, RunMessage, SenderPlaces
from retinue.durable.cluster.remote_approvals import RemoteApprovalFeature, RemoteApprovals
from retinue.durable.cluster.sender import Cluster
from retinue.durable.cluster.shared_budget import SharedBudget
from retinue.durable.cluster.worker import Worker, WorkerJob
from retinue.durable.cluster.worker_events import ChildEvents, RunView
from retinue.durable.cluster.workspace_bundle import WorkspaceBundle
from retinue.durable.trouble import TroubleNotifier
from retinue.engine.budget import Source
from retinue.engine.journal import CREW
from retinue.engine.prompt import CWD, ENVIRONMENT, render_cwd, to_line
from retinue.engine.questions import PendingQuestions
from retinue.engine.setup import Feature
from retinue.features.finalise import FinalizeFeature
from retinue.features.verification import VerificationFeature
from retinue.models.certificates import import_aiohttp

MOST_NAMED = 5
"""Maximum number of former places in the prompt."""


class Agent(Protocol):
    """The main agent that executes a run: a Retinue, where each method is explained."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *error: object) -> None: ...

    @property
    def run_id(self) -> str: ...

    @property
    def questions(self) -> PendingQuestions: ...

    @property
    def session_runs(self) -> RunView: ...

    @property
    def history(self) -> "SessionReader": ...

    async def prompt(self, content: str, *, settle: bool = False) -> Outcome: ...

    async def go_on(self) -> Outcome: ...

    @property
    def limits(self) -> list[tuple[str, int, int]]: ...

    def watch_stall(self, tell: Callable[[bool], None]) -> AbstractContextManager[None]: ...

    def steer(self, content: str) -> None: ...

    def restrict(self, *tools: str, readonly: bool = False, run_id: str = "") -> None: ...

    def demand_judgement(self) -> None: ...

    def abort(self) -> bool: ...

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]: ...


class SessionReader(Protocol):
    """The content of the main agent's session."""

    def list_messages(self) -> list[Message]: ...

    def list_entries(self) -> list[dict[str, Any]]: ...


OpenAgent = Callable[[WorkerJob, Cluster, RemoteApprovals, Sequence[Feature], Callable[[str], None], Source], Agent]
"""Creates the main agent of a run, with additional features; the next function receives which of its tools are missing
here, and the agent with everything it starts draws on the source.
"""


async def run_worker(
    url: str,
    folder: Path,
    open_agent: OpenAgent,
    stop: asyncio.Event,
    say: Callable[[str], None],
    *,
    slots: int,
    total: int | None,
    drain_s: float,
) -> None:
    """Run a worker for the database at `url` until `stop` is set; runs work below `folder`. Raises RetinueError."""
    alarm = TroubleNotifier(say)
    # Shared by all runs that send others; opened by the first of them.
    cluster = Cluster(url, alarm=alarm)

    def open_run(job: WorkerJob) -> HostedRun:
        home = SenderPlaces.of(job.assignment, job.workspace)
        return HostedRun(job, cluster.share(job.keep, job.assignment.leases, home), open_agent)

    worker = Worker(url, open_run, folder, slots=slots, total=total, version=version("retinue"), alarm=alarm)
    if shutil.which("git") is None:
        say("git is not installed on this worker, or not on PATH: runs that need a repository will fail here")
    # Imported now, not when the first runs need it and block everything else.
    await asyncio.to_thread(import_aiohttp)
    await worker.run(stop, drain_s=drain_s)


class HostedRun:
    """One run with its own main agent."""

    def __init__(self, job: WorkerJob, cluster: Cluster, open_agent: OpenAgent) -> None:
        assignment = job.assignment
        self._job = job
        self._assignment = assignment
        self._appeals = RemoteApprovals(
            job.submit,
            assignment.judged,
            is_on=assignment.judged_below,
            on_change=lambda: self._retinue.demand_judgement(),
        )
        # Even without any approvals: the front end may return with rules.
        judged = RemoteApprovalFeature(self._appeals, wants=self._appeals.wants)
        features: list[Feature] = [job.recorded, judged]
        if assignment.finalises or assignment.output_schema is not None:
            features.insert(0, FinalizeFeature(assignment.output_schema, finalises=assignment.finalises))
        # In the folder of the run nothing is compared: its changes come home as a branch.
        features.append(VerificationFeature(assignment.verify, watches=bool(assignment.verify.all)))
        budget = SharedBudget(lambda keys: job.budget.join(cluster.find_shared(keys)), is_limit=bool(assignment.leases))
        self._retinue = open_agent(job, cluster, self._appeals, features, self._tell_missing, budget)
        self._relay: ChildEvents | None = None
        self._early: list[RunMessage] = []
        self._is_open = False
        self._stopped: Reason | None = None
        self._is_waiting = False
        """Whether the run waits for a usage limit of its own model."""
        self._has_stalled = False

    def take(self, word: RunMessage) -> None:
        """Receive a message, even before the start. An invalid one may be a restriction, so the run stops."""
        try:
            self._take(word)
        except (TypeError, ValueError, RetinueError):
            self._stop(Reason.USER)

    def _take(self, word: RunMessage) -> None:
        if word.kind == "ruling":
            self._appeals.take(word.data)
        elif word.kind == "judge":
            self._awaken(word.data)
        elif not self._is_open:
            self._early.append(word)
        elif word.kind == "steer":
            self._retinue.steer(str(word.data.get("text", "")))
        elif word.kind == "answer":
            self._retinue.questions.answer(str(word.data.get("question", "")), str(word.data.get("answer", "")))
        elif word.kind == "restrict":
            self._restrict(word.data)
        elif word.kind == "below":
            self._pass_on(word.data)
        elif word.kind == "stop":
            self._stop(Reason(str(word.data.get("reason", Reason.USER))))

    def _stop(self, reason: Reason) -> None:
        self._stopped = reason
        if self._is_open:
            self._retinue.abort()

    def _pass_on(self, data: dict[str, Any]) -> None:
        """Deliver a message of the front end to a child, if it is still in that attempt."""
        session_runs, verb, run_id = self._retinue.session_runs, data.get("verb"), str(data.get("run", ""))
        run = session_runs.find(run_id)
        if run is None or run.attempt != data.get("attempt"):
            return
        if verb == "steer":
            session_runs.steer(run_id, str(data.get("text", "")))
        elif verb == "stop":
            session_runs.stop(run_id)
        elif verb == "restrict":
            self._restrict(data, run_id)

    def _restrict(self, data: dict[str, Any], run_id: str = "") -> None:
        tools = [str(name) for name in data.get("tools", ())]
        self._retinue.restrict(*tools, readonly=bool(data.get("readonly")), run_id=run_id)

    async def work(self) -> Outcome:
        async with self._retinue as retinue:
            if self._assignment.tells_below:
                own = retinue.run_id, self._assignment.run_id
                self._relay = ChildEvents(
                    own, lambda: retinue.session_runs, self._job.hear, partial(to_sender_outcome, job=self._job)
                )
            stop_listening = retinue.listen(lambda event: self._hear(retinue, event))
            try:
                self._begin(retinue)
                with retinue.questions.attend() if self._assignment.asks else nullcontext():
                    if self._stopped is None:
                        outcome = await self._work(retinue)
                    else:
                        outcome = Outcome(Status.STOPPED, self._stopped)
            finally:
                stop_listening()
                self._is_open = False  # later messages come too late
        if self._stopped is not None and outcome.status is not Status.COMPLETED:
            outcome = msgspec.structs.replace(outcome, status=Status.STOPPED, reason=self._stopped)
        return to_sender_outcome(msgspec.structs.replace(outcome, session_file="", branch=""), self._job)

    async def _work(self, retinue: Agent) -> Outcome:
        with retinue.watch_stall(partial(self._tell_stall, retinue)):
            if self._job.goes_on:
                return _count_all(retinue, await retinue.go_on(), self._assignment.task)
            return await retinue.prompt(self._assignment.task, settle=True)

    def _tell_stall(self, retinue: Agent, is_stalled: bool) -> None:
        """Tell the sender that the run waits because all that it has started waits for a usage limit."""
        run_id = self._assignment.run_id
        if is_stalled and not self._is_waiting:
            until_ms, provider = min((until_ms, provider) for provider, until_ms, _ in retinue.limits)
            self._has_stalled = True
            # Without a gate: what it started may have a key of its own.
            self._job.hear(RunPaused(run_id=run_id, until_ms=until_ms, provider=provider))
        elif self._has_stalled and not is_stalled:
            self._has_stalled = False
            self._job.hear(RunContinued(run_id=run_id))

    def _begin(self, retinue: Agent) -> None:
        """Process early messages, except those that an earlier worker has already delivered."""
        said = Counter(_read_words(retinue)) if self._job.goes_on else Counter[str]()
        said[self._assignment.task] -= 1
        self._appeals.open(_list_calls(retinue) if self._job.goes_on else ())
        self._is_open = True
        early, self._early = self._early, []
        passed_on = _count_passed_on(retinue) if early and self._job.goes_on else Counter[tuple[str, str]]()
        for word in early:
            text = str(word.data.get("text", ""))
            to_whom = str(word.data.get("run", "")), text
            if word.kind == "below" and word.data.get("verb") == "steer" and passed_on[to_whom] > 0:
                passed_on[to_whom] -= 1
                continue
            if word.kind == "steer" and said[text] > 0:
                said[text] -= 1
                continue
            self.take(word)

    def _awaken(self, data: dict[str, Any]) -> None:
        """Start asking the front end for approval, because it has got rules."""
        told = data.get("wants")
        wants = {str(kind): bool(waits) for kind, waits in told.items()} if isinstance(told, dict) else {}
        self._appeals.awaken(wants, is_on=bool(data.get("below")))
        if self._is_open and self._appeals.is_on:
            self._retinue.demand_judgement()

    def _tell_missing(self, text: str) -> None:
        """Report to the sender which tools are missing here."""
        words = f"agent {quote(self._assignment.agent)} on its worker: {text}"
        self._job.hear(Warned(run_id=self._assignment.run_id, text=words))

    def _hear(self, retinue: Agent, event: Event) -> None:
        """Send events of the run under the id that it has at its front end."""
        # Questions of its children are asked in the run's name.
        if event.run_id == retinue.run_id or isinstance(event, Asked | Answered):
            if isinstance(event, RunPaused | RunContinued):
                self._is_waiting = isinstance(event, RunPaused)
            self._job.hear(msgspec.structs.replace(event, run_id=self._assignment.run_id))
        elif self._relay is not None:
            self._relay.hear(event)


def build_sections(assignment: Assignment, workspace: str, former: Sequence[str] = ()) -> dict[str, str]:
    """Return the prompt it was sent with, updated with its current and former folders."""
    home, sections = assignment.cwd, dict(assignment.sections)
    places = [name for name in (ENVIRONMENT, CWD) if name in sections]
    for name in places if home else ():
        sections[name] = sections[name].replace(home, workspace)
    sections |= {} if places else {CWD: render_cwd(workspace)}
    elsewhere = "\n\n".join(filter(None, (_tell_place(assignment), _tell_former(workspace, former))))
    told = {"elsewhere": elsewhere, "missing": _tell_missing(assignment)}
    return {**sections, **{name: text for name, text in told.items() if text}}


def to_sender_outcome(outcome: Outcome, job: WorkerJob) -> Outcome:
    """Replace the worker's paths in an outcome by the sender's."""
    here = job.assignment.cwd
    if not here:
        return outcome
    text, error, notes = outcome.text, outcome.error, outcome.notes
    seen = msgspec.json.encode(outcome.receipts).decode()
    # Longer paths first, because a shorter one may be a prefix.
    for there in sorted({str(job.workspace), *job.former}, key=len, reverse=True):
        text, error, notes, seen = (words.replace(there, here) for words in (text, error, notes, seen))
    receipts = msgspec.json.decode(seen, type=Receipts | None)
    return msgspec.structs.replace(outcome, text=text, error=error, notes=notes, receipts=receipts)


def _tell_place(assignment: Assignment) -> str:
    """Tell the agent that paths from the user refer to another machine."""
    if not assignment.cwd:
        return ""
    return (
        f"# Where you work\nYou work on another machine, in a copy of {to_line(assignment.cwd)}. A path below that "
        "folder means the same path below your own working directory; use that one, and name files relative to it."
    )


def _tell_former(workspace: str, former: Sequence[str]) -> str:
    """Tell the agent where it worked before, because its history contains paths of that place."""
    places = [to_line(place) for place in former if place != workspace][-MOST_NAMED:]
    if not places:
        return ""
    named, folder = " and in ".join(places), "That folder is" if len(places) == 1 else "Those folders are"
    below = "it" if len(places) == 1 else "one of them"
    return (
        f"Before, you worked in {named}. {folder} not here: where a path below {below} was named, the same path below "
        "your working directory is meant. Processes you had started there are gone."
    )


def _tell_missing(assignment: Assignment) -> str:
    """Tell the agent which parts of the workspace could not be sent."""
    notes = msgspec.convert(assignment.parcel, type=WorkspaceBundle).notes
    listed = "\n".join(f"- {note}" for note in notes)
    return f"# What is missing in your workspace\n{listed}" if notes else ""


def _count_passed_on(retinue: Agent) -> Counter[tuple[str, str]]:
    """Count what an earlier worker has already sent to children, by run and text."""
    facts = [entry.get("data") for entry in retinue.history.list_entries() if entry.get("customType") == CREW]
    said = (fact for fact in facts if isinstance(fact, dict) and fact.get("type") == "RunSteered")
    return Counter((str(fact.get("runId")), str(fact.get("text"))) for fact in said)


def _list_calls(retinue: Agent) -> list[str]:
    said = retinue.history.list_messages()
    return [call.id for message in said if isinstance(message, AssistantMessage) for call in message.calls]


def _read_words(retinue: Agent) -> list[str]:
    return [
        join_text(message.content) for message in retinue.history.list_messages() if isinstance(message, UserMessage)
    ]


def _count_all(retinue: Agent, outcome: Outcome, task: str) -> Outcome:
    """Return the outcome with the usage of earlier workers for the same task, taken from the session."""
    usage, turns, calls = Usage(), 0, 0
    for message in retinue.history.list_messages():
        if isinstance(message, UserMessage) and task in join_text(message.content):
            usage, turns, calls = Usage(), 0, 0
        if isinstance(message, AssistantMessage):
            usage, turns, calls = usage + message.usage, turns + 1, calls + len(message.calls)
    return msgspec.structs.replace(outcome, usage=usage, turns=turns, tool_calls=calls)
