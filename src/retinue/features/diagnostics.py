"""Report language server diagnostics for changed files to the main agent.

Either at the end of its work, as a message that it answers, or with the result of each change. Loads nothing until a
file is changed that a server supports.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from retinue.core.clock import Clock
from retinue.core.errors import ToolFailed
from retinue.core.messages import CustomMessage, TextContent, ToolCall
from retinue.core.run import Outcome, Reason
from retinue.core.tool import Tool, ToolResult, list_aliases
from retinue.engine.setup import RunSetup
from retinue.tools.paths import resolve_path

if TYPE_CHECKING:
    from retinue.tools.lsp.call import LspCall
    from retinue.tools.lsp.diagnostics import FileDiagnostics
    from retinue.tools.lsp.pool import LspPool

CUSTOM_TYPE = "lsp-diagnostics"
MAX_FILES = 16
MAX_ROUNDS = 5
"""Maximum number of reports per prompt: an agent that cannot fix a file must still end."""
_MAX_LINES = 200
# Warnings are reported for new files only, errors also for changed ones.
_LEAST = dict.fromkeys(list_aliases(["write"]), "warning") | dict.fromkeys(list_aliases(["edit"]), "error")


class DiagnosticsFeature:
    """Records which files the main agent changes and checks them."""

    name = "lsp-diagnostics"

    def __init__(
        self, find_pool: "Callable[[], LspPool]", mode: Literal["agent_end", "edit_write"], clock: Clock
    ) -> None:
        self._find_pool = find_pool
        self._mode = mode
        self._clock = clock
        self._setup: RunSetup | None = None
        self._touched: dict[str, str] = {}
        """Path and minimum severity, oldest first."""
        self._rounds = 0

    async def enter(self, setup: RunSetup) -> RunSetup:
        self._setup, self._touched, self._rounds = setup, {}, 0
        reviewers = (*setup.reviewers, self) if self._mode == "agent_end" else setup.reviewers
        return setup.change(hooks=(*setup.hooks, self), reviewers=reviewers)

    async def leave(self, outcome: Outcome) -> Outcome:
        """Keep the servers running for the next prompt."""
        self._setup = None
        return outcome

    async def before(self, call: ToolCall, tool: Tool) -> ToolResult | None:
        return None

    async def after(self, call: ToolCall, tool: Tool, result: ToolResult) -> ToolResult:
        """Record the changed file, or add its diagnostics to the result at once."""
        path = call.arguments.get("path")
        if self._setup is None or result.is_error or call.name not in _LEAST or not isinstance(path, str):
            return result
        real = _find_real(path, self._setup.cwd)
        if self._mode == "agent_end":
            self._note(real, _LEAST[call.name])
            return result
        lines = await self._examine({real: _LEAST[call.name]})
        if not lines:
            return result
        text = "\n".join(("", "", "A language server reports about this file:", *lines))
        return replace(result, content=[*result.content, TextContent(text)])

    async def review(self, outcome: Outcome) -> CustomMessage | None:
        """Send the run back if the files it changed have errors."""
        touched, self._touched = self._touched, {}
        # A run that reached a limit must not continue beyond it this way.
        if not touched or self._rounds >= MAX_ROUNDS or outcome.reason is not Reason.DONE:
            return None
        lines = await self._examine(touched)
        if not lines:
            return None
        self._rounds += 1
        text = "\n".join(("Language servers report about the files that were changed:", *lines))
        details = {"files": list(touched)}
        return CustomMessage(CUSTOM_TYPE, text, display=True, timestamp=self._clock.now_ms(), details=details)

    def _note(self, path: str, least: str) -> None:
        known = self._touched.pop(path, least)
        self._touched[path] = "warning" if "warning" in (known, least) else "error"
        if len(self._touched) > MAX_FILES:
            del self._touched[next(iter(self._touched))]

    async def _examine(self, touched: dict[str, str]) -> list[str]:
        """Return one line per diagnostic; empty if no server can check the files."""
        setup = self._setup
        assert setup is not None
        from retinue.tools.lsp.call import cut
        from retinue.tools.lsp.diagnostics import diagnose_all
        from retinue.tools.lsp.servers import find_server

        known = [path for path in touched if find_server(path) is not None]
        if not known:
            return []
        try:
            call = await _open_call(setup, self._find_pool())
            # Files outside the workspace may be changed with permission, but are not shown to a server.
            found = await diagnose_all(call, [path for path in known if _is_inside(path, call.workspace)])
        except ToolFailed:
            return []
        lines = [line for each in found for line in _render(each, touched[each.file], call.workspace)]
        return cut("\n".join(lines[:_MAX_LINES])).splitlines()


async def _open_call(setup: RunSetup, pool: "LspPool") -> "LspCall":
    from retinue.tools.lsp.call import LspCall

    confinement = None if setup.confinement is None else await setup.confinement.open()
    readonly = confinement is not None and confinement.is_readonly
    return LspCall("diagnostics", {}, _find_real("", setup.cwd), pool, readonly, setup.find_territory())


def _render(found: "FileDiagnostics", least: str, workspace: str) -> list[str]:
    shown = os.path.relpath(found.file, workspace)
    return [complaint.render(shown) for complaint in found.keep(least)]


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _find_real(path: str, cwd: Path) -> str:
    return os.path.realpath(resolve_path(path, cwd))
