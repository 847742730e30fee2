"""The lsp tool: asks language servers, and checks which actions a caller may use.

The implementation is imported by the first call.
"""

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.core.errors import quote
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.core.tool_table import LSP_ACTIONS
from retinue.tools.lsp.jsonrpc import LspFailed, NoServer, ServerTimeout
from retinue.tools.registry import load_description

if TYPE_CHECKING:
    from collections.abc import Callable

    from retinue.tools.lsp.pool import LspPool

PRIVILEGED = ("rename", "codeAction", "restart")
"""They propose changes or stop shared servers: only for the main agent, and only if the user allows it."""
ACTIONS = (*LSP_ACTIONS, *PRIVILEGED)
TIMEOUT = "Timeout: LSP server did not respond. Try again."


class Permission(Struct, frozen=True):
    """Which actions one caller may use."""

    is_child: bool = False
    is_enabled: bool = True
    """Whether a subagent may use any action."""
    actions: tuple[str, ...] = LSP_ACTIONS
    """The actions a subagent may use."""
    allow_mutating: bool = False
    """Whether the main agent may use privileged actions."""

    def check(self, action: str) -> None:
        """Raise LspFailed if an action is not allowed."""
        if self.is_child and not self.is_enabled:
            raise _refuse("LSP tool is disabled for this subagent process.")
        if self.is_child and action not in self.actions:
            raise _refuse(f'LSP action "{action}" is not allowed for this subagent process.')
        if action not in PRIVILEGED:
            return
        if self.is_child:
            raise _refuse(f'Action "{action}" is disabled: privileged LSP actions are disabled in subagent processes.')
        if not self.allow_mutating:
            raise _refuse(f'Action "{action}" is disabled: lsp.tool.allowMutatingActions is false.')


def permit_process(environment: Mapping[str, str], actions: Iterable[str]) -> Permission:
    """Return the permission of a process that another agent started: what both its parent and its settings allow."""
    named = {word.strip() for word in environment.get("PI_SUBAGENT_LSP_ACTIONS", "").split(",")}
    return Permission(
        is_child=True,
        is_enabled=environment.get("PI_SUBAGENT_ALLOW_LSP") == "1",
        actions=tuple(action for action in actions if action in named),
    )


def _refuse(text: str) -> LspFailed:
    return LspFailed(text, "LSP_ACTION_NOT_ALLOWED")


class LspTool:
    effect = Effect.READ
    hint = "Ask a language server: definitions, references, types, diagnostics"
    guidelines: tuple[str, ...] = ()

    def __init__(self, find_pool: "Callable[[], LspPool]", permission: Permission) -> None:
        """`find_pool` returns the servers of this process; it is called by the first request."""
        self._find_pool = find_pool
        self._permission = permission

    @cached_property
    def spec(self) -> ToolSpec:
        number, text = {"type": "integer", "minimum": 1}, {"type": "string"}
        properties = {
            "action": {"type": "string", "enum": list(ACTIONS)},
            "file": {**text, "description": "Path of a source file"},
            "files": {"type": "array", "items": text, "description": "For workspace-diagnostics: at most 64 paths"},
            "line": number,
            "column": number,
            "endLine": number,
            "endColumn": number,
            "query": {**text, "description": "Name of a symbol, or a part of it"},
            "newName": text,
            "severity": {"type": "string", "enum": ["all", "error", "warning", "info", "hint"]},
            "server": {**text, "description": "For restart: one server; else all"},
        }
        parameters = {"type": "object", "properties": properties, "required": ["action"]}
        return ToolSpec("lsp", load_description(__file__), parameters)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run an action. An unknown answer or a timeout is a normal result."""
        action = str(arguments.get("action", ""))
        try:
            self._permission.check(action)
            return await self._run(action, arguments, context)
        except LspFailed as error:
            return _render_failure(action, error)

    def abandon(self) -> ToolResult:
        """The result of a cancelled call: it has changed nothing."""
        return ToolResult.of("Cancelled", {"cancelled": True})

    async def _run(self, action: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        from retinue.tools.lsp.actions import RUNNERS
        from retinue.tools.lsp.call import LspCall

        if action not in ACTIONS:
            known = ", ".join(ACTIONS)
            raise LspFailed(f"Unknown action {quote(action)}. Choose one of: {known}.", "INVALID_INPUT")
        confinement = None if context.confinement is None else await context.confinement.open()
        readonly = confinement is not None and confinement.is_readonly
        if readonly and action in PRIVILEGED:
            raise LspFailed(f'Action "{action}" is disabled: this agent is read-only.', "LSP_ACTION_NOT_ALLOWED")
        call = LspCall(action, arguments, _find_workspace(context), self._find_pool(), readonly, context.territory)
        return await RUNNERS[action](call)


def _find_workspace(context: ToolContext) -> str:
    return os.path.realpath(context.cwd)


def _render_failure(action: str, error: LspFailed) -> ToolResult:
    match error:
        case NoServer():
            return ToolResult.of(f"action: {action}\nUnsupported: {error}", {"unsupported": str(error)})
        case ServerTimeout():
            return ToolResult.of(f"action: {action}\n{TIMEOUT}", {"timeout": True})
    details = {"error": {"code": error.code, "message": str(error)}} if error.code else {}
    return ToolResult.of(str(error), details, is_error=True)
