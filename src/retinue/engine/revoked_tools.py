"""What is taken from runs while they work: looked at before each of their calls, and by whatever they start.

Only ever takes more. Whoever is below a run loses what the run loses, at its next call. Knows no surface and no file.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct, structs

from retinue.core.messages import ToolCall
from retinue.core.tool import Effect, Tool, ToolResult

if TYPE_CHECKING:  # a main agent alone has no use for it
    from retinue.tools.policy import Rights


class Loss(Struct, frozen=True):
    """What one run has lost."""

    tools: frozenset[str] = frozenset()
    """By their own names."""
    is_readonly: bool = False


class RevokedTools:
    """What the runs of one main agent have lost since they began."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}
        self._losses: dict[str, Loss] = {}
        self._main = ""

    def succeed(self, run_id: str) -> None:
        """Know the main agent of another session, which has lost what the one before it had: nothing is given back."""
        if self._main:
            self.place(run_id, self._main)
        self._main = run_id

    def place(self, run_id: str, parent_id: str) -> None:
        """Know who stands above a run."""
        self._above[run_id] = parent_id

    def forget(self, run_id: str) -> None:
        """Know nothing of it any longer; who is below it keeps its losses, and whoever is above it."""
        above, loss = self._above.pop(run_id, None), self._losses.pop(run_id, None)
        for below in [each for each, parent in self._above.items() if parent == run_id]:
            if above is None:
                del self._above[below]
            else:
                self._above[below] = above
            if loss is not None:
                self.lower(below, loss.tools, readonly=loss.is_readonly)

    def lower(self, run_id: str, tools: Iterable[str] = (), *, readonly: bool = False) -> None:
        """Take tools, or all that changes something, from a run and everything below it."""
        before = self._losses.get(run_id, Loss())
        self._losses[run_id] = Loss(before.tools | frozenset(tools), before.is_readonly or readonly)

    def narrow(self, run_id: str, rights: "Rights") -> "Rights":
        """Rights without what a run, or whoever is above it, has lost."""
        for loss in self._list(run_id):
            left = tuple(name for name in rights.allowed if rights.targets.get(name, name) not in loss.tools)
            rights = structs.replace(rights, allowed=left, readonly=rights.readonly or loss.is_readonly)
        return rights

    def judge(self, run_id: str, tool: str, effect: Effect) -> str:
        """Why a tool may not be used any longer; empty when it may."""
        for loss in self._list(run_id):
            if tool in loss.tools:
                return f"{tool} was taken from this agent while it worked"
            # A command's boundary was drawn when the run began: it would still be a writing one.
            # What a foreign tool changes at the other end of a network nobody knows.
            if loss.is_readonly and effect in (Effect.WRITE, Effect.EXECUTE, Effect.NETWORK):
                return f"{tool} can change things, and this agent was made read-only while it worked"
        return ""

    def _list(self, run_id: str) -> Iterator[Loss]:
        at: str | None = run_id if self._losses else None
        while at is not None:
            if (loss := self._losses.get(at)) is not None:
                yield loss
            at = self._above.get(at)


class RevokedToolsHook:
    """Asks before each call of one run."""

    wants: ClassVar[Mapping[str, bool]] = {}
    """Calls that are made elsewhere need not be known here for its sake alone."""

    def __init__(self, revoked: RevokedTools, run_id: str, find_tool: Callable[[str], str] = str) -> None:
        """`find_tool` says which tool is behind the name that the model used."""
        self._revoked = revoked
        self._run_id = run_id
        self._find_tool = find_tool

    async def before(self, call: ToolCall, tool: Tool) -> ToolResult | None:
        """A refusal, or nothing."""
        # A tool is lost under all its names.
        for name in dict.fromkeys((self._find_tool(call.name), tool.spec.own_name)):
            if reason := self._revoked.judge(self._run_id, name, tool.effect):
                return ToolResult.of(reason, {}, is_error=True)
        return None

    async def after(self, call: ToolCall, tool: Tool, result: ToolResult) -> ToolResult:
        """The result as it is."""
        return result
