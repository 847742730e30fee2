"""Rules that hold for the whole code base; the import contracts are in .importlinter, run by `make check`."""

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import msgspec
import pytest

import retinue
from retinue.core import events
from retinue.core.merge_report import MergeStep
from retinue.core.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage, Usage, UserMessage
from retinue.core.model import Delta
from retinue.core.run import Outcome, Question, Reason, Run, Status

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "retinue"
UNIT = ROOT / "tests" / "unit"
FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))

# Where any exception at all may be turned into a result, because nothing behind it may die of it.
MAY_CATCH_ALL = {
    "engine/calls.py",
    "engine/runner.py",
    "engine/bus.py",
    "engine/setup.py",
    "durable/cluster/approval_judge.py",  # judges are foreign code, and one that fails refuses
    "durable/cluster/worker.py",
    "features/extensions/foreign.py",
    "features/mcp/session.py",
    "serve/rpc/server.py",
    "cli/main.py",
}
# Files that start a task without a group, each with its reason beside the call.
MAY_START_TASKS = {"engine/scope.py"}
# Faces talk to the app; everything they show comes from events and core data.
FRONTENDS = {
    "cli": {"app", "views", "core", "cli", "ui", "serve"},
    "ui": {"app", "views", "core", "ui"},
    "serve": {"app", "views", "core", "serve"},
}
# What `retinue --help` must not pay for.
HEAVY = {"aiohttp", "asyncio", "ssl", "msgspec", "orjson", "yaml", "textual", "rich", "mcp", "pydantic", "subprocess"}
# What only a run on a cluster pays for.
CLUSTER = {"dbos", "psycopg", "sqlalchemy"}

REPLY = AssistantMessage([ToolCall("c1", "read", {"path": "a"})], "api", "provider", "model", Usage(1, 2), "toolUse", 5)
RESULT = ToolResultMessage("c1", "read", [TextContent("text")], False, 6, details={"lines": 1})
SAMPLES = [
    events.RunQueued(run_id="r", run=Run(id="r", parent_id="m", depth=1, agent="a", description="d"), request={"x": 1}),
    events.RunStarted(run_id="r", at_ms=5),
    events.RunPlaced(run_id="r", worker="box-1"),
    events.BranchesMerged(run_id="r", step=MergeStep("landed", ("pi-agent-1",))),
    events.RunProgressed(run_id="r", turns=2, activity="bash"),
    events.RunPaused(run_id="r", until_ms=7, provider="mock", gate="mock#1"),
    events.RunContinued(run_id="r"),
    events.RunRead(run_id="r"),
    events.RunForgotten(run_id="r"),
    events.RunSteered(run_id="r", text="left"),
    events.RunAsked(
        run_id="r", question=Question(id="q1", run_id="r", kind="ask", title="Which port?", options=("80",))
    ),
    events.RunAnswered(run_id="r", question_id="q1", answer="80", by="user"),
    events.AttemptStarted(run_id="r", attempt=2),
    events.AttemptEnded(run_id="r", will_retry=True),
    events.RunFinished(run_id="r", outcome=Outcome(Status.COMPLETED, Reason.DONE, "text", usage=Usage(1, 2))),
    events.TurnStarted(run_id="r", turn=1),
    events.TurnFinished(run_id="r", turn=1, message=REPLY, tool_results=[RESULT]),
    events.MessageStarted(run_id="r", message=REPLY),
    events.MessageDelta(run_id="r", delta=Delta("text_delta", 0, delta="a"), usage=Usage()),
    events.MessageFinished(run_id="r", message=UserMessage("hello", 4)),
    events.ToolStarted(run_id="r", call_id="c1", name="read", arguments={"path": "a"}),
    events.CallChanged(run_id="r", call_id="c1", name="read", arguments={"path": "b"}, by=["fixer"]),
    events.ToolProgress(run_id="r", call_id="c1", name="read", arguments={}, content=[], details={"lines": 1}),
    events.ToolFinished(run_id="r", result=RESULT, duration_ms=3),
    events.RetryScheduled(run_id="r", attempt=1, max_attempts=3, delay_ms=2000, error="why"),
    events.RetryEnded(run_id="r", success=False, attempt=3, error="why"),
    events.Steered(run_id="r", steering=["a"], follow_up=["b"]),
    events.CompactionStarted(run_id="r", reason="threshold"),
    events.Compacted(run_id="r", reason="manual", result={"summary": "s"}),
    events.EntryAppended(run_id="r", entry={"type": "context_edit"}),
    events.EntryAppended(run_id="r", entry={"type": "custom", "id": "1"}),
    events.ModelChanged(run_id="r", provider="mock", model_id="m"),
    events.ThinkingChanged(run_id="r", level="high"),
    events.SessionRenamed(run_id="r", name="work"),
    events.Warned(run_id="r", text="careful"),
    events.Asked(run_id="r", question=Question(id="q", run_id="r", title="Run bash?", text="rm x")),
    events.Answered(run_id="r", question_id="q", answer="deny", by="policy"),
    events.SchedulerReady(run_id="scheduler", session_id="s", job_count=1),
    events.ScheduleChanged(run_id="scheduler", change="fired", job_id="j", job={"id": "j"}, agent_id="r"),
]


@cache
def parse(file: str) -> ast.Module:
    return ast.parse((SOURCE / file).read_text(encoding="utf-8"), file)


def find_loose_tasks(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if node.func.attr == "ensure_future" or (
                node.func.attr == "create_task" and (owner == "asyncio" or "loop" in owner)
            ):
                yield node.lineno


def find_catch_alls(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "BaseException"
            # Tidying up and raising again hides nothing.
            passes_on = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
            if not passes_on and {"Exception", "BaseException"} & set(caught.strip("()").split(", ")):
                yield node.lineno


def find_own_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("retinue."):
            yield node.lineno, node.module.split(".")[1]
        if isinstance(node, ast.Import):
            yield from ((node.lineno, a.name.split(".")[1]) for a in node.names if a.name.startswith("retinue."))


def test_tasks_belong_to_groups() -> None:
    found = [(file, line) for file in FILES for line in find_loose_tasks(parse(file))]
    assert [place for place in found if place[0] not in MAY_START_TASKS] == []


def test_exceptions_are_caught_by_name() -> None:
    found = [(file, line) for file in FILES for line in find_catch_alls(parse(file))]
    assert [place for place in found if place[0] not in MAY_CATCH_ALL] == []


def test_front_ends_import_app_and_core() -> None:
    frontends = [(file, FRONTENDS[file.split("/")[0]]) for file in FILES if file.split("/")[0] in FRONTENDS]
    found = [
        (file, *place)
        for file, allowed in frontends
        for place in find_own_imports(parse(file))
        if place[1] not in allowed
    ]
    assert found == []


def test_nothing_shipped_imports_testing() -> None:
    shipped = [file for file in FILES if not file.startswith("testing/")]
    assert [file for file in shipped if "testing" in {name for _, name in find_own_imports(parse(file))}] == []


def test_modules_say_their_purpose() -> None:
    assert [file for file in FILES if (tree := parse(file)).body and not ast.get_docstring(tree)] == []


def load_modules(*arguments: str) -> set[str]:
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=dict(os.environ))
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}


def test_help_imports_nothing_heavy() -> None:
    assert load_modules("-m", "retinue", "--help") & (HEAVY | CLUSTER) == set()


def test_import_loads_nothing_heavy() -> None:
    assert load_modules("-c", "import retinue") & (HEAVY | CLUSTER) == set()


@pytest.mark.parametrize(
    "command", [("-p", "--no-session", "-nt", "Hello"), ("run", "Explore", "Find main"), ("doctor",)]
)
def test_local_work_needs_no_cluster(command: tuple[str, ...]) -> None:
    assert load_modules("-m", "retinue", *command) & CLUSTER == set()


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_event_survives_json(event: events.Event) -> None:
    assert msgspec.json.decode(msgspec.json.encode(event), type=events.Event) == event


def test_every_event_has_sample() -> None:
    assert {type(event) for event in SAMPLES} == set(get_args(events.Event))


def test_public_names_are_pinned() -> None:
    names = ["Limits", "Outcome", "Reason", "Request", "Retinue", "SessionWish", "Status"]
    assert (retinue.__all__, [getattr(retinue, name).__name__ for name in names]) == (names, names)


def find_subject(test: Path) -> Path | None:
    """The module or package of a file in tests/unit: test_<module>.py or test_<module>_<topic>.py in its folder."""
    folder = SOURCE / test.relative_to(UNIT).parent
    words = test.stem.split("_")[1:]
    for count in range(len(words), 0, -1):
        found = folder / "_".join(words[:count])
        if found.with_suffix(".py").is_file() or (found / "__init__.py").is_file():
            return found
    return None


def test_unit_tests_mirror_the_source() -> None:
    strays = [test for test in UNIT.rglob("test_*.py") if find_subject(test) is None]
    assert [test.relative_to(UNIT).as_posix() for test in strays] == []


def test_answers_of_the_guessing_test_are_files() -> None:
    parts = tomllib.loads((ROOT / "tests/data/guesses.toml").read_text(encoding="utf-8"))
    names = [name for part in parts.values() for files in part.values() for name in files]
    assert [name for name in names if not (SOURCE / name).is_file()] == []
