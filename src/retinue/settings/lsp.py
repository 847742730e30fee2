"""Language servers of one Retinue: the `lsp` tool for the main agent and its subagents, and the diagnostics hook.

Nothing is started, and almost nothing imported, before first use.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.clock import Clock
from retinue.core.tool import Tool
from retinue.engine.setup import Feature
from retinue.settings.subagents import SubagentsConfig
from retinue.settings.trust import Trust
from retinue.tools.process_tree import TreeProbe
from retinue.tools.registry import build_family

if TYPE_CHECKING:
    from retinue.features.sandbox import Boundaries
    from retinue.sandbox.confinement import OpenConfinement
    from retinue.tools.lsp.pool import LspPool


class LanguageServers:
    """Builds the `lsp` tool with its permissions and owns the servers."""

    def __init__(
        self,
        settings: SubagentsConfig,
        boundaries: "Boundaries",
        environment: Mapping[str, str],
        clock: Clock,
        *,
        trees: TreeProbe,
        trust: Trust,
        is_child: bool,
    ) -> None:
        """`is_child`: another agent has started this process."""
        self._settings = settings
        self._boundaries = boundaries
        self._environment = environment
        self._clock = clock
        self._trees = trees
        self._trust = trust
        self._is_child = is_child
        self._pool: LspPool | None = None

    @property
    def is_offered(self) -> bool:
        """Whether the main agent has the tool."""
        own = self._settings
        return own.enabled and own.lsp.enabled and own.lsp.tool.enabled

    def build(self, *, for_main: bool) -> dict[str, Tool]:
        """Build the tool of the main agent, or that of its children."""
        from retinue.tools.lsp.tool import Permission, permit_process

        own = self._settings
        if not self.is_offered:
            return {}
        if self._is_child:
            permission = permit_process(self._environment, own.subagents.allowed_lsp_actions)
        elif for_main:
            permission = Permission(allow_mutating=own.lsp.tool.allow_mutating_actions)
        else:
            permission = Permission(True, own.has_child_lsp, own.subagents.allowed_lsp_actions)
        return build_family("lsp", self.open_pool, permission)

    def surround_main(self) -> list[Feature]:
        """Return the feature that reports diagnostics of changed files to the main agent; a child process gets none."""
        own = self._settings
        mode = own.lsp.hook.mode
        if self._is_child or not (own.enabled and own.lsp.enabled and own.lsp.hook.enabled) or mode == "disabled":
            return []
        from retinue.features.diagnostics import DiagnosticsFeature

        return [DiagnosticsFeature(self.open_pool, mode, self._clock)]

    def open_pool(self) -> "LspPool":
        """Return the servers; each is started on first use."""
        if self._pool is None:
            from retinue.tools.lsp.pool import LspPool, PoolContext

            preferred = self._settings.lsp.python
            ground = PoolContext(
                self._environment,
                self._trees,
                self._draw,
                self._trust.trusted,
                self._trust.is_open,
                "" if preferred == "auto" else preferred,
            )
            self._pool = LspPool(ground)
        return self._pool

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def _draw(self, root: str, readonly: bool) -> "OpenConfinement | None":
        return (await self._boundaries.draw(Path(root), readonly=readonly))[0]
