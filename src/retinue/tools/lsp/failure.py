"""How a request to a language server fails: with a code a program can tell apart, and words for people."""

from typing import Literal, TypeAlias

from retinue.core.errors import ToolFailed

Code: TypeAlias = Literal["INVALID_INPUT", "LSP_ACTION_NOT_ALLOWED", "LSP_SERVER_NOT_FOUND", "LSP_SERVER_FAILED", ""]


class LspFailed(ToolFailed):
    """Raised when a request cannot be answered."""

    def __init__(self, text: str, code: Code = "LSP_SERVER_FAILED") -> None:
        super().__init__(text)
        self.code = code


class Unanswered(LspFailed):
    """Raised when a server lives and does not answer in time."""


class NoServer(LspFailed):
    """Raised where no server can be asked about a file: nothing has gone wrong, there is just nobody to ask."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "")


class Declined(LspFailed):
    """Raised when a server answers with an error of its own."""
