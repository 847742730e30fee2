"""The `/toolkit` commands: configuration and tool activity as plain text. Starts no agent and calls no model."""

import os
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from retinue.core.errors import ConfigError, RetinueError
from retinue.core.terminal import escape_line
from retinue.core.tool_table import LSP_ACTIONS, SURFACES, list_surface_tools
from retinue.features.activity import Activity, ActivityLog, find_log
from retinue.settings.layers import load_settings
from retinue.settings.paths import find_paths
from retinue.settings.request import Request
from retinue.settings.subagents import SubagentsConfig, load_subagents
from retinue.views.overview import open_roster

if TYPE_CHECKING:
    from retinue.settings.doctor_report import DoctorReport

COMMANDS = {
    "agents": "list the agents",
    "doctor": "check the configuration",
    "logs": "list tool calls: [--search|--fetch|--convert] [--limit N]",
    "activity": "count tool calls, updated live",
    "modules": "list the enabled modules",
    "lsp": "language servers",
    "help": "this text",
}
DEFAULT_LIMIT, MOST = 20, 10**9
_FILTERS = {
    "--search": ("web_search",),
    "--fetch": ("fetch_content", "get_search_content"),
    "--convert": ("convert_content",),
}
_SIGNS = {"success": "✓", "error": "✗", "rate_limited": "⚠"}
_SOURCES = ("builtin", "user", "project")


class ToolkitAnswer(NamedTuple):
    """A result for a front end to show."""

    title: str
    text: str
    notice: str = ""
    """One line for a status message."""


class Toolkit:
    """Answers `/toolkit` commands for the working directory. Blocks while it reads files."""

    def __init__(self, request: Request, run_checkup: "Callable[[Request], DoctorReport]") -> None:
        self._request = request
        self._run_checkup = run_checkup

    def answer(self, words: str) -> ToolkitAnswer:
        """Run a command; an unknown one gets the help text. MUST NOT raise for a broken file."""
        name, *rest = words.split() or ["help"]
        try:
            match name.lower():
                case "agents":
                    roster = open_roster(self._request, lambda text: None)
                    rows = roster.list_rows()["agents"]
                    return ToolkitAnswer(f"Toolkit Agents ({len(rows)})", render_agents(roster.group_rows(rows)))
                case "doctor":
                    report = self._run_checkup(self._request)
                    counts = render_summary(report)
                    lines = ["Toolkit Doctor", "", f"Summary: {counts}", *render_items(report)]
                    return ToolkitAnswer("Toolkit Doctor", "\n".join(lines), f"Doctor: {counts}")
                case "logs":
                    return ToolkitAnswer("Toolkit Logs", render_logs(self.read_log(), rest))
                case "activity":
                    return ToolkitAnswer("Toolkit Activity", render_counts(self.read_log()))
                case "modules":
                    return ToolkitAnswer("Toolkit Modules", render_modules(self._load()))
                case "lsp":
                    return ToolkitAnswer("Toolkit LSP", render_lsp(self._load()))
                case _:
                    listed = [f"  /toolkit {name:<10}{text}" for name, text in COMMANDS.items()]
                    return ToolkitAnswer("Toolkit", "\n".join(("Usage: /toolkit COMMAND", "", *listed)))
        except RetinueError as error:
            text = f"Toolkit command failed: {error}"
            return ToolkitAnswer("Toolkit", text, text)

    def read_log(self) -> list[Activity]:
        """The activity without subagent calls, as in devkit-pi; `retinue logs` shows everything."""
        own = list_surface_tools(SURFACES)
        return [entry for entry in open_log().read() if entry.tool not in own]

    def clear_log(self) -> None:
        """Delete the activity log. Raises ConfigError."""
        log = open_log()
        try:
            log.clear()
        except OSError as error:
            raise ConfigError(f"{log.path}: cannot be removed: {(error.strerror or str(error)).lower()}") from None

    def _load(self) -> SubagentsConfig:
        paths = find_paths(".", os.environ)
        trusted = load_settings(paths, os.environ, approve=self._request.approve).trust.trusted
        return load_subagents(paths, os.environ, trusted=trusted).settings


def open_log() -> ActivityLog:
    """Open the activity log of this project."""
    paths = find_paths(".", os.environ)
    return find_log(paths.own_dir, paths.project)


def render_agents(groups: Sequence[Sequence[dict[str, Any]]]) -> str:
    """Render all agents by source, each with its variants."""
    lines = [f"Available Agents ({sum(map(len, groups))})"]
    for source in _SOURCES:
        own = [group for group in groups if group[0]["source"] == source]
        lines += ["", f"[{source.upper()}]"] if own else []
        for row, *variants in own:
            about = escape_line(row["description"] or "(no description)", 10_000)
            about = about if len(about) <= 30 else f"{about[:29]}…"
            rights = "read-only" if row["readonly"] else "read/write"
            off = "" if row["enabled"] else " (disabled)"
            also = f" also {', '.join(each['name'] for each in variants)}" if variants else ""
            lines.append(f"  {escape_line(row['name'], 60):<14} {about:<30} ({rights}){off}{also}")
    return "\n".join([*lines, "", 'Use: subagent({ agent: "explorer", task: "..." })'])


def render_summary(report: "DoctorReport") -> str:
    return "{passed} passed, {warnings} warnings, {failed} failed".format(**report.summary)


def render_items(report: "DoctorReport") -> list[str]:
    """Render the results of all checks, grouped by category."""
    lines = []
    for category in dict.fromkeys(item.category for item in report.items):
        lines += ["", f"[{category.upper()}]"]
        for item in (item for item in report.items if item.category == category):
            lines.append(f"  [{item.status.upper()}] {escape_line(item.message, 200)}")
            lines += [f"         {escape_line(item.details, 1000)}"] if item.details else []
    return lines


def select_logs(entries: Sequence[Activity], *, tool: str = "", run: str = "") -> list[Activity]:
    """Entries of one tool, or of runs whose id starts with `run`."""
    return [entry for entry in entries if (not tool or entry.tool == tool) and entry.run.startswith(run)]


def filter_logs(entries: Sequence[Activity], words: Sequence[str]) -> list[Activity]:
    """Entries of the first kind (`--search`, `--fetch`, `--convert`) found in `words`; all if there is none."""
    chosen = next((names for flag, names in _FILTERS.items() if flag in words), None)
    return [entry for entry in entries if chosen is None or entry.tool in chosen]


def render_logs(entries: Sequence[Activity], words: Sequence[str] = ()) -> str:
    """Render the newest calls, then statistics about them."""
    # As in devkit-pi, the limit applies before the filter.
    shown = filter_logs(list(entries)[::-1][: find_limit(words)], words)
    return _join_report(shown, [_render_line(entry) for entry in shown])


def render_history(entries: Sequence[Activity]) -> str:
    """Render all calls in detail, newest first."""
    shown, lines, day = list(entries)[::-1], list[str](), time.strftime("%Y-%m-%d")
    for entry in shown:
        own = time.strftime("%Y-%m-%d", time.localtime(entry.at_ms / 1000))
        lines += ["", own] if own != day else []
        day = own
        sizes = f"{entry.asked_chars} → {entry.answered_chars} characters"
        lines.append("  ".join(filter(None, (_render_line(entry), sizes, entry.run and f"run {entry.run[:8]}"))))
    return _join_report(shown, lines)


def _join_report(shown: Sequence[Activity], lines: Sequence[str]) -> str:
    head = [f"Recent Activity (last {len(shown)})", ""]
    return "\n".join([*head, *(lines or ["  (no recent activity)"]), "", *_render_figures(shown)])


def render_counts(entries: Sequence[Activity]) -> str:
    """Render calls, successes, errors and average duration per tool."""
    if not entries:
        return "(no recent activity)"
    lines = [f"{'tool':<24}{'calls':>7}{'ok':>7}{'errors':>8}{'avg':>9}"]
    for tool, own in _group(entries, lambda entry: entry.tool):
        good = sum(entry.status == "success" for entry in own)
        name = escape_line(tool, 60)
        lines.append(f"{name:<24}{len(own):>7}{good:>7}{len(own) - good:>8}{_find_average(own):>9}")
    return "\n".join(lines)


def render_modules(own: SubagentsConfig) -> str:
    """Render which modules are enabled."""
    hook = own.lsp.hook.mode if own.lsp.hook.enabled else "disabled"
    lsp = _tell(own.enabled and own.lsp.enabled) + f" (tool={'on' if own.lsp.tool.enabled else 'off'}, hook={hook})"
    lines = {
        "subagents": _tell(own.has_subagent),
        "web": _tell(own.enabled and own.web.enabled),
        "convert": _tell(own.enabled and own.convert_content.enabled),
        "lsp": lsp,
        "commands": _tell(own.enabled and own.commands.enabled),
    }
    title = "devkit-pi modules"
    return "\n".join([title, "=" * len(title), *(f"{name}: {state}" for name, state in lines.items())])


def render_lsp(own: SubagentsConfig) -> str:
    """Render the settings for language servers."""
    lsp = own.lsp
    facts = {
        "enabled": str(lsp.enabled).lower(),
        "tool.enabled": str(lsp.tool.enabled).lower(),
        "tool.allowMutatingActions": str(lsp.tool.allow_mutating_actions).lower(),
        "hook.enabled": str(lsp.hook.enabled).lower(),
        "hook.mode": lsp.hook.mode,
        "tool.actions": ", ".join((*LSP_ACTIONS, "rename", "codeAction", "restart")),
        "subagent.readonlyActions(default)": ", ".join(LSP_ACTIONS),
    }
    return "\n".join(["LSP", "===", *(f"{name}: {value}" for name, value in facts.items())])


def _tell(is_on: bool) -> str:
    return "enabled" if is_on else "disabled"


def find_limit(words: Sequence[str]) -> int:
    """The value of `--limit` in `words`, or the default."""
    for flag, value in pairwise(words):
        if flag == "--limit" and value.isascii() and value.isdigit():
            return int(value[:9]) if len(value) < 10 else MOST
    return DEFAULT_LIMIT


def _render_line(entry: Activity) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(entry.at_ms / 1000))
    who = entry.provider or entry.agent or "-"
    took = "" if entry.duration_ms is None else f"{entry.duration_ms}ms"
    code = f" {entry.code}" if entry.code else ""
    state = f"{_SIGNS[entry.status]} {entry.status}{code}"
    return f"  {clock}  {escape_line(entry.tool, 40):<20} {escape_line(who, 24):<16} {state:<16} {took}".rstrip()


def _render_figures(entries: Sequence[Activity]) -> list[str]:
    good = sum(entry.status == "success" for entry in entries)
    limited = sum(entry.status == "rate_limited" for entry in entries)
    lines = [
        "[STATISTICS]",
        f"  Total Requests: {len(entries)}",
        f"  Success: {good}",
        f"  Errors: {len(entries) - good - limited}",
        f"  Rate Limited: {limited}",
        f"  Avg Latency: {_find_average(entries)}",
    ]
    for name, own in _group(entries, lambda entry: entry.provider or entry.tool):
        share = 100 * sum(entry.status == "success" for entry in own) // len(own)
        lines.append(f"  {escape_line(name, 40)}: {len(own)} requests, {share}% success")
    return lines


def _find_average(entries: Sequence[Activity]) -> str:
    took = [entry.duration_ms for entry in entries if entry.duration_ms is not None]
    return f"{round(sum(took) / len(took))}ms" if took else "-"


def _group(entries: Sequence[Activity], find_key: Callable[[Activity], str]) -> list[tuple[str, list[Activity]]]:
    """Group entries, largest group first."""
    groups: dict[str, list[Activity]] = {}
    for entry in entries:
        groups.setdefault(find_key(entry), []).append(entry)
    return sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
