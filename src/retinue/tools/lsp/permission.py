"""Which actions of the `lsp` tool a caller may use. Reads a process's environment for nobody: it is handed in."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from retinue.tools.lsp.failure import LspFailed

READING = (
    "definition",
    "references",
    "hover",
    "signature",
    "symbols",
    "diagnostics",
    "workspace-diagnostics",
    "servers",
)
PRIVILEGED = ("rename", "codeAction", "restart")
"""They propose changes or end what others use: for the main agent, and only where the user says so."""
ACTIONS = (*READING, *PRIVILEGED)


class Permission(Struct, frozen=True):
    """What one caller may ask for."""

    is_child: bool = False
    is_enabled: bool = True
    """Whether a child may ask for anything."""
    actions: tuple[str, ...] = READING
    """What a child may ask for."""
    allow_mutating: bool = False
    """Whether the main agent may ask for what is privileged."""

    def check(self, action: str) -> None:
        """Raise LspFailed for an action that is not allowed."""
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
    """For a process that another agent has started: what both its parent and its own settings allow."""
    named = {word.strip() for word in environment.get("PI_SUBAGENT_LSP_ACTIONS", "").split(",")}
    return Permission(
        is_child=True,
        is_enabled=environment.get("PI_SUBAGENT_ALLOW_LSP") == "1",
        actions=tuple(action for action in actions if action in named),
    )


def _refuse(text: str) -> LspFailed:
    return LspFailed(text, "LSP_ACTION_NOT_ALLOWED")
