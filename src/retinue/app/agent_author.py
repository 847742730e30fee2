"""An agent that writes an agent: what it is asked, and the file in what it answers."""

from typing import TYPE_CHECKING

from retinue.core.errors import RetinueError
from retinue.core.run import Status

if TYPE_CHECKING:
    from retinue.app.retinue import Retinue

AUTHOR = "general-purpose"
MAX_TURNS = 5
_TASK = """Write the definition of a new agent called {name}. It is for this:

<purpose>
{purpose}
</purpose>

Answer with the text of the file and nothing else; do not write any file yourself, and use tools only if you must look
at this project to write good instructions. The file is Markdown with YAML frontmatter:

---
name: {name}
description: when to use this agent, in one sentence
tools: read, grep, find, ls
---

Instructions for the agent: its role, how it goes about a task, what its report holds, what it must not do.

Fields you may add: `model`, `thinking` (off, minimal, low, medium, high, xhigh), `max_turns`, `readonly: true`. These
tools exist: {tools}. Give it only those it needs; leave out `bash`, `edit` and `write` unless its purpose needs them.
"""


async def write_agent(crew: "Retinue", name: str, purpose: str) -> str:
    """Let an agent write the text of an agent file; nothing is saved. Raises RetinueError."""
    from retinue.settings.agent_text import find_manuscript
    from retinue.tools.registry import BUILTIN_TOOLS

    task = _TASK.format(name=name, purpose=purpose.strip(), tools=", ".join(BUILTIN_TOOLS))
    run = await crew.spawn(AUTHOR, task, description=f"write agent {name}", max_turns=MAX_TURNS)
    try:
        outcome = await run.wait()
    except BaseException:
        await run.stop()
        raise
    if outcome.status is not Status.COMPLETED:
        raise RetinueError(f"the agent that was to write it has failed: {outcome.error or outcome.reason}")
    text = find_manuscript(outcome.text)
    if not text:
        raise RetinueError("the agent's answer holds no agent file; try again, or write it yourself")
    return text
