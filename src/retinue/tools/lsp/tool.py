"""The lsp tool: asks language servers. What answers is loaded with the first call."""

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

from retinue.core.errors import quote
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.tools.lsp.failure import LspFailed, Unanswered, Unsupported
from retinue.tools.lsp.permission import ACTIONS, PRIVILEGED, Permission
from retinue.tools.registry import load_description

if TYPE_CHECKING:
    from collections.abc import Callable

    from retinue.tools.lsp.pool import Pool

TIMEOUT = "Timeout: LSP server did not respond. Try again."
_MODULES = {"workspace-diagnostics": "workspace_diagnostics", "codeAction": "code_action"}


class LspTool:
    """Answers questions about code."""

    effect = Effect.READ
    hint = "Ask a language server: definitions, references, types, diagnostics"
    guidelines: tuple[str, ...] = ()

    def __init__(self, find_pool: "Callable[[], Pool]", permission: Permission) -> None:
        """`find_pool` gives the servers of this process; called with the first question."""
        self._find_pool = find_pool
        self._permission = permission

    @cached_property
    def spec(self) -> ToolSpec:
        """What the model is told."""
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
        """Ask. What a server does not know, or does not say in time, is an answer, too."""
        action = str(arguments.get("action", ""))
        try:
            self._permission.check(action)
            return await self._run(action, arguments, context)
        except LspFailed as error:
            return _render_failure(action, error)

    def abandon(self) -> ToolResult:
        """What a cancelled question comes to: nothing was changed by it."""
        return ToolResult.of("Cancelled", {"cancelled": True})

    async def _run(self, action: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        from importlib import import_module

        from retinue.tools.lsp.call import Call

        if action not in ACTIONS:
            known = ", ".join(ACTIONS)
            raise LspFailed(f"No action {quote(action)}; there are {known}.", "INVALID_INPUT")
        confinement = None if context.confinement is None else await context.confinement.open()
        readonly = confinement is not None and confinement.is_readonly
        if readonly and action in PRIVILEGED:
            raise LspFailed(f'Action "{action}" is disabled: this agent is read-only.', "LSP_ACTION_NOT_ALLOWED")
        call = Call(action, arguments, _find_workspace(context), self._find_pool(), readonly, context.territory)
        module = import_module(f"retinue.tools.lsp.actions.{_MODULES.get(action, action)}")
        result: ToolResult = await module.run(call)
        return result


def _find_workspace(context: ToolContext) -> str:
    return os.path.realpath(context.cwd)


def _render_failure(action: str, error: LspFailed) -> ToolResult:
    match error:
        case Unsupported():
            return ToolResult.of(f"action: {action}\nUnsupported: {error}", {"unsupported": str(error)})
        case Unanswered():
            return ToolResult.of(f"action: {action}\n{TIMEOUT}", {"timeout": True})
    details = {"error": {"code": error.code, "message": str(error)}} if error.code else {}
    return ToolResult.of(str(error), details, is_error=True)
