"""The tool `get_subagent_result`: returns the status, the output so far and the result of a run."""

import asyncio
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from retinue.core.figures import format_duration, format_tokens
from retinue.core.model import ToolSpec
from retinue.core.receipt import describe_receipts, render_receipts
from retinue.core.run import Run
from retinue.core.tool import ToolContext, ToolResult
from retinue.engine.notify import QUESTION_TYPE
from retinue.surfaces.base import Caller
from retinue.surfaces.fleet.ports import FleetTool, Refusal, tell_missing
from retinue.surfaces.fleet.question import ANSWER_HINT, render_question_block
from retinue.surfaces.fleet.status import ACTIVE, describe_machine, explain_error, name_agent, note_status, to_word
from retinue.tools.files.ripgrep import find_ripgrep
from retinue.tools.registry import load_description

WaitEnd: TypeAlias = Literal["finished", "timeout", "message", "question"]
POLL_S = 1.0
NO_OUTPUT = "No output."
MAX_CHARS = 20_000
_UNTOLD = (
    "Read a background agent: its status, what it has used, and its result once it is done. Use it with wait for the "
    "result, with peek for a look at the last lines of a long run, or with verbose for the whole conversation."
)


def limit_wait(caller: Caller, timeout_s: float) -> float:
    """Return how long a call may wait without exceeding the idle or tool limit of its own run."""
    live = caller.manager.live(caller.run_id)
    return timeout_s if live is None else live.setup.limits.bound_wait(timeout_s)


async def wait_for_run(caller: Caller, run_id: str, timeout_s: float) -> WaitEnd:
    """Wait until the run is finished. Cancelling does not affect the run."""
    run = caller.manager.find(run_id)
    if run is None or run.status.is_final:
        return "finished"
    async with asyncio.TaskGroup() as group:
        finish = group.create_task(caller.manager.wait(run_id))
        watch = group.create_task(_watch(caller, run, timeout_s))
        await asyncio.wait((finish, watch), return_when=asyncio.FIRST_COMPLETED)
        # A run that ends at the same moment as the timeout counts as finished.
        ended: WaitEnd = "finished" if finish.done() or not watch.done() else watch.result()
        finish.cancel()
        watch.cancel()
    return ended


async def _watch(caller: Caller, run: Run, timeout_s: float) -> WaitEnd:
    """Wait for the timeout, a steering message of the user in the caller's inbox, or a question that waits for it."""
    clock, ends_s = caller.clock, caller.clock.steady_s() + timeout_s
    while True:
        live = caller.manager.live(caller.run_id)
        if live is not None and live.inbox.has_words:
            return "message"
        is_asked = run.questions and run.parent_id == caller.run_id
        if is_asked or (live is not None and live.inbox.has_report(QUESTION_TYPE)):
            return "question"
        rest_s = ends_s - clock.steady_s()
        if rest_s <= 0:
            return "timeout"
        await clock.sleep(min(POLL_S, rest_s))


class ResultTool(FleetTool):
    hint = "Read what a background agent has found"

    @cached_property
    def spec(self) -> ToolSpec:
        wait_s = self._ports.settings.wait_timeout_s
        peek = {
            "type": "object",
            "description": "Only some lines of its output; the result counts as unread",
            "properties": {
                "lines": {"type": "integer", "minimum": 1, "description": "The last so many; default 20, at most 200"},
                "regex": {"type": "string", "description": "Only lines that match"},
                "after": {"type": "integer", "minimum": 0, "description": "Only lines after this number"},
            },
        }
        properties = {
            "agent_id": {"type": "string", "description": "The whole ID, as Agent returned it"},
            "wait": {"type": "boolean", "description": f"Wait until it is done, at most {wait_s:g} seconds"},
            "verbose": {"type": "boolean", "description": "Add its whole conversation"},
            "peek": peek,
        }
        parameters = {"type": "object", "properties": properties, "required": ["agent_id"]}
        text = load_description(__file__) if self._ports.settings.notifies else _UNTOLD
        return ToolSpec("get_subagent_result", text, parameters)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Wait if requested, then render; the result of a finished run counts as read."""
        run_id = str(arguments.get("agent_id", "")).strip()
        verbose, peek = arguments.get("verbose") is True, arguments.get("peek")
        ended: WaitEnd = "finished"
        if self._caller.find_run(run_id) is not None and arguments.get("wait") is True:
            ended = await wait_for_run(self._caller, run_id, self._find_wait_s())
        run = self._caller.find_run(run_id)
        if run is None:
            return Refusal(tell_missing(run_id)).to_result()
        if isinstance(peek, dict) and not verbose:
            return ToolResult.of(await self._peek(run, peek, context.cwd), self._detail(run))
        text = self._render(run, ended, verbose=verbose)
        # A grandchild's result is for the run that started it, even if this run sees it first.
        if run.status.is_final and run.parent_id == self._caller.run_id:
            self._caller.manager.read(run.id, by_call=context.call_id)
        return ToolResult.of(text, self._detail(run))

    def _render(self, run: Run, ended: WaitEnd, *, verbose: bool) -> str:
        body = render_body(run, ended, self._find_wait_s(), notifies=self._ports.settings.notifies)
        asked = "".join(f"{render_question_block(question)}\n" for question in run.questions)
        text = f"{self.render_head(run)}\n\n{f'{asked}{ANSWER_HINT}' if asked else body}"
        return text + (self._render_conversation(run) if verbose else "")

    def _render_conversation(self, run: Run) -> str:
        from retinue.surfaces.fleet.conversation import load_messages, render_conversation

        if (messages := load_messages(self._caller, run)) is None:
            return ""
        return f"\n\n--- Agent Conversation ---\n{bound_text(render_conversation(messages), run.output_file)}"

    def render_head(self, run: Run) -> str:
        ports, word = self._ports, to_word(run)
        figures = ports.measure(run)
        duration = format_duration(figures.duration_ms)
        parts = [
            f"Type: {name_agent(run)}",
            f"Status: {word}{note_status(run)}",
            f"Tool uses: {run.tool_uses}",
            f"{format_tokens(figures.tokens)} token" if figures.tokens else "",
            f"Context: {figures.percent}%" if figures.percent is not None else "",
            f"Compactions: {run.compactions}" if run.compactions else "",
            f"Duration: {duration}{' (running)' if word == 'running' else ''}" if word != "queued" else "",
        ]
        lines = [f"Agent: {run.id}", " | ".join(filter(None, parts)), f"Description: {run.description}"]
        return "\n".join((*lines, f"Output file: {run.output_file}") if run.output_file else lines)

    def _find_wait_s(self) -> float:
        return limit_wait(self._caller, self._ports.settings.wait_timeout_s)

    async def _peek(self, run: Run, given: dict[str, Any], cwd: Path) -> str:
        from retinue.surfaces.fleet.peek import Peek, read_transcript, render_peek

        peek = Peek.of(given)
        result = render_result_text(run)
        program = find_ripgrep(cwd) if peek.regex else ""
        if run.status.is_final and result:
            return await render_peek(peek, result.splitlines(), "result", program)
        lines = read_transcript(Path(run.output_file)) if run.output_file else ()
        return await render_peek(peek, lines, "live output file", program)

    def _detail(self, run: Run) -> dict[str, Any]:
        place = describe_machine(run.machine) if run.machine else {}
        details = {"agentId": run.id, "status": to_word(run), "description": run.description, **place}
        return details | describe_result(run)


def describe_result(run: Run) -> dict[str, Any]:
    """Return what programs get of a finished run: the result as data, if it has one, and what the host saw."""
    outcome = run.outcome
    if outcome is None:
        return {}
    structured = {} if outcome.structured is None else {"structured": outcome.structured}
    return structured | describe_receipts(outcome.verification, outcome.receipts)


def find_verdict(run: Run) -> str | None:
    """Return whether a run was verified or not; None if nothing had to verify it, or it could not be verified."""
    verification = "not verified" if run.outcome is None else run.outcome.verification
    return None if verification == "not verified" else verification


def render_seen(run: Run) -> str:
    """Return what the host saw of a run, in a few words; empty if there is nothing to say."""
    return "" if run.outcome is None else render_receipts(run.outcome.verification, run.outcome.receipts)


def render_result_text(run: Run) -> str:
    outcome = run.outcome
    if outcome is None:
        return ""
    return "\n\n".join(filter(None, (outcome.text.strip(), outcome.notes.strip())))


def render_body(run: Run, ended: WaitEnd = "finished", wait_s: float = 0.0, *, notifies: bool = True) -> str:
    """Return the result, or why there is none yet. Each part is truncated."""
    word, outcome = to_word(run), run.outcome
    if word in ACTIVE or outcome is None:
        return _tell_active(word, ended, wait_s, notifies=notifies)
    # Notes about its changes are truncated separately, so they are not lost.
    parts = (outcome.text.strip(), outcome.notes.strip(), render_seen(run))
    bounded = (bound_text(part, run.output_file) for part in parts if part)
    result = "\n\n".join(bounded)
    if word != "error":
        return result or NO_OUTPUT
    text = f"Error: {bound_text(explain_error(run), run.output_file)}"
    return f"{text}\n\nPartial output before the failure:\n{result}" if result else text


def _tell_active(word: str, ended: WaitEnd, wait_s: float, *, notifies: bool) -> str:
    doing = "still waiting for a place in the queue" if word == "queued" else "still running"
    end = "you will be notified when it is done" if notifies else "call this again with wait to get its result"
    if ended == "timeout":
        return (
            f"The agent was {doing} after {wait_s:g} seconds, so this call stopped waiting. The agent was NOT stopped: "
            f"{end}."
        )
    if ended == "message":
        return (
            "The user has said something, so this call stopped waiting. The agent was NOT stopped: "
            f"{end}. Answer the user first."
        )
    if ended == "question":
        return (
            "Another agent asks you something, so this call stopped waiting. The agent was NOT stopped: "
            f"{end}. Answer the question first."
        )
    if not notifies:
        return f"The agent is {doing}. Do other work meanwhile, then {end}."
    return (
        f"The agent is {doing}. You will be notified when it is done: do other work meanwhile, "
        "or call this again with wait if you need the result now."
    )


def bound_text(text: str, output_file: str = "") -> str:
    """Truncate a text, with a line that says how much is missing and where the whole text is."""
    if len(text) <= MAX_CHARS:
        return text
    where = f" The whole of it is in {output_file}" if output_file else " peek shows other parts of it"
    return f"{text[:MAX_CHARS]}\n\n[{len(text) - MAX_CHARS} characters left out.{where}]"
