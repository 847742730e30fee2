"""A call that starts nothing, and the words that say so."""

from retinue.core.errors import RetinueError
from retinue.core.tool import ToolResult


class Refusal(RetinueError):
    """Raised inside a tool of the fleet when a call cannot be done; the text goes to the model."""

    def to_result(self) -> ToolResult:
        """The text, marked as an error, so that nobody takes it for success."""
        return ToolResult.of(str(self), {}, is_error=True)


def tell_missing(run_id: str) -> str:
    """There is no such run."""
    return f'Agent not found: "{run_id}". It may have been cleaned up.'
