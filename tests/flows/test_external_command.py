import json
import os
from pathlib import Path

import pytest

from retinue.core.run import Status
from tests.fake_child import reply
from tests.flows.external_world import ExternalWorld, find_flag

DONE = {"name": "subagent_finalize", "arguments": {"status": "SUCCESS", "result": "Found."}}
STICKY = "---\nname: keeper\ndescription: d\napproved_tools:\n  - read\n---\nKeep it.\n"


@pytest.fixture
def world(tmp_path, agent_dir):
    world = ExternalWorld(tmp_path, agent_dir)
    world.child.plan([reply("Here.")])
    return world


async def start(world, task="Where is it?", **options):
    await world.run(task, **options)
    (start,) = world.child.starts
    return start


async def test_command_line_is_that_of_the_seeds(world):
    begun = await start(world)
    prompt = find_flag(begun, "--system-prompt")
    assert begun["argv"] == [
        *("--mode", "json", "-p", "--session", find_flag(begun, "--session"), "--model", "mock/m-1"),
        *("--tools", "read,grep", "--system-prompt", prompt, "--no-context-files", "--no-skills", "Task: Where is it?"),
    ]
    assert (begun["cwd"], begun["stdin"]) == (str(world.work), "")


def add_sticky(world):
    (world.agent_dir / "subagents").mkdir()
    (world.agent_dir / "subagents" / "keeper.md").write_text(STICKY)
    return str(world.agent_dir / "sticky.jsonl")


@pytest.mark.spec("sticky:23", "sticky:22")
async def test_sticky_child_gets_the_bare_task(world):
    world.child.plan([reply(stop="toolUse", calls=[DONE])])
    file = add_sticky(world)
    begun = await start(world, agent="keeper", session_file=file)
    assert begun["argv"][:5] == ["--mode", "json", "-p", "--session", file]
    assert find_flag(begun, "--tools") == "read,subagent_finalize"
    assert begun["argv"][-1] == "Where is it?"


@pytest.mark.spec("sticky:8", "sticky:11")
async def test_child_without_an_end_goes_on(world):
    world.child.plan([reply("Free words.")], [reply(stop="toolUse", calls=[DONE])])
    outcome = await world.run(agent="keeper", session_file=add_sticky(world))
    first, second = world.child.starts
    assert (outcome.text, find_flag(first, "--session")) == ("Found.", find_flag(second, "--session"))
    assert [text for text, _ in first["files"].values()] == [text for text, _ in second["files"].values()]
    assert second["argv"][-1] != first["argv"][-1]


@pytest.mark.spec("devkit:25")
async def test_model_of_the_definition_is_passed(world):
    world.write_agent("---\nname: looker\ndescription: d\nmodel: mock/m-1\n---\nLook.\n")
    assert find_flag(await start(world), "--model") == "mock/m-1"


@pytest.mark.parametrize("surface", ["subagent", "fleet"])
async def test_pi_asks_no_model_of_its_choice(world, surface):
    world.model = "offline/rules"
    outcome = await world.run(surface=surface)
    assert (outcome.status, world.child.starts) == (Status.FAILED, [])
    for part in ("looker", "'offline/rules'", "name a model in the agent's file"):
        assert part in outcome.error
    world.write_agent("---\nname: looker\ndescription: d\nmodel: far/away\n---\nLook.\n")
    begun = await start(world, surface=surface)
    assert (find_flag(begun, "--model"), begun["env"]["PI_PROVIDER"], begun["env"]["PI_MODEL"]) == (
        *("far/away", "far", "away"),
    )


async def test_fleet_passes_the_inherited_model(world):
    begun = await start(world, surface="fleet")
    task, tag = begun["argv"][-1].splitlines()
    assert (find_flag(begun, "--model"), task, tag.split()[0]) == ("mock/m-1", "Where is it?", "<active_agent")


async def test_pi_may_know_models_we_do_not(world):
    world.write_agent("---\nname: looker\ndescription: d\nmodel: far/away\n---\nLook.\n")
    assert find_flag(await start(world), "--model") == "far/away"


@pytest.mark.spec("devkit:26")
async def test_empty_list_is_no_tools(world):
    world.write_agent("---\nname: looker\ndescription: d\nreadonly: true\ntools: bash, write\n---\nLook.\n")
    argv = (await start(world))["argv"]
    assert ("--no-tools" in argv, "--tools" in argv) == (True, False)


@pytest.mark.spec("devkit:22", "devkit:23")
async def test_tools_are_cut_as_everywhere(world):
    world.write_agent("---\nname: looker\ndescription: d\ntools: read, write, bash\n---\nLook.\n")
    assert find_flag(await start(world, allow_write=False), "--tools") == "read"
    await world.run(allow_write=True)
    assert find_flag(world.child.starts[-1], "--tools") == "read,write,bash"


@pytest.mark.spec("devkit:27", "devkit:28")
async def test_long_task_goes_through_a_file(world):
    task = "é" * 8_001
    begun = await start(world, task)
    path = begun["argv"][-1].removeprefix("@")
    assert begun["argv"][-1].startswith("@/") and begun["files"][path] == [f"Task: {task}", "0o600"]
    assert not any(os.path.exists(name) or os.path.exists(os.path.dirname(name)) for name in begun["files"])


@pytest.mark.spec("devkit:27")
async def test_short_task_is_inline(world):
    task = "x" * 7_994
    assert (await start(world, task))["argv"][-1] == f"Task: {task}"


@pytest.mark.attack("C9")
@pytest.mark.parametrize("task", ["--help", "-p", "@/etc/passwd"])
async def test_task_is_never_an_option(world, task):
    begun = await start(world, task, surface="fleet")
    last = begun["argv"][-1]
    told = begun["files"][last[1:]][0] if last.startswith("@") else last
    assert (told.splitlines()[0], begun["argv"][-2] == "--" or last.startswith("@/")) == (task, True)


@pytest.mark.attack("H3")
@pytest.mark.spec("devkit:28")
async def test_papers_are_private_and_removed(world):
    begun = await start(world)
    ((path, (text, mode)),) = begun["files"].items()
    assert (mode, "# Agent: looker" in text, "Look around." in text) == ("0o600", True, True)
    assert not Path(path).parent.exists()


@pytest.mark.spec("devkit:12")
async def test_environment_has_the_marks(world):
    env = (await start(world))["env"]
    marks = {name: value for name, value in env.items() if name.startswith("PI_SUBAGENT_")}
    assert marks == {
        "PI_SUBAGENT_CHILD": "1",
        "PI_SUBAGENT_DEPTH": "1",
        "PI_SUBAGENT_MAX_DEPTH": "1",
        "PI_SUBAGENT_ALLOW_LSP": "1",
        "PI_SUBAGENT_LSP_ACTIONS": "definition,references,hover,signature,symbols,diagnostics,"
        "workspace-diagnostics,servers",
    }


@pytest.mark.attack("E6")
@pytest.mark.spec("devkit:12")
async def test_depth_counts_on_from_ours(world, monkeypatch):
    monkeypatch.setenv("PI_SUBAGENT_DEPTH", "1")
    env = (await start(world, surface="fleet"))["env"]
    assert (env["PI_SUBAGENT_DEPTH"], env["PI_SUBAGENT_MAX_DEPTH"]) == ("2", "4")


async def test_one_key_is_passed_and_no_other_secret(world, monkeypatch):
    for name in ("MOCK_TOKEN", "OTHER_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD"):
        monkeypatch.setenv(name, f"secret-of-{name}")
    world.add_models(mock="$MOCK_TOKEN", other="$OTHER_TOKEN")
    begun = await start(world)
    assert [name for name, value in begun["env"].items() if "secret-of" in value] == ["MOCK_TOKEN"]
    assert "secret-of" not in json.dumps(begun["argv"])


async def test_path_leads_out_of_the_workspace(world, monkeypatch):
    (world.work / "bin").mkdir()
    trap = world.work / "bin" / "pi"
    trap.write_text("#!/bin/sh\ntouch trapped\n")
    trap.chmod(0o755)
    world.configure(runner="pi")
    monkeypatch.setenv("PATH", f"{trap.parent}:bin:{world.child.path.parent}:/usr/bin:/bin")
    env = (await start(world))["env"]
    assert env["PATH"] == f"{world.child.path.parent}:/usr/bin:/bin"
    assert not (world.work / "trapped").exists()


async def test_project_cannot_name_the_program(world):
    (world.work / ".pi").mkdir()
    (world.work / ".pi" / "subagents.json").write_text('{"piCommand": "/bin/false"}')
    (world.work / ".git").mkdir()
    outcome = await world.run()
    assert (outcome.status, len(world.child.starts)) == (Status.COMPLETED, 1)


async def test_tool_of_this_process_is_left_out(world):
    from retinue.core.model import ToolSpec
    from retinue.core.tool import Effect, ToolResult

    class Own:
        spec = ToolSpec("own", "d", {"type": "object"})
        effect, hint, guidelines = Effect.READ, "", ()

        async def call(self, arguments, context):
            return ToolResult.of("x")

    world.write_agent("---\nname: looker\ndescription: d\ntools: read, own\n---\nLook.\n")
    async with world.open(tools=[Own()]) as crew:
        await (await crew.spawn("looker", "one")).wait()
    assert find_flag(world.child.starts[0], "--tools") == "read"


async def test_readonly_commands_are_not_for_pi(world):
    world.write_agent("---\nname: looker\ndescription: d\nreadonly: true\ntools: read, bash\n---\nLook.\n")
    begun = await start(world, surface="fleet")
    assert (find_flag(begun, "--tools"), begun["env"]["RETINUE_READONLY"]) == ("read", "1")
