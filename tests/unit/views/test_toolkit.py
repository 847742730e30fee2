import pytest

from retinue.features.activity import Activity
from retinue.settings.devkit import Lsp, LspHook, LspToolSettings
from retinue.settings.subagents import SubagentsConfig
from retinue.views.toolkit import render_agents, render_counts, render_logs, render_lsp, render_modules


def make_entry(tool="read", status="success", **more):
    return Activity(0, tool, status, more.pop("duration_ms", 10), **more)


@pytest.mark.spec("devkit:63")
def test_filters_come_after_the_limit():
    entries = [make_entry("web_search"), make_entry("fetch_content"), make_entry("web_search"), make_entry("read")]
    shown = render_logs(entries, ["--search", "--fetch", "--limit", "3"])
    assert (shown.splitlines()[0], shown.count("fetch_content")) == ("Recent Activity (last 1)", 0)
    assert render_logs(entries, ["--limit", "3"]).splitlines()[0] == "Recent Activity (last 3)"
    assert "(no recent activity)" in render_logs(entries, ["--convert"])


def test_figures_count_ends():
    entries = [make_entry(), make_entry(status="error"), make_entry("web_search", "rate_limited", provider="brave")]
    lines = [line.strip() for line in render_logs(entries).split("[STATISTICS]")[1].strip().splitlines()]
    assert lines == [
        "Total Requests: 3",
        "Success: 1",
        "Errors: 1",
        "Rate Limited: 1",
        "Avg Latency: 10ms",
        "read: 2 requests, 50% success",
        "brave: 1 requests, 0% success",
    ]


def test_counts_are_one_line_each():
    entries = [make_entry("ls"), make_entry(), make_entry(status="error", duration_ms=None)]
    assert [line.split() for line in render_counts(entries).splitlines()] == [
        ["tool", "calls", "ok", "errors", "avg"],
        ["read", "2", "1", "1", "10ms"],
        ["ls", "1", "1", "0", "10ms"],
    ]


@pytest.mark.spec("devkit:62")
def test_agents_are_grouped_by_source():
    row = {"enabled": True, "readonly": True, "description": "x" * 31, "source": "builtin", "name": "one"}
    own = {**row, "source": "project", "readonly": False, "description": "", "name": "two", "enabled": False}
    assert render_agents([[row, {**row, "name": "oner"}], [own]]) == "\n".join(
        (
            "Available Agents (3)",
            "",
            "[BUILTIN]",
            f"  {'one':<14} {'x' * 29}… (read-only) also oner",
            "",
            "[PROJECT]",
            f"  {'two':<14} {'(no description)':<30} (read/write) (disabled)",
            "",
            'Use: subagent({ agent: "explorer", task: "..." })',
        )
    )


def test_modules_tell_their_state():
    own = SubagentsConfig(lsp=Lsp(tool=LspToolSettings(enabled=False), hook=LspHook(enabled=False, mode="disabled")))
    assert render_modules(own).splitlines()[2:] == [
        "subagents: enabled",
        "web: enabled",
        "convert: enabled",
        "lsp: enabled (tool=off, hook=disabled)",
        "commands: enabled",
    ]
    assert "hook.mode: disabled" in render_lsp(own).splitlines()


def test_one_switch_ends_all_modules():
    states = [
        line.split(": ")[1].split()[0] for line in render_modules(SubagentsConfig(enabled=False)).splitlines()[2:]
    ]
    assert states == ["disabled"] * 5
