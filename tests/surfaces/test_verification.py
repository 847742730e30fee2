import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest

from retinue import Reason, Status
from retinue.core.errors import UsageError
from retinue.core.tool import ToolContext
from retinue.settings.request import SessionWish
from retinue.testing import make_repo
from tests.surfaces.subagent_world import World, ask, to

FIXER = "---\nname: fixer\ndescription: d\ntools: read, write, bash\nverify: {verify}\n---\n\nFix it.\n"
WORKER = "---\nname: worker\ndescription: d\ntools: read, write, bash\n{more}---\n\nDo it.\n"
FAILED = "SUBAGENT_VERIFICATION_FAILED"
RUNNERS = [None, "process"]
"""That of the test, and processes of their own."""
CHECK = "grep -q good done.txt"
SUM = {text: hashlib.sha256(text.encode()).hexdigest() for text in ("good\n", "bad\n")}


def write(path="done.txt", content="good\n"):
    return {"calls": ask("write", path=path, content=content)}


def shell(command):
    return {"calls": ask("bash", command=command)}


@pytest.fixture
def world(tmp_path, home):
    made = World(tmp_path, home)
    os.rmdir(made.work)
    make_repo(made.work, {"a.txt": "one\n", ".gitignore": "build/\n"})
    made.add(WORKER.format(more=""))
    made.add(FIXER.format(verify=CHECK))
    return made


def short(receipts):
    """The receipts without times and outputs."""
    seen = {
        name: [(each["command"], each["exitCode"]) for each in receipts[name]] for name in ("commands", "verification")
    }
    return {**seen, "files": [tuple(file.values()) for file in receipts["files"]]}


@pytest.mark.everywhere
@pytest.mark.parametrize("runner", RUNNERS)
async def test_failed_check_is_corrected(world, runner):
    world.set(**({"runner": runner} if runner else {}), subagents={"allowWrite": True})
    failed = "`grep -q good done.txt`, which verifies it, failed"
    fixed = [to(failed, **write()), to(failed, text="really done")]
    result = await world.call("fixer", "fix it", shell("exit 3"), {"text": "done"}, *fixed)
    [entry] = result["details"]["results"]
    assert (entry["verification"], entry["output"].split("\n")[0], entry["exitCode"]) == ("verified", "really done", 0)
    assert short(entry["receipts"]) == {
        "commands": [("exit 3", 3)],
        "verification": [(CHECK, 0)],
        "files": [("done.txt", "created", SUM["good\n"])],
    }
    assert entry["receipts"]["verification"][0]["durationMs"] >= 0
    assert result["content"][-1]["text"].startswith(
        f"Verified by the host: `{CHECK}` succeeded.\nFiles that the host saw change: done.txt (created)."
    )


@pytest.mark.everywhere
@pytest.mark.parametrize("runner", RUNNERS)
async def test_third_failure_is_final(world, runner):
    world.set(**({"runner": runner} if runner else {}), subagents={"allowWrite": True})
    replies = [write(content="bad\n"), *({"text": f"done {number}"} for number in (1, 2, 3, 4))]
    result = await world.call("fixer", "fix it", *replies)
    [entry] = result["details"]["results"]
    assert (entry["verification"], entry["exitCode"], result["details"]["error"]["code"]) == ("failed", 1, FAILED)
    assert short(entry["receipts"])["verification"] == [(CHECK, 1)]
    assert "failed (exit status 1, after 2 corrections)" in entry["error"] and "done 3" in entry["output"]


# In place with checkpoints and without (no session, no repository), in a worktree, and in a process of its own.
@pytest.mark.everywhere
@pytest.mark.parametrize("where", ["in place", "no session", "no repository", "worktree", "process"])
async def test_changes_of_the_commands_are_not_the_agents(world, where):
    more = {"worktree": "isolation: worktree\n", "process": "runner: process\n"}.get(where, "")
    world.add(WORKER.format(more=more))
    if where == "no repository":
        shutil.rmtree(world.work / ".git")
    options = {"session": SessionWish("none")} if where == "no session" else {}
    verify = ["echo log >> log.txt; rm -f gone.txt; echo formatted >> both.txt", CHECK]
    first = [write("both.txt"), write("gone.txt"), write(content="bad\n"), {"text": "done"}]
    replies = [*first, to("verifies it, failed", **write()), to("verifies it, failed", text="really done")]
    async with world.open(*replies, **options) as crew:
        result = await crew.call_subagent("worker", "do it", write=True, verify=verify)
    [entry] = result["details"]["results"]
    seen = entry["receipts"]
    both = hashlib.sha256(b"good\nformatted\nformatted\n").hexdigest()
    files = [("both.txt", "created", both), ("done.txt", "created", SUM["good\n"])]
    if seen["commit"] is None:  # a branch has only what is left
        files.append(("gone.txt", "created", None))
    assert (entry["verification"], short(seen)["files"], seen["verifyFiles"]) == ("verified", files, ["log.txt"])
    assert "Changed by commands that verify the result: log.txt." in result["content"][-1]["text"]


async def test_agents_in_one_place_have_receipts_of_their_own(world):
    """One writes while commands of two others run at the same time."""
    world.set(surfaces=["fleet"])
    meet = "touch {0}.here; until [ -e {1}.here ]; do sleep 0.01; done; echo {0} > {0}.txt; touch {0}.done; "
    meet += "until [ -e {1}.done ]; do sleep 0.01; done"
    replies = [
        to("^alone", **write("alone.txt")),
        to("^left", **shell(meet.format("left", "right"))),
        to("^right", **shell(meet.format("right", "left"))),
        to("", text="done"),
    ]
    async with world.open(*replies) as crew:
        await (await crew.spawn("worker", "alone")).wait()
        runs = [await crew.spawn("worker", word) for word in ("left", "right")]
        left, right = [(await run.wait()).receipts for run in runs]
        again = await (await crew.spawn("worker", "alone")).wait()
    names = [f"{side}.{end}" for side in ("left", "right") for end in ("done", "here", "txt")]
    assert [(file.path, file.maybe_by) for file in left.files] == [(name, (runs[1].id,)) for name in names]
    assert [(file.path, file.maybe_by) for file in right.files] == [(name, (runs[0].id,)) for name in names]
    assert any("by this agent or by another one" in note and "left.done" in note for note in left.notes)
    assert again.receipts is None or again.receipts.files == ()


async def test_files_of_others_are_left_out(world):
    """A person and another agent change files while an agent's command runs."""
    world.set(surfaces=["fleet"])
    replies = [
        to("^slow", **write("slow.txt")),
        to("^slow", **shell("until [ -e quick.txt ]; do sleep 0.01; done")),
        to("^slow", **write("slow2.txt")),
        to("^quick", **write("quick.txt")),
        to("", text="done"),
    ]
    async with world.open(*replies) as crew:
        slow = await crew.spawn("worker", "slow")
        quick = await crew.spawn("worker", "quick")
        outcomes = [await each.wait() for each in (slow, quick)]
    files = [[(file.path, file.maybe_by) for file in outcome.receipts.files] for outcome in outcomes]
    assert files == [[("slow.txt", ()), ("slow2.txt", ())], [("quick.txt", ())]]


async def test_worktree_has_its_commit(world):
    world.add(FIXER.format(verify=f"{CHECK}\nisolation: worktree"))
    script = shell("rm a.txt; mkdir build; echo x > build/o; echo b > b.txt")
    result = await world.call("fixer", "fix it", write(), script, {"text": "done"}, write=True)
    [entry] = result["details"]["results"]
    known = entry["receipts"]["commit"]
    shown = subprocess.run(["git", "log", "--all", "--format=%H", "-1"], cwd=world.work, capture_output=True, text=True)
    assert (entry["verification"], shown.stdout.strip()) == ("verified", known)
    assert [(file["path"], file["change"]) for file in entry["receipts"]["files"]] == [
        ("a.txt", "deleted"),
        ("b.txt", "created"),
        ("done.txt", "created"),
    ]
    assert entry["receipts"]["files"][2]["sha256"] == SUM["good\n"] and not (world.work / "done.txt").exists()


async def test_nothing_is_verified_without_commands(world):
    result = await world.call("worker", "do it", write(content="bad\n"), {"text": "done"}, write=True)
    [entry] = result["details"]["results"]
    assert (entry["verification"], result["content"][0]["text"]) == ("not verified", "done")
    assert short(entry["receipts"])["files"] == [("done.txt", "created", SUM["bad\n"])]
    reader = await world.call("worker", "read it", {"text": "read"})
    assert reader["details"]["results"][0]["receipts"] == {
        "commands": [],
        "files": [],
        "verification": [],
        "commit": None,
        "notes": [],
    }
    assert len(reader["content"]) == 1


async def test_commands_of_all_sources_add_up(world):
    world.set(verify=["echo settings >> order", CHECK], subagents={"allowWrite": True})
    world.add(FIXER.format(verify="[echo file >> order, true]"))
    async with world.open(write(), {"text": "done"}) as crew:
        result = await crew.call_subagent("fixer", "fix it", verify="echo call >> order")
        with pytest.raises(UsageError, match="verify: found '3'"):
            await crew.spawn("fixer", "x", verify=3)
    [entry] = result["details"]["results"]
    commands = ["echo settings >> order", CHECK, "echo file >> order", "true", "echo call >> order"]
    assert [each["command"] for each in entry["receipts"]["verification"]] == commands
    assert (world.work / "order").read_text() == "settings\nfile\ncall\n"


async def test_settings_spare_agents_that_only_read(world):
    world.set(verify="false", subagents={"allowWrite": False})
    result = await world.call("worker", "read it", {"text": "read"})
    assert result["details"]["results"][0]["verification"] == "not verified"


async def test_calls_of_all_surfaces_take_commands(world):
    world.set(surfaces=["fleet", "subagent", "dispatch"], subagents={"allowWrite": True})
    calls = {
        "Agent": {"subagent_type": "worker", "prompt": "one", "description": "d"},
        "subagent": {"agent": "worker", "task": "two"},
        "dispatch_agent": {"agent": "worker", "prompt": "three"},
    }
    replies = [to("^go", calls=ask(name, **given, verify=["true", "echo no; false"])) for name, given in calls.items()]
    children = [to(f"^(Task: )?{word}\\b", text="done") for word in ("one", "two", "three")]
    failed = [to("echo no; false", text="again")] * 6
    async with world.open(
        *replies, to("^go", text="done"), *children, *failed, to("task-notification", text="ok")
    ) as crew:
        crew.listen(world.events)
        await crew.prompt("go", settle=True)
        records = [record for event in world.events.events if (record := crew.describe_life()(event))]
        [main] = [each for each in crew.history.list_messages() if "task-notification" in str(each)]
    ends = [each.result for each in world.events.events if type(each).__name__ == "ToolFinished"]
    details = {result.tool_name: result.details for result in ends}
    waited, dispatched = details["subagent"], details["dispatch_agent"]
    assert (waited["error"]["code"], waited["results"][0]["verification"]) == (FAILED, "failed")
    # Calls of dispatched agents need approval, and nobody is here to give it.
    assert dispatched["verification"] == "not verified" and "may not be run" in dispatched["receipts"]["notes"][0]
    ended = [record for record in records if record["type"] == "subagents:failed"]
    assert [short(each["receipts"])["verification"] for each in ended] == [[("true", 0), ("echo no; false", 1)]] * 2
    assert FAILED in str(main) and "again" in str(main)


async def test_dispatched_agent_is_verified(world):
    world.set(surfaces=["dispatch"])
    call = to("^go", calls=ask("dispatch_agent", agent="fixer", prompt="fix it"))
    async with world.open(call, to("^go", text="ok"), *[{"text": "done"}] * 3) as crew:
        crew.listen(world.events)
        await crew.prompt("go")
    [result] = [each.result for each in world.events.events if type(each).__name__ == "ToolFinished"]
    assert (result.details["reason"], result.details["verification"]) == (FAILED, "failed")
    assert "What it had said by then:\ndone" in result.content[0].text


async def test_model_without_a_shell_names_no_commands(world):
    result = await world.ask("worker", "look", {"text": "x"}, verify="true")
    assert result.details["results"][0]["verification"] == "verified"
    call = ask("subagent", agent="worker", task="look", verify="touch evil")
    async with world.open(to("^go", calls=call), to("^go", text="ok"), tools=("read", "subagent")) as crew:
        crew.listen(world.events)
        await crew.prompt("go")
    refused = [each.result for each in world.events.events if type(each).__name__ == "ToolFinished"][-1]
    assert (
        refused.details["error"]["code"] == "INVALID_INPUT" and "you may not name commands" in refused.content[0].text
    )


async def test_command_of_a_model_needs_approval(world):
    rules = [{"action": "deny", "tool": "bash", "pattern": "*touch evil*", "reason": "not that"}]
    world.set(surfaces=["fleet"], approvalRules=rules)
    start = ask("Agent", subagent_type="worker", prompt="one", description="d", verify="touch evil")
    async with world.open(
        to("^go", calls=start), to("^go", text="ok"), to("^one", text="done"), to("task", text="k")
    ) as crew:
        await crew.prompt("go", settle=True)
        [run] = await crew.runs()
    assert run.run.outcome.verification == "not verified" and "may not be run" in str(run.run.outcome.receipts.notes)
    assert not (world.work / "evil").exists()


async def test_refused_command_is_no_command(world):
    world.set(
        surfaces=["fleet"], approvals="ask", approvalRules=[{"action": "allow", "tool": "bash", "pattern": "true"}]
    )
    async with world.open(shell("true"), shell("touch evil"), {"text": "done"}) as crew:
        outcome = await crew.run("worker", "do it")
    assert [(each.command, each.exit_code) for each in outcome.receipts.commands] == [("true", 0)]


async def test_finalised_answer_is_kept_back(world):
    clerk = "---\nname: clerk\ndescription: d\nverify: 'false'\n---\n\nFile it.\n"
    world.add(clerk, "subagents")
    done = {"calls": ask("subagent_finalize", status="SUCCESS", result="all good")}
    result = await world.call("clerk", "file it", done, done, done)
    details = result["details"]
    assert (details["error"]["code"], "finalized" in details) == (FAILED, False)
    assert "all good" in details["results"][0]["output"]


async def test_stopped_run_keeps_its_receipts(world):
    world.set(surfaces=["fleet"])
    async with world.open(write(), shell("sleep 60")) as crew:
        run = await crew.spawn("fixer", "fix it")
        async for event in run.events():
            if type(event).__name__ == "ToolStarted" and event.name == "bash":
                break
        await run.stop()
        outcome = await run.wait()
    assert (outcome.status, outcome.verification) == (Status.STOPPED, "not verified")
    assert [(file.path, file.change) for file in outcome.receipts.files] == [("done.txt", "created")]
    assert [(each.command, each.exit_code) for each in outcome.receipts.commands] == [("sleep 60", None)]


async def test_endless_check_is_ended(world):
    world.set(surfaces=["fleet"], verifySeconds=1)
    world.add(FIXER.format(verify="sleep 60"))
    async with world.open(*[{"text": "done"}] * 3) as crew:
        outcome = await crew.run("fixer", "fix it")
    assert (outcome.verification, outcome.reason, outcome.text) == ("failed", Reason.VERIFICATION_FAILED, "done")
    assert "it did not end by itself" in outcome.error


async def test_resumed_run_is_verified_again(world):
    world.set(surfaces=["fleet"])
    async with world.open(to("^one", **write()), to("^one", text="done"), to("^two", text="again")) as crew:
        run = await crew.spawn("worker", "one", verify=CHECK)
        first = await run.wait()
        again = await (await crew.resume(run.id, "two")).wait()
        tool = (await crew.open_delegation()).tools["get_subagent_result"]
        shown = await tool.call({"agent_id": run.id}, ToolContext(cwd=world.work))
    assert (first.verification, again.verification, again.receipts.files) == ("verified", "verified", ())
    assert shown.details["verification"] == "verified" and "Verified by the host" in shown.content[0].text


def trust(world, *words):
    environment = {**os.environ, "HOME": str(world.home), "PI_CODING_AGENT_DIR": str(world.agent_dir)}
    command = [sys.executable, "-m", "retinue", "trust", *words]
    return subprocess.run(command, cwd=world.work, env=environment, capture_output=True, text=True)


async def test_commands_of_a_project_need_consent(world):
    (world.work / ".pi" / "agents").mkdir(parents=True)
    (world.work / ".pi" / "subagents.json").write_text(json.dumps({"verify": ["true", "touch project"]}))
    (world.work / ".pi" / "agents" / "ours.md").write_text(
        FIXER.format(verify="touch agent").replace("name: fixer", "name: ours")
    )
    world.set(verify="touch user", subagents={"allowWrite": True})
    assert trust(world, "--yes").returncode == 0
    async with world.open({"text": "done"}) as crew:
        crew.listen(world.events)
        result = await crew.call_subagent("ours", "do it")
    told = [event.text for event in world.events.events if type(event).__name__ == "Warned"]
    [entry] = result["details"]["results"]
    assert [each["command"] for each in entry["receipts"]["verification"]] == ["touch user"]
    assert (
        entry["verification"] == "not verified"
        and "retinue trust --command verify --yes" in result["content"][1]["text"]
    )
    assert any("retinue trust --command ours/verify --yes" in note for note in told)
    for name, shown in (("verify", "touch project"), ("ours/verify", "touch agent")):
        done = trust(world, "--command", name, "--yes")
        assert (done.returncode, shown in done.stdout) == (0, True)
    result = await world.call("ours", "do it", {"text": "done"})
    [entry] = result["details"]["results"]
    commands = ["touch user", "true", "touch project", "touch agent"]
    assert (entry["verification"], [each["command"] for each in entry["receipts"]["verification"]]) == (
        "verified",
        commands,
    )
    (world.work / ".pi" / "subagents.json").write_text(json.dumps({"verify": []}))
    result = await world.call("ours", "do it", {"text": "done"})
    commands = [each["command"] for each in result["details"]["results"][0]["receipts"]["verification"]]
    assert commands == ["touch user", "touch agent"]
    unknown = trust(world, "--command", "nobody/verify")
    assert (unknown.returncode, "'nobody'" in unknown.stderr) == (2, True)


async def test_unreadable_field_disables_the_agent(world):
    world.add(FIXER.format(verify="[[x]]"))
    result = await world.call("fixer", "fix it", {"text": "done"})
    assert result["details"]["error"]["code"] == "SUBAGENT_DISABLED" and "verify: found" in result["content"][0]["text"]
