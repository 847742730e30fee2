"""The local side of a run on another machine: sends and follows it, sends messages, imports its results."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

import msgspec

from retinue.core.errors import RetinueError, SessionError
from retinue.core.events import (
    Answered,
    Asked,
    Event,
    MessageFinished,
    RunContinued,
    RunForgotten,
    RunPaused,
    RunPlaced,
    RunQueued,
    RunRead,
    RunSteered,
    Warned,
)
from retinue.core.messages import AssistantMessage, UserContent, join_text
from retinue.core.run import BRANCH_PREFIX, Outcome, Question, Reason, Status
from retinue.durable.cluster.approval import Wants
from retinue.durable.cluster.approval_judge import ApprovalJudge, ApprovalListener, is_end
from retinue.durable.cluster.assignment import Assignment, SessionContent, WordKind
from retinue.durable.cluster.branch_import import land
from retinue.durable.cluster.remote_approvals import merge_wants
from retinue.durable.cluster.sender import Cluster
from retinue.durable.cluster.session_copy import SenderSession, bring_files
from retinue.durable.cluster.workspace_bundle import WorkspaceBundle, release
from retinue.durable.session_files import SESSION
from retinue.engine.clock import make_uuid
from retinue.engine.external.command_line import ProcessPurpose
from retinue.engine.loop import Ending
from retinue.engine.remote_children import RemoteChildren
from retinue.engine.run_config import RemoteRequest
from retinue.engine.runner import LiveRun
from retinue.engine.scope import run_shielded
from retinue.engine.setup import RunSetup
from retinue.features.approvals.gate import is_consent
from retinue.features.checkpoint.feature import RunCheckpoints
from retinue.features.finalise import check_result
from retinue.features.verification import VerificationFeature, VerifyOptions
from retinue.features.worktree.feature import RULE, add_commit, render_kept
from retinue.features.worktree.saved_work import KeptCopy
from retinue.sessions.entry import check_session_id
from retinue.sessions.log import Session

if TYPE_CHECKING:
    from retinue.durable.cluster.backend import ClusterPorts

GOODBYE_S = 5.0
"""Time for a stopped run to report how far it came."""
_THERE = ("worktree", "sandbox", "lsp-diagnostics", "finalising", "verification", "deferred tools")
"""Features that work where the tools are; the worker adds them itself."""
_NAMESPACE = UUID("6c9b7a3e-2f0d-4a57-9a31-5d3c0e8f4b12")
"""For the ids of sessions that are created on workers."""
_OURS = (RunForgotten, RunPlaced, RunQueued, RunRead, RunSteered)
"""Events published by the parent of a run, never by the run."""
RULED_S = 5.0
"""Time to deliver the remaining notices after a run has ended."""


class RemoteRun(LiveRun):
    """A run on a worker. Its local session is a copy in memory of the events received."""

    def __init__(
        self,
        setup: RunSetup,
        remote_request: RemoteRequest,
        ports: "ClusterPorts",
        cluster: Cluster,
        children: RemoteChildren,
        content: SessionContent,
    ) -> None:
        """`children` receives what the run's own children do; `content` begins its session, except for the id."""
        clock = ports.clock
        identity = find_session_id(setup.run_id, remote_request.session_file)
        memory = Session.create(cwd=setup.cwd, directory=None, session_id=identity, clock=clock, new_id=make_uuid)
        watching = [each for each in setup.features if isinstance(each, VerificationFeature)]
        self._verify = watching[0].options if watching else VerifyOptions()
        features = [feature for feature in setup.features if feature.name not in _THERE]
        limits = setup.limits.drop_clock()
        super().__init__(setup.change(features=features, limits=limits), memory, clock=clock)
        self._limits = setup.limits
        self._home = SenderSession(remote_request.session_file, is_shared=bool(remote_request.request.session_file))
        self._finalises = remote_request.definition.completion == "finalize"
        self._schema = remote_request.definition.output_schema or remote_request.request.output_schema
        self._request = remote_request
        self._purpose = ProcessPurpose(remote_request, setup.model.info.ref, setup.thinking)
        self._context = ports.build_process_context(setup.cwd)
        self._cluster_ports = ports
        self._cluster = cluster
        self._children = children
        self._content = content
        self._open_child = partial(ports.open_below, setup)
        self._has_user = ports.questions.has_frontend
        self._words: asyncio.Queue[tuple[WordKind, dict[str, Any]]] = asyncio.Queue()
        self._losses: list[tuple[WordKind, dict[str, Any]]] = []
        """Revocations of tools that are not sent yet."""
        self._has_demand = asyncio.Event()
        self._worker = ""
        self._is_stalled = False
        """Whether a usage limit keeps everything from working that the run started on its worker."""
        self._text = ""
        self._seq = 0
        """Number of the last event received."""
        self._ended: Outcome | None = None

    def steer(self, content: str | Sequence[UserContent]) -> None:
        """Send a message that the run receives before its next reply."""
        self._words.put_nowait(("steer", {"text": join_text(content)}))

    def restrict(self, tools: Sequence[str], *, readonly: bool) -> None:
        """Revoke tools of the run and of everything it has started."""
        self._lose("restrict", {"tools": list(tools), "readonly": readonly})

    def pass_on(self, run_id: str, verb: str, data: Mapping[str, Any]) -> None:
        """Send a message to a child of the run through its worker."""
        word = {**data, "run": run_id, "verb": verb}
        if verb == "restrict":
            self._lose("below", word)
        else:
            self._words.put_nowait(("below", word))

    def _lose(self, kind: WordKind, loss: dict[str, Any]) -> None:
        self._losses.append((kind, loss))
        self._words.put_nowait((kind, loss))

    def demand_judgement(self) -> None:
        """Check again whether more calls need approval."""
        self._has_demand.set()

    async def _work(self, blocks: list[UserContent]) -> Ending:
        self._begin()
        self._ended, self._text, self._worker, self._is_stalled = None, "", "", False
        judge = ApprovalJudge(self.setup, self._open_child)
        # Reviewers that can make the run continue are asked by the worker, where it continues.
        self.setup = self.setup.change(reviewers=[each for each in self.setup.reviewers if not is_end(each)])
        try:
            with self._home.hold():
                self._ended = await self._travel(self._assign(join_text(blocks), judge.wants), judge)
        except RetinueError as error:
            return Ending(Reason.ERROR, error=str(error))
        return Ending(self._ended.reason, error=self._ended.error)

    async def _travel(self, sent: Assignment, judge: ApprovalJudge) -> Outcome:
        """Send the run, follow it and import its results."""
        cluster, remote_request = self._cluster, self._request
        past = await asyncio.to_thread(self._home.read) or cluster.recall(self.setup.run_id)
        try:
            # First, because packing and the first connection take a while.
            self._publish(RunPlaced(run_id=self.setup.run_id))
            sent = await cluster.send(sent, remote_request.lease, self.setup.cwd, remote_request.branch, past)
            self._ended = check_result(await self._accompany(sent, judge), self._schema)
            await self._deliver(sent)
        except asyncio.CancelledError:
            await run_shielded(judge.close(), RULED_S)
            await run_shielded(self._say_losses(sent.id), GOODBYE_S)
            # Only a stop is meant for the run; if this front end just leaves, the run continues for the next one.
            if self._scope.reason is not None:
                await run_shielded(self._stop(sent), GOODBYE_S)
            raise
        return self._ended

    def _assign(self, task: str, judged: Wants) -> Assignment:
        setup, request, agent = self.setup, self._request.request, self._request.definition.name
        tools, missing = self._purpose.list_tools(setup, self._context)
        for reason in missing:
            self._publish(Warned(run_id=setup.run_id, text=f"agent {agent}: {reason}; the agent runs without it"))
        return Assignment(
            run_id=setup.run_id,
            attempt=self._request.attempt,
            agent=agent,
            description=request.description,
            # Counted from the first front end across all workers; otherwise a run could wait for a place that it
            # occupies.
            depth=int(setup.environment.get("PI_SUBAGENT_DEPTH", 1)),
            task=task,
            sections=tuple(setup.sections.items()),
            session=self._home.name,
            cwd=str(setup.cwd),
            tools=tuple(tools),
            names=self._purpose.list_names(setup, tools),
            refusals=dict(setup.refusals),
            cover=msgspec.structs.replace(self._content, id=self.session.id),
            model=setup.model.info.ref,
            thinking=setup.thinking,
            marks={**self._context.marks, **self._purpose.render_marks(setup), "PI_SUBAGENT_CHILD": "1"},
            trusted=bool(self._context.trusted),
            limits=self._limits,
            priority=2 if request.is_background else 1,
            asks=self._has_user,
            judged=judged,
            judged_below=self._cluster_ports.guards_below(),
            tells_below=True,
            finalises=self._finalises,
            output_schema=self._schema,
            verify=self._verify,
        )

    async def _accompany(self, sent: Assignment, judge: ApprovalJudge) -> Outcome:
        """Process events, messages and approvals until the run ends."""
        run, self._seq = sent.id, 0
        listener = ApprovalListener(self._cluster, sent.id, judge, lambda: self._cluster_ports.questions.has_frontend)
        async with asyncio.TaskGroup() as group:
            speaking = group.create_task(self._speak(run))
            asked: dict[str, asyncio.Task[None]] = {}
            judging = group.create_task(self._oversee(sent, judge, listener))
            while True:
                news = await self._cluster.follow(run, self._seq)
                self._seq = news.seq
                if news.worker != self._worker:
                    self._worker = news.worker
                    if self._is_stalled:
                        self._take(RunContinued(run_id=self.setup.run_id))  # the one that waited is gone
                    self._publish(RunPlaced(run_id=self.setup.run_id, worker=news.worker))
                for event in news.events:
                    if isinstance(event, Asked):
                        asked[event.question.id] = group.create_task(self._pass_on(event.question, judge))
                    elif isinstance(event, Answered):
                        # The question was withdrawn, or answered before we reconnected.
                        if (task := asked.pop(event.question_id, None)) is not None:
                            task.cancel()
                    elif event.run_id != self.setup.run_id:
                        # The receiver checks which children the worker may report on.
                        self._children.hear(self.setup.run_id, event)
                    elif not isinstance(event, _OURS):
                        # A worker speaks for its run only, not for the main agent or other runs.
                        self._take(event)
                if news.outcome is not None:
                    break
            for task in (speaking, judging, *asked.values()):
                task.cancel()
        if listener.has_begun:
            await run_shielded(listener.close(), RULED_S)
        await self._cluster.forget_events(run)
        return _strip(news.outcome)

    async def _oversee(self, sent: Assignment, judge: ApprovalJudge, listener: ApprovalListener) -> None:
        """Handle approvals as soon as there are local guards, even if there were none when the run was sent."""
        wants, below = dict(sent.judged), sent.judged_below
        async with asyncio.TaskGroup() as group:
            while True:
                self._has_demand.clear()
                known = dict(wants), below
                merge_wants(wants, judge.wants)
                below = below or self._cluster_ports.guards_below()
                if (wants, below) != known:
                    await self._cluster.say(sent.id, "judge", {"wants": wants, "below": below})
                if (wants or below) and not listener.has_begun:
                    listener.has_begun = True
                    group.create_task(listener.run())
                await self._has_demand.wait()

    def _take(self, event: Event) -> None:
        if isinstance(event, MessageFinished) and isinstance(event.message, AssistantMessage):
            self._text = event.message.text if event.message.text.strip() else self._text
            self._request.lease.settle(0, 0.0, event.message.usage)
        if isinstance(event, RunPaused):
            event = self._children.bound(event)
        if isinstance(event, RunPaused | RunContinued):
            self._is_stalled = isinstance(event, RunPaused) and not event.gate
        self._publish(event)

    async def _speak(self, run: str) -> None:
        while True:
            kind, data = await self._words.get()
            await self._cluster.say(run, kind, data)
            if (kind, data) in self._losses:
                self._losses.remove((kind, data))

    async def _say_losses(self, run: str) -> None:
        """Send revocations before this front end leaves, because they apply without it too; repetition is harmless."""
        try:
            while self._losses:
                await self._cluster.say(run, *self._losses[0])
                self._losses.pop(0)
        except RetinueError:
            return

    async def _pass_on(self, question: Question, judge: ApprovalJudge) -> None:
        """Ask the local user a question of the run, under the run's name."""
        agent = self._request.definition.name
        mine = msgspec.structs.replace(question, run_id=self.setup.run_id, agent=agent)
        answer = await self._cluster_ports.questions.ask(mine) if self._has_user else question.default
        if question.kind == "approval" and is_consent(answer):
            judge.spare(question.tool, question.text)
        self._words.put_nowait(("answer", {"question": question.id, "answer": answer}))

    async def _stop(self, sent: Assignment) -> None:
        """Stop the run, wait for how far it came, and import what it has."""
        cluster = self._cluster
        try:
            if await cluster.withdraw(sent.id):
                await release(self.setup.cwd, msgspec.convert(sent.parcel, type=WorkspaceBundle))
                return
            await cluster.say(sent.id, "stop", {"reason": str(self._scope.reason or Reason.USER)})
            while self._ended is None:
                news = await cluster.follow(sent.id, self._seq)
                self._seq = news.seq
                for event in news.events:
                    if event.run_id != self.setup.run_id:
                        self._children.hear(self.setup.run_id, event)
                self._ended = None if news.outcome is None else _strip(news.outcome)
            await self._deliver(sent)
        except RetinueError:
            return

    async def _deliver(self, assignment: Assignment) -> None:
        """Store its session and put its changes on a branch."""
        assert self._ended is not None
        cluster, keeps_session, setup = self._cluster, bool(self._request.session_file), self.setup
        pieces = await cluster.read_files(setup.run_id, SESSION) if keeps_session else []
        own = b"".join(data for path, _, data in pieces if path == assignment.session)
        file = await self._keep_session(own)
        for text in await bring_files(pieces, assignment.session, partial(self._children.find_file, setup.run_id)):
            self._publish(Warned(run_id=setup.run_id, text=text))
        branch, problem = "", ""
        states = await cluster.read_states(assignment)
        bundle_info = msgspec.convert(assignment.parcel, type=WorkspaceBundle)
        try:
            branch = await land(
                setup.cwd,
                bundle_info,
                states,
                f"{BRANCH_PREFIX}{setup.run_id}",
                description=assignment.description,
                find_bundle=lambda: cluster.read_bundle(assignment.digest),
            )
        except RetinueError as error:
            remedy = f"when that is fixed, run: retinue cluster fetch {setup.run_id}"
            problem = f"Its changes are only in the cluster's database: {error}; {remedy}"
            self._publish(Warned(run_id=setup.run_id, text=problem))
        for each in self.setup.features:
            if isinstance(each, RunCheckpoints):
                each.base = bundle_info.commit
        is_home = not problem and (bool(file) or not own)
        await cluster.mark_delivered(assignment, keeps_session=keeps_session, has_changes=is_home)
        notes = _render_notes(self._ended.notes, KeptCopy(branch), problem)
        receipts = await add_commit(self._ended.receipts, str(setup.cwd), bundle_info.commit, branch)
        known = {"session_file": file, "branch": branch, "notes": notes, "receipts": receipts}
        self._ended = msgspec.structs.replace(self._ended, **known)

    async def _keep_session(self, data: bytes) -> str:
        """Store the session and return its path; a failure is reported and costs neither result nor branch."""
        try:
            return await asyncio.to_thread(self._home.write, data)
        except SessionError as error:
            self._publish(
                Warned(run_id=self.setup.run_id, text=f"its session is only in the cluster's database: {error}")
            )
            return ""

    def _judge(self, ending: Ending) -> Outcome:
        """Return the run's own outcome, or one made here if it has none."""
        if self._ended is not None:
            return self._ended
        reason = ending.reason
        stopped = Status.INTERRUPTED if reason is Reason.PARENT else Status.STOPPED
        status = Status.FAILED if reason in (Reason.ERROR, Reason.CRASH) else stopped
        return Outcome(status, reason, text=self._text, error=ending.error)


def _strip(outcome: Outcome) -> Outcome:
    """Remove what a worker must not decide: files and branches on this machine."""
    return msgspec.structs.replace(outcome, session_file="", branch="")


def find_session_id(run_id: str, session_file: str) -> str:
    """Return the id of a run's session: that of the file it continues, else one that every front end derives."""
    if session_file and (identity := _read_id(Path(session_file))):
        return identity
    # An attempt with another file has another session.
    return str(uuid5(_NAMESPACE, f"{run_id}/{Path(session_file).name}"))


def _read_id(path: Path) -> str:
    try:
        head = SenderSession(str(path), is_shared=False).read_head()
        return check_session_id(str(msgspec.json.decode(head, type=dict)["id"]))
    except (KeyError, msgspec.DecodeError, RetinueError):
        return ""


def _render_notes(told: str, kept: KeptCopy, problem: str) -> str:
    """Render what is appended to the result: the worker's notes, and where the changes are."""
    lines = [told.strip().removeprefix(RULE.strip()).strip(), *render_kept(kept), problem]
    text = "\n".join(filter(None, lines))
    return f"{RULE}{text}" if text else ""
