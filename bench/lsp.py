"""What a question to a language server costs: `ty` over this repository, started and warm."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure
from retinue.core.tool import ToolContext
from retinue.tools.lsp.pool import LspPool, PoolContext
from retinue.tools.lsp.tool import LspTool, Permission

ROOT = Path(__file__).resolve().parent.parent
FILES = ("engine/runner", "engine/loop", "tools/process", "app/retinue", "core/messages")
ROUNDS = 60
WARM_MS = 50.0


def measure() -> Iterator[Figure]:
    """The first answer, and the time that one warm definition in twenty exceeds."""
    first_ms, warm = asyncio.run(take_times())
    yield Figure("lsp: first definition, server start included", first_ms, "ms", note="ty over this repository")
    late = sorted(warm)[int(len(warm) * 0.95)]
    note = f"p50 {sorted(warm)[len(warm) // 2]:.1f} ms; {len(warm)} questions in {len(FILES)} files of this repository"
    yield Figure("lsp: definition warm, p95", late, "ms", WARM_MS, note)


async def take_times() -> tuple[float, list[float]]:
    """Milliseconds of the first question, and of each warm one."""
    pool = LspPool(PoolContext(os.environ))
    tool = LspTool(lambda: pool, Permission())
    try:
        first_ms = await ask(tool, FILES[0], 1)
        for file in FILES:
            await ask(tool, file, 1)
        return first_ms, [await ask(tool, file, line) for line in range(1, ROUNDS + 1) for file in FILES]
    finally:
        await pool.close()


async def ask(tool: LspTool, file: str, line: int) -> float:
    """How long one definition takes, in milliseconds."""
    arguments = {"action": "definition", "file": f"src/retinue/{file}.py", "line": line, "column": 8}
    begun_s = time.perf_counter()
    result = await tool.call(arguments, ToolContext(ROOT))
    took_ms = (time.perf_counter() - begun_s) * 1000
    assert not result.is_error and "Unsupported" not in str(result.content[0]), result
    return took_ms
