"""A tool call: one line about the call, and its result below."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from retinue.core.figures import count_noun, format_cost, format_duration, format_tokens
from retinue.core.pattern import late_pattern
from retinue.core.run import Reason, Run, Status
from retinue.core.tool import list_aliases
from retinue.core.tool_table import SURFACE_TOOLS
from retinue.ui.blocks import ToolBlock
from retinue.ui.formats import clean, clean_line, fold_middle, format_seconds
from retinue.ui.renderers.base import BlockView, stack

_TELLING = ("path", "file_path", "command", "pattern", "query", "url", "description", "agent", "agent_id", "name")
"""Arguments that describe a call best, in order of preference."""
DELEGATION = tuple(names[0] for names in SURFACE_TOOLS.values())
"""Tools that start an agent."""
DEFAULT_AGENT = "general-purpose"
_ENDS = {
    Status.COMPLETED: "✓ finished",
    Status.FAILED: "✗ failed",
    Status.STOPPED: "■ stopped",
    Status.INTERRUPTED: "■ interrupted",
}
SHELLS = list_aliases(("bash",))


@dataclass(frozen=True, slots=True)
class AgentHeading:
    """The heading of a call that starts an agent: `▸ name  badges  about`."""

    name: str
    badges: tuple[str, ...] = ()
    about: str = ""


def describe_call(name: str, arguments: Mapping[str, Any]) -> str:
    """The argument that describes a call best."""
    if name in SHELLS:
        return f"$ {arguments.get('command', '')}"
    if name in ("grep", "find") and arguments.get("path"):
        return f"{arguments.get('pattern', '')} in {arguments['path']}"
    told = [str(arguments[key]) for key in _TELLING if isinstance(arguments.get(key), str | int)]
    if name == "read" and told and (arguments.get("offset") or arguments.get("limit")):
        first = arguments.get("offset") or 1
        return f"{told[0]}:{first}"
    return told[0] if told else ""


def describe_agent(name: str, arguments: Mapping[str, Any], details: object) -> AgentHeading | None:
    """Describe the agent that a call starts; None for any other call."""
    if name not in DELEGATION:
        return None
    known = details if isinstance(details, Mapping) else {}
    if name != "Agent":
        about = arguments.get("task") or arguments.get("prompt") or ""
        session = arguments.get("sessionId")
        return AgentHeading(str(arguments.get("agent", "")), (f"session {session}",) if session else (), str(about))
    agent = known.get("displayName") or arguments.get("subagent_type") or ""
    about = known.get("description") or arguments.get("description") or arguments.get("prompt") or ""
    fallback = "Agent" if arguments.get("resume") or arguments.get("retry") else DEFAULT_AGENT
    return AgentHeading(str(agent or fallback), _list_badges(arguments, known), str(about))


def _list_badges(arguments: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[str, ...]:
    """Special properties of the call; actual values take precedence over requested ones."""
    badges = []
    if model := known.get("modelName") or arguments.get("model"):
        badges.append(str(model))
    tags = known.get("tags")
    if isinstance(tags, list):
        badges += [str(tag) for tag in tags]
    else:
        badges += [f"thinking: {arguments['thinking']}"] if arguments.get("thinking") else []
        badges += ["isolated"] if arguments.get("isolated") is True else []
        badges += ["worktree"] if arguments.get("isolation") == "worktree" else []
    badges += ["resume"] if arguments.get("resume") else []
    badges += [f"schedule: {arguments['schedule']}"] if arguments.get("schedule") else []
    return tuple(clean_line(badge, 40) for badge in badges)


def describe_end(details: object, find_run: Callable[[str], Run | None] = lambda run_id: None) -> str:
    """One line about the state of a call that started an agent; empty if its text says more."""
    if not isinstance(details, Mapping):
        return ""
    if details.get("status") == "background" and details.get("agentId"):
        run, state = find_run(str(details["agentId"])), "Queued" if details.get("isQueued") else "Running"
        if run is not None and run.status.is_final:
            return describe_outcome(run)
        state = state if run is None else "Queued" if run.status is Status.QUEUED else "Running"
        return f"{state} in background"
    if details.get("status") == "scheduled":
        ident, due = (clean_line(str(details.get(key)), 40) for key in ("jobId", "nextRun"))
        return f"Scheduled (ID: {ident}), next {due}; cancel it in /agents"
    if isinstance(streaming := details.get("streaming"), Mapping):
        return _describe_progress(streaming)
    return ""


def describe_outcome(run: Run) -> str:
    """How a background agent ended: `✓ finished 12 s · ↻3 · 4 tools`."""
    outcome = run.outcome
    is_wanted = outcome is None or outcome.reason in (Reason.DONE, Reason.USER, Reason.PARENT)
    facts = [f"↻{run.turns}"] if run.turns else []
    facts += [f"{run.tool_uses} tool{'s' if run.tool_uses > 1 else ''}"] if run.tool_uses else []
    facts += [] if outcome is None or is_wanted else [clean_line(outcome.error or outcome.reason, 120)]
    time = f" {format_duration(run.finished_ms - run.started_ms)}" if run.started_ms and run.finished_ms else ""
    return " · ".join((f"{_ENDS[run.status]}{time}", *facts))


def _describe_progress(streaming: Mapping[str, Any]) -> str:
    items = streaming.get("displayItems")
    calls = [item for item in items if isinstance(item, Mapping) and item.get("type") == "toolCall"] if items else []
    facts = [f"↻{streaming['turnCount']}"] if isinstance(streaming.get("turnCount"), int) else []
    if calls:
        facts.append(count_noun(len(calls), "tool"))
        name, words = str(calls[-1].get("name", "")), calls[-1].get("args")
        about = describe_call(name, words) if isinstance(words, Mapping) else ""
        facts.append(clean_line(f"{name} {about}", 120))
    return " · ".join(facts)


def describe_cost(details: object) -> str:
    """What a finished foreground agent has used: `↻3 · 12.3k token · $0.010`."""
    results = details.get("results") if isinstance(details, Mapping) else None
    last = results[-1] if isinstance(results, list) and results else details
    usage = last.get("usage") if isinstance(last, Mapping) else None
    if not isinstance(usage, Mapping):
        turns = details.get("turns") if isinstance(details, Mapping) else None
        return f"↻{turns}" if isinstance(turns, int) and turns else ""
    numbers = {key: value for key, value in usage.items() if isinstance(value, int | float)}
    tokens = int(sum(numbers.get(key, 0) for key in ("input", "output", "cacheWrite")))
    facts = [f"↻{numbers['turns']}"] if numbers.get("turns") else []
    facts += [f"{format_tokens(tokens)} token"] if tokens else []
    facts += [cost] if (cost := format_cost(float(numbers.get("cost", 0)))) else []
    return " · ".join(facts)


_EXIT_LINE = late_pattern(
    r"(?:\A|\n\n)Command (?:exited with code (?P<code>-?\d+(?: \(SIG\w+\))?)"
    r"|(?P<late>timed out after [\d.]+ seconds)|aborted \((?P<cut>[^()\n]*)\))\s*\Z"
)
"""The last lines of a command's result, which say how it ended."""


def split_end(output: str, *, is_failed: bool) -> tuple[str, str]:
    """Split the result of a command into what it printed and how it ended: `exit 1`, `interrupted by the user …`."""
    found = _EXIT_LINE.search(output)
    if found is None:
        return output, "" if is_failed else "exit 0"
    words = f"exit {found['code']}" if found["code"] else found["late"] or found["cut"]
    return output[: found.start()], words


_SIGNS = {"waiting": "◦", "running": "●", "done": "✓", "failed": "✗"}
_COLORS = {"waiting": "secondary", "running": "accent", "done": "success", "failed": "error"}
_FOLDED_LINES = 4
_AGENT_LINES = 20
"""Lines shown from the start and the end of an agent's answer; the viewer shows all of it."""


def color_diff(diff: str, colors: Mapping[str, str]) -> Text:
    """Colour the added and removed lines of an escaped diff."""
    text = Text()
    for line in diff.split("\n"):
        name = "success" if line.startswith("+") else "error" if line.startswith("-") else ""
        text.append(f"{line}\n", style=colors.get(name, "dim"))
    text.rstrip()
    return text


class ToolView(BlockView):
    DEFAULT_CSS = """
    ToolView { padding: 0 1; }
    """
    block: ToolBlock
    can_fold = True

    def draw(self) -> None:
        """Draw the call and as much of the result as is expanded."""
        block = self.block
        call = describe_agent(block.name, block.arguments, block.details)
        if call is not None:
            self.update(stack(self._draw_agent(call), self._draw_end() or self._draw_output(most=_AGENT_LINES)))
            return
        head = Text()
        head.append(f"{_SIGNS[block.status]} ", style=self._find_color())
        head.append(clean_line(block.name, 60), style="bold")
        about = describe_call(block.name, block.arguments)
        if about:
            head.append(f" {clean_line(about, 300)}")
        if block.name in SHELLS and block.status in ("done", "failed"):
            self.update(stack(head, *self._draw_command()))
            return
        self._append_time(head)
        self.update(stack(head, self._draw_diff() or self._draw_output()))

    def _draw_command(self) -> tuple[RenderableType | None, Text | None]:
        """Draw the output of a command, folded to its last lines, and how it ended."""
        block = self.block
        printed, end = split_end(block.output, is_failed=block.status == "failed")
        # An interrupted command says itself how long it ran.
        is_timed = block.duration_ms is not None and " after " not in end
        parts = [end, format_seconds(block.duration_ms or 0) if is_timed else "", clean_line(block.changes, 120)]
        line = Text(f"  {' · '.join(part for part in parts if part)}", style="dim")
        return self._draw_output(printed, is_tail=True), line if line.plain.strip() else None

    def _draw_agent(self, call: AgentHeading) -> Text:
        head = Text()
        head.append("▸ ", style=self._find_color())
        head.append(clean_line(call.name, 60), style="bold")
        for badge in call.badges:
            head.append(f"  {badge}", style=self.app.theme_variables.get("secondary", "dim"))
        if call.about:
            head.append(f"  {clean_line(call.about, 200)}")
        if self.block.status in ("done", "failed") and (used := describe_cost(self.block.details)):
            head.append(f"  {used}", style="dim")
        self._append_time(head)
        return head

    def _draw_end(self) -> RenderableType | None:
        """One line about the agent's state, if the text of the result is meant for the model."""
        if self.block.status == "failed" or (self.is_open and self.block.status == "done"):
            return None
        link = self.app.link
        find_run = link.crew.session_runs.find if link.is_open else lambda run_id: None
        words = describe_end(self.block.details, find_run)
        return Padding(Text(f"⎿  {words}", style="dim"), (0, 0, 0, 2)) if words else None

    def _append_time(self, head: Text) -> None:
        if self.block.changes:
            head.append(f"  {clean_line(self.block.changes, 120)}", style="dim")
        if self.block.duration_ms is not None and self.block.duration_ms >= 1000:
            head.append(f"  {format_duration(self.block.duration_ms)}", style="dim")

    def _find_color(self) -> str:
        return self.app.theme_variables.get(_COLORS[self.block.status], "")

    def _draw_diff(self) -> RenderableType | None:
        details = self.block.details
        diff = details.get("diff") if isinstance(details, dict) else None
        if not isinstance(diff, str) or not diff.strip():
            return None
        shown = clean(diff) if self.is_open else fold_middle(clean(diff), 14, 6)[0]
        return Padding(color_diff(shown, self.app.theme_variables), (0, 0, 0, 2))

    def _draw_output(self, text: str | None = None, most: int = 0, *, is_tail: bool = False) -> RenderableType | None:
        """Draw the result; a long one shows its start or its end, and, expanded, both. `most`: lines at each end."""
        output = clean(self.block.output if text is None else text).strip("\n")
        if self.block.images:
            output = f"{output}\n[{self.block.images} image(s)]".lstrip("\n")
        if not output:
            return None
        if self.is_open:
            shown = fold_middle(output, most or 400, most or 100)[0]
        else:
            tail = is_tail or self.block.status == "running"
            shown = fold_middle(output, 0 if tail else _FOLDED_LINES, _FOLDED_LINES if tail else 0)[0]
            shown = "\n".join(line[:400] for line in shown.split("\n"))
        style = self.app.theme_variables.get("text-error", "red") if self.block.status == "failed" else "dim"
        return Padding(Text(shown, style=style), (0, 0, 0, 2))
