"""`retinue run AGENT TASK`: run one agent and print its answer, or with `--json` the whole tool result."""

import json
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.app import Request, Retinue, SessionWish
from retinue.cli.headless import Headless, run_until_done
from retinue.cli.options import Options
from retinue.cli.prompts import STDIN_WAIT_S, read_stdin
from retinue.cli.trust import ask_trust
from retinue.cli.voice import print_json, say
from retinue.core.errors import RetinueError, UsageError
from retinue.core.events import Event, RunStarted

if TYPE_CHECKING:
    from retinue.serve.progress import Progress


def run_agent(options: Options) -> int:
    if not options.words and not options.json:
        raise UsageError('give an agent and a task, for example: retinue run explorer "Where is the parser?"')
    agent, *words = options.words or [""]
    task = " ".join(words) if words else read_stdin(wait_s=STDIN_WAIT_S)
    if not options.json:
        ask_trust(options)
        return run_until_done(_AgentRun(options, agent, task))
    try:
        return run_until_done(_AgentRun(options, agent, task))
    except RetinueError as error:
        # A program that parses the result gets one even if nothing could be opened.
        print_json(_describe_failure(str(error)))
        return 1


def _describe_failure(text: str) -> dict[str, Any]:
    details = {"mode": "single", "results": [], "error": {"code": "SUBAGENT_FAILED", "message": text}}
    return {"content": [{"type": "text", "text": text}], "details": details}


class _AgentRun(Headless):
    def __init__(self, options: Options, agent: str, task: str) -> None:
        super().__init__(options)
        self._agent = agent
        self._words = task

    def _to_request(self) -> Request:
        # There is no main agent, so only the subagent has a session.
        return replace(super()._to_request(), session=SessionWish("children"))

    async def _work(self, crew: Retinue) -> int:
        options = self._options
        result = await crew.call_subagent(
            self._agent,
            self._words,
            write=options.write,
            session_id=options.session_id or None,
            verify=options.verify,
        )
        status = self._report(result)
        await self._drain()
        return status

    def _follow(self, crew: Retinue, progress: "Progress") -> None:
        """Show the agent's run in place of the main agent's; show nothing before it starts."""
        progress.rest()

        def hear(event: Event) -> None:
            run = crew.session_runs.find(event.run_id)
            if run is None or run.parent_id != crew.run_id:
                progress.tell_subagent(event)
            elif isinstance(event, RunStarted):
                progress.model = crew.session_runs.find_model(run.id) or progress.model
                crew.session_runs.overhear(run.id, progress)

        crew.listen(hear, pieces=False)

    def _report(self, result: dict[str, Any]) -> int:
        """Print the result or its answer; returns the exit status."""
        text, details = result["content"][0]["text"], result["details"]
        error = details.get("error", {}).get("code", "")
        is_cut = error == "SUBAGENT_OUTPUT_TRUNCATED" and details["results"][0]["exitCode"] == 0
        is_failed = (error and not is_cut) or details.get("finalized", {}).get("status") == "ERROR"
        if self._options.json:
            self._outlet.write(json.dumps(result).encode() + b"\n")
            return 1 if is_failed else 0
        if not is_failed:
            # Output is shortened only to save a model's context; a user or a pipe gets all of it.
            answer = details["results"][0]["output"] if is_cut else text
            self._print(answer)
            one = details["results"][0]
            if one["verification"] == "verified" or one["receipts"]["notes"]:
                say(result["content"][1]["text"])
            return 0
        say(text)
        is_misuse = error in ("INVALID_INPUT", "UNKNOWN_AGENT", "SUBAGENT_DISABLED", "SUBAGENTS_DISABLED")
        return 2 if is_misuse else 124 if error == "SUBAGENT_TIMEOUT" else 1
