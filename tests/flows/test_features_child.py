from pathlib import Path
from uuid import uuid4

import pytest

from retinue.core.definition import DeclaredTools, Definition
from retinue.core.run import Status
from retinue.engine.clock import SystemClock
from retinue.engine.prompt import Place, build_append, build_replace, render_prompt
from retinue.engine.runner import LiveRun
from retinue.features.memory import Memory, plan_memory
from retinue.features.skills import Skills
from retinue.models.scripted import ScriptedModel, parse_script
from retinue.sessions.log import Session
from retinue.tools.policy import BUILTIN_OFFERS, Rights, Terms, decide_tools
from retinue.tools.registry import ToolOptions, build_tools
from tests.run_setup import build_setup


@pytest.fixture
def child(tmp_path, home):
    """Starts an agent the way a surface will: rights, prompt, features, run."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "tidy.md").write_text("Be tidy.")

    def start(replies, *, parent=None, **fields):
        definition = Definition(name="scout", dialect="pi", source="user", path="s.md", prompt="Look.", **fields)
        terms = Terms(available=BUILTIN_OFFERS, parent=parent)
        rights = decide_tools(definition, terms)
        can_write, extra = plan_memory(definition, rights, terms)
        tools = build_tools(ToolOptions())
        memory = Memory(
            "project",
            "scout",
            project=tmp_path,
            home=home,
            can_write=can_write,
            tools={name: tools[name] for name in extra},
        )
        setup = build_setup(
            "r1",
            tmp_path,
            ScriptedModel(parse_script(replies)),
            tools={name: tools[name] for name in rights.allowed},
            sections=build_replace(definition, Place(str(tmp_path))),
            features=(memory, Skills(definition.skills, [tmp_path / "skills"])),
        )
        clock = SystemClock()
        session = Session.create(cwd=tmp_path, directory=None, clock=clock, new_id=lambda: uuid4().hex)
        return LiveRun(setup, session, clock=clock)

    return start


@pytest.mark.spec("fleet:B41")
async def test_prompt_keeps_its_order(child):
    run = child([{"text": "done"}], skills=("tidy",))
    await run.prompt("go")
    expected = ["header", "environment", "instructions", "memory", "skill:tidy"]
    assert list(run.session.context().sections) == expected


@pytest.mark.spec("fleet:B89")
async def test_notes_reach_the_next_run(child, tmp_path):
    note = {"path": str(tmp_path / ".pi/agent-memory/scout/MEMORY.md"), "content": "- tests live in spec/\n"}
    writer = child(
        [{"calls": [{"name": "write", "arguments": note}]}, {"text": "noted"}], tools=DeclaredTools(names=("edit",))
    )
    assert (await writer.prompt("remember")).status is Status.COMPLETED
    reader = child([{"text": "known"}], tools=DeclaredTools(names=("grep",)))
    await reader.prompt("recall")
    context = reader.session.context()
    assert "- tests live in spec/" in context.sections["memory"]
    assert context.sections["memory"].startswith("# Agent Memory (read-only)")
    assert [tool["name"] for tool in context.tools] == ["grep", "read"]


async def test_memory_gives_no_tool_the_parent_lacks(child):
    run = child([{"text": "done"}], parent=Rights(("grep", "edit")), tools=DeclaredTools(names=("edit",)))
    await run.prompt("go")
    assert [tool["name"] for tool in run.session.context().tools] == ["edit"]


async def test_linked_memory_fails_the_run(child, tmp_path):
    (tmp_path / ".pi").symlink_to(Path("/"))
    run = child([{"text": "never"}])
    outcome = await run.prompt("go")
    assert (outcome.status, outcome.error) == (
        Status.FAILED,
        f"memory: Refusing to use symlinked memory directory: {tmp_path}/.pi",
    )


async def test_features_keep_the_parents_prefix(child):
    run = child([{"text": "done"}], skills=("tidy",))
    definition = Definition(name="kid", dialect="pi", source="user", path="k.md", prompt_mode="append")
    await run.prompt("go")
    parent = render_prompt(run.session.context().sections)
    kid = render_prompt(build_append(definition, Place("/"), parent=parent))
    assert kid.encode().startswith(parent.encode())
