"""What it costs to be on record: a crew of runs that write, in this process, with and without a ledger.

Models and tools answer at once, so that all that is measured is ours.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench.figure import Figure
from retinue import Retinue
from retinue.core.messages import AssistantMessage, ToolCall
from retinue.core.model import Draft, ModelInfo, ModelRequest, Reply, ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult

RUNS, TURNS, ROUNDS = 20, 20, 3
MOST_MS = 1.0
WRITER = "---\nname: writer\ndescription: Writes.\ntools: note\n---\n\nWrite.\n"


class Busy:
    """Calls a tool in every turn but its last."""

    info = ModelInfo("bench", "busy", "scripted", "Busy")

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        """At once."""
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
        if turn + 1 < TURNS:
            call = ToolCall(f"call_{turn}", "note", {})
            draft.close_call(draft.open_call(call.id, call.name), call)
            return Reply(draft.finish("toolUse"))
        text = draft.open_text()
        draft.add(text, "Done.")
        draft.close_text(text)
        return Reply(draft.finish("stop"))


class Note:
    """Does nothing, and says that it writes."""

    spec = ToolSpec("note", "Note something.", {"type": "object", "properties": {}})
    effect = Effect.WRITE
    hint = "note"
    guidelines: tuple[str, ...] = ()

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """At once."""
        return ToolResult.of("x" * 500)


def measure() -> Iterator[Figure]:
    """The time of one turn, with and without a record."""
    taken = {name: [asyncio.run(play(name)) for _ in range(ROUNDS)] for name in ("inprocess", "durable")}
    cpu_ms = {name: median(cpu for cpu, _ in each) for name, each in taken.items()}
    wall_ms = {name: median(wall for _, wall in each) for name, each in taken.items()}
    note = (
        f"{RUNS} runs at once, {TURNS} turns with a call each: {cpu_ms['durable']:.2f} against "
        f"{cpu_ms['inprocess']:.2f} ms of computing a turn, {wall_ms['durable']:.2f} against "
        f"{wall_ms['inprocess']:.2f} ms of wall time"
    )
    yield Figure(
        "durable: computing a turn, beyond that of an in-process run",
        cpu_ms["durable"] - cpu_ms["inprocess"],
        "ms",
        MOST_MS,
        note,
    )


async def play(runner: str) -> tuple[float, float]:
    """Milliseconds of computing and of wall time for each turn of a crew."""
    with TemporaryDirectory(prefix="retinue-bench-") as folder:
        environment = {"HOME": folder, "PI_CODING_AGENT_DIR": f"{folder}/agent", "RETINUE_NO_LOCAL": "1"}
        (agents := Path(folder, "agent", "agents")).mkdir(parents=True)
        (agents / "writer.md").write_text(WRITER, encoding="utf-8")
        crew = Retinue(
            folder,
            model=Busy(),
            tools=[Note()],
            environment=environment,
            runner=runner,
            max_concurrent=RUNS,
            output_transcript=False,
        )
        async with crew:
            (warm,) = [await crew.spawn("writer", "warm up")]
            await warm.wait(60)
            began_s, computed_s = time.perf_counter(), time.process_time()
            runs = [await crew.spawn("writer", "work") for _ in range(RUNS)]
            outcomes = [await run.wait(120) for run in runs]
            cpu_s, wall_s = time.process_time() - computed_s, time.perf_counter() - began_s
        if bad := [outcome for outcome in outcomes if outcome is None or outcome.turns != TURNS]:
            raise RuntimeError(f"a run did not do its work: {bad[0]}")
        return cpu_s * 1000 / (RUNS * TURNS), wall_s * 1000 / (RUNS * TURNS)
