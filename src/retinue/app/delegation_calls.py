"""The delegation tools for a caller that is no agent of ours, such as an MCP host: what they are, and calls of them.

There is no conversation around such a call, so nothing of it is written to the main session; the runs it starts are.
"""

from collections.abc import Callable, Mapping

from retinue.core.clock import Clock
from retinue.core.events import Event, ToolProgress
from retinue.core.messages import TextContent, ToolCall, ToolResultMessage
from retinue.core.tool import Tool, ToolContext
from retinue.engine.calls import CallPorts, run_calls
from retinue.engine.manager import Manager
from retinue.engine.runner import LiveRun

MAX_SHOWN = 5


class Delegation:
    """The tools of all surfaces of one Retinue."""

    def __init__(
        self, tools: Mapping[str, Tool], main: LiveRun, manager: Manager, clock: Clock, renew: Callable[[], None]
    ) -> None:
        """`renew` begins to count anew what one caller may spend and start."""
        self.tools = tools
        self._main = main
        self._manager = manager
        self._clock = clock
        self._renew = renew
        self._calls = 0

    async def call(
        self, call_id: str, name: str, arguments: dict[str, object], on_progress: Callable[[str], None]
    ) -> ToolResultMessage:
        """Call a tool; whatever goes wrong is in the result. A cancel ends what the call has started and waits for."""
        setup = self._main.setup
        if not self._calls and not self._list_active():
            self._renew()

        def hear(event: Event) -> None:
            if isinstance(event, ToolProgress):
                on_progress("\n".join(block.text for block in event.content if isinstance(block, TextContent)))

        ports = CallPorts(
            run_id=setup.run_id,
            tools=self.tools,
            context=ToolContext(cwd=setup.cwd, run_id=setup.run_id, spill_dir=setup.spill_dir),
            publish=hear,
            clock=self._clock,
            hooks=setup.hooks,
        )
        self._calls += 1
        try:
            batch = await run_calls([ToolCall(call_id, name, arguments)], {}, ports)
        finally:
            self._calls -= 1
        return batch.results[0]

    def describe_work(self) -> str:
        """What the crew does now, in one line."""
        active = self._list_active()
        shown = ", ".join(active[:MAX_SHOWN])
        more = f" and {len(active) - MAX_SHOWN} more" if len(active) > MAX_SHOWN else ""
        return shown + more

    def _list_active(self) -> list[str]:
        runs = self._manager.list_runs()
        return [f"{run.agent} {run.id[:8]} {run.status.value}" for run in runs if not run.status.is_final]
