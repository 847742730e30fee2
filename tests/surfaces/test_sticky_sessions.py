import asyncio
import hashlib
import json
import os
from pathlib import Path

import pytest

from retinue import Status
from tests.surfaces.subagent_world import Flaky, World, ask, finalize, read_messages, to

DONE = finalize(status="SUCCESS", result="The answer.")
KEEPER = "---\nname: keeper\ndescription: d\n{lists}---\n\nKeep it.\n"
OUTSIDE = ("web_search", "fetch_content", "get_search_content", "convert_content", "lsp")


@pytest.fixture
def world(tmp_path, home):
    return World(tmp_path, home)


def reminded(**reply):
    return to("^You ended without", **reply)


def roles(path):
    return [message["role"] for message in read_messages(path)]


def list_given(result):
    """The tools that the run of a result had."""
    system = read_messages(result["details"]["results"][0]["sessionFile"])[0]
    return [tool["name"] for tool in system["toolsAdded"]]


@pytest.mark.spec("sticky:3", "sticky:4", "sticky:16")
@pytest.mark.everywhere
async def test_success_has_its_header(world):
    result = await world.call("scout", "look", DONE)
    details = result["details"]
    session_id = details["sessionId"]
    text = f"**Status:** SUCCESS\n**Session ID:** `{session_id}`\n\n---\n\nThe answer."
    assert (result["content"][0]["text"], details["finalized"]) == (
        text,
        {"status": "SUCCESS", "result": "The answer."},
    )
    assert ("error" in details, details["results"][0]["output"]) == (False, "The answer.")
    folder = hashlib.sha256(os.path.realpath(world.work).encode()).hexdigest()[:16]
    path = world.home / ".pi" / "subagent-sessions" / folder / f"scout_{session_id}.jsonl"
    assert details["results"][0]["sessionFile"] == str(path)
    assert path.stat().st_mode & 0o077 == path.parent.stat().st_mode & 0o077 == 0


@pytest.mark.spec("sticky:5")
@pytest.mark.parametrize(
    ("given", "body"),
    [
        ({"error": "No such thing."}, "No such thing."),
        ({"error": "Not all.", "result": "A half."}, "Not all.\n\nPartial result:\nA half."),
    ],
)
async def test_error_is_a_proper_end(world, given, body):
    result = await world.call("scout", "look", finalize(status="ERROR", **given))
    details = result["details"]
    head = f"**Status:** ERROR\n**Session ID:** `{details['sessionId']}`\n\n---\n\n"
    assert (result["content"][0]["text"], details["finalized"]) == (head + body, {"status": "ERROR", **given})
    assert ("error" in details, details["results"][0]["exitCode"]) == (False, 0)


@pytest.mark.spec("sticky:6", "sticky:7")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"status": "SUCCESS"}, "SUCCESS without a result is not valid."),
        ({"status": "SUCCESS", "result": " \n"}, "SUCCESS without a result"),
        ({"status": "SUCCESS", "error": "x"}, "SUCCESS without a result"),
        ({"status": "ERROR"}, "ERROR without an error is not valid."),
        ({"status": "ERROR", "error": " ", "result": "x"}, "ERROR without an error"),
        ({"status": "success", "result": "x"}, "status 'success' is neither SUCCESS nor ERROR."),
        ({"status": "", "result": "x"}, "status '' is neither"),
        ({"result": "x"}, "'status' is missing"),
        ({"status": "SUCCESS", "result": 5}, "'result' must be a string"),
        ({"status": "SUCCESS", "result": "x", "more": 1}, "'more' is not an argument"),
    ],
)
async def test_invalid_call_is_told(world, arguments, words):
    result = await world.call("scout", "look", finalize(**arguments), DONE)
    path = result["details"]["results"][0]["sessionFile"]
    first = next(message for message in read_messages(path) if message["role"] == "toolResult")
    assert (first["isError"], words in first["content"][0]["text"]) == (True, True)
    assert result["details"]["finalized"]["result"] == "The answer."
    assert roles(path) == ["system", "user", *["assistant", "toolResult"] * 2]


@pytest.mark.spec("sticky:8", "sticky:9", "sticky:11", "sticky:25")
async def test_plain_text_is_sent_back(world):
    result = await world.call("scout", "look", {"text": "Here it is."}, {"text": "As I said."}, DONE)
    details = result["details"]
    assert details["finalized"] == {"status": "SUCCESS", "result": "The answer."}
    assert ("As I said." in result["content"][0]["text"], "ended without" in json.dumps(result)) == (False, False)
    assert all(item["type"] == "text" for item in details["results"][0]["displayItems"])
    said = roles(details["results"][0]["sessionFile"])
    assert (said.count("system"), said.count("user"), len(details["results"])) == (1, 3, 1)


@pytest.mark.spec("sticky:10", "sticky:25")
async def test_reminders_have_an_end(world):
    result = await world.call("scout", "look", to("look", text="one"), reminded(text="two"))
    details, text = result["details"], result["content"][0]["text"]
    assert text.startswith(
        f"**Status:** ERROR\n**Session ID:** `{details['sessionId']}`\n\n---\n\nSubagent failed with"
    )
    assert (details["error"]["code"], "finalized" in details) == ("SUBAGENT_FAILED", False)
    assert "the agent ended 3 times without a valid call of subagent_finalize" in text
    assert roles(details["results"][0]["sessionFile"]).count("user") == 3
    assert ("two" in text, "Attempts" in text) == (False, False)


@pytest.mark.spec("sticky:9")
async def test_valid_call_ends_at_once(world):
    two = [*ask("subagent_finalize", status="SUCCESS", result="one"), *ask("ls")]
    result = await world.call("scout", "look", {"text": "Bye.", "calls": two}, {"text": "never"})
    assert result["details"]["finalized"]["result"] == "one"
    assert roles(result["details"]["results"][0]["sessionFile"])[-2:] == ["toolResult", "toolResult"]


@pytest.mark.spec("devkit:40")
async def test_reminders_give_no_more_time(world):
    world.set(subagents={"timeoutMs": 2000})
    result = await world.call("scout", "look", *({"text": "Hm.", "delay_ms": 1200} for _ in range(3)))
    one = result["details"]["results"][0]
    assert (one["exitCode"], roles(one["sessionFile"]).count("user")) == (124, 2)


async def test_delivered_answer_survives_the_time_limit(world):
    world.set(surfaces=["subagent"], subagents={"timeoutMs": 900, "allowWrite": True})
    world.add(KEEPER.format(lists=""), "subagents")
    calls = [*ask("bash", command="sleep 20"), *DONE["calls"]]
    result = await world.call("keeper", "look", {"calls": calls})
    assert (result["details"]["finalized"]["result"], "error" in result["details"]) == ("The answer.", False)


async def test_last_valid_call_counts(world):
    calls = [
        *ask("subagent_finalize", status="SUCCESS", result="one"),
        *ask("subagent_finalize", status="ERROR", error="two"),
        *ask("subagent_finalize", status="SUCCESS"),
    ]
    result = await world.call("scout", "look", {"calls": calls})
    assert result["details"]["finalized"] == {"status": "ERROR", "error": "two"}


@pytest.mark.spec("sticky:13")
@pytest.mark.everywhere
async def test_id_continues_the_session(world, crew_runner):
    first = await world.call("scout", "one", to("^one", **DONE))
    session_id = first["details"]["sessionId"]
    second = await world.ask("scout", "two", to("^two", **DONE), sessionId=session_id)
    path = second.details["results"][0]["sessionFile"]
    assert (path, second.details["sessionId"]) == (first["details"]["results"][0]["sessionFile"], session_id)
    turn = ["user", "assistant", "toolResult"]
    # On a worker the second one is told where it is now.
    assert roles(path) == ["system", *turn, *(["system"] if crew_runner == "cluster" else []), *turn]


@pytest.mark.spec("sticky:12", "sticky:14", "sticky:15")
async def test_sessions_are_apart(world):
    world.add(KEEPER.format(lists=""), "subagents")
    inner = world.work / "inner"
    (inner / ".git").mkdir(parents=True)
    given = {"session_id": "mine"}
    results = [
        await world.call("scout", "look", DONE, **given),
        await world.call("scout", "look", DONE),
        await world.call("keeper", "look", DONE, **given),
        await world.call("scout", "look", DONE, cwd=inner, **given),
    ]
    files = [result["details"]["results"][0]["sessionFile"] for result in results]
    assert (len(set(files)), [roles(path).count("user") for path in files]) == (4, [1, 1, 1, 1])
    assert results[0]["details"]["sessionId"] == results[3]["details"]["sessionId"] == "mine"
    assert len({result["details"]["sessionId"] for result in results}) == 2


@pytest.mark.spec("sticky:16")
async def test_folder_is_known_by_its_real_path(world):
    link = world.root / "link"
    link.symlink_to(world.work)
    one = await world.call("scout", "look", DONE, session_id="a")
    two = await world.call("scout", "look", to("look", **DONE), session_id="a", cwd=link)
    assert one["details"]["results"][0]["sessionFile"] == two["details"]["results"][0]["sessionFile"]


@pytest.mark.sample(9)
@pytest.mark.spec("sticky:17")
@pytest.mark.parametrize(
    "session_id",
    [
        *("", " ", ".", "..", "../x", "a/b", "a\\b", "-x", ".x", "x.", "a b", "a\nb", "a\0b", "🎉", "\u202eabc"),
        *("%2e%2e", "é", "e\u0301", "x" * 129, "/etc/passwd", "~", "a:b", "*"),
    ],
)
async def test_bad_ids_are_refused(world, session_id):
    result = await world.call("scout", "look", DONE, session_id=session_id)
    assert (result["details"]["error"]["code"], result["details"]["results"]) == ("INVALID_INPUT", [])
    assert "is not usable: letters, digits, '-', '_' and '.' are" in result["content"][0]["text"]
    assert not (world.home / ".pi" / "subagent-sessions").exists()


async def test_long_names_leave_room_for_the_id(world):
    world.add(KEEPER.format(lists="").replace("keeper", "k" * 128), "subagents")
    result = await world.call("k" * 128, "look", DONE, session_id="x" * 128)
    assert (result["details"]["error"]["code"], "are too long for a file name" in result["content"][0]["text"]) == (
        "INVALID_INPUT",
        True,
    )


@pytest.mark.parametrize("session_id", ["con", "A.b_c-1", "0", "x" * 128])
async def test_good_ids_are_taken(world, session_id):
    result = await world.call("scout", "look", DONE, session_id=session_id)
    assert (result["details"]["sessionId"], "error" in result["details"]) == (session_id, False)


async def test_unreadable_session_is_told(world):
    first = await world.call("scout", "look", DONE, session_id="mine")
    path = Path(first["details"]["results"][0]["sessionFile"])
    path.unlink()
    path.mkdir()
    result = await world.call("scout", "look", DONE, session_id="mine")
    assert result["details"]["error"]["code"] == "SUBAGENT_FAILED"
    assert "scout_mine.jsonl" in result["content"][0]["text"]


@pytest.mark.everywhere
async def test_session_in_use_is_refused(world):
    replies = [to("^slow", **DONE, delay_ms=1200), to("^quick", **DONE)]
    async with world.open(*replies) as crew:
        first = asyncio.ensure_future(crew.call_subagent("scout", "slow", session_id="mine"))
        while not (runs := await crew.runs()) or runs[0].status != "running":
            await asyncio.sleep(0.01)
        refused = await crew.call_subagent("scout", "quick", session_id="mine")
        done = await first
    assert ("error" in done["details"], refused["details"]["error"]["code"]) == (False, "SUBAGENT_FAILED")
    words = "scout_mine.jsonl is being written by another run of this program; wait for it, or start a new session"
    assert words in refused["content"][0]["text"]
    assert roles(done["details"]["results"][0]["sessionFile"]).count("user") == 1


@pytest.mark.here("its model exists in one process only")
async def test_passing_failure_stays_in_its_session(world):
    result = await world.call("scout", "look", model=Flaky(to("look", **DONE)), session_id="mine")
    path = Path(result["details"]["results"][0]["sessionFile"])
    assert ("error" in result["details"], [file.name for file in path.parent.iterdir()]) == (
        False,
        ["scout_mine.jsonl"],
    )


@pytest.mark.spec("sticky:18", "sticky:19", "sticky:20", "sticky:22")
@pytest.mark.parametrize(
    ("lists", "tools"),
    [
        ("approved_tools: [grep, read]\n", ["grep", "read"]),
        ("allowed_tools:\n  - read\n", ["read"]),
        ("approved_tools: []\n", []),
        ("approved_tools: [read, subagent, subagent_finalize]\n", ["read"]),
        ("denied_tools: [bash, edit, ls, nothing]\n", ["read", "write", "grep", "find", *OUTSIDE]),
        ("", ["read", "bash", "edit", "write", "grep", "find", "ls", *OUTSIDE]),
    ],
)
async def test_lists_are_obeyed(world, lists, tools):
    world.set(surfaces=["subagent"], subagents={"allowWrite": True})
    world.add(KEEPER.format(lists=lists), "subagents")
    result = await world.call("keeper", "look", DONE)
    assert list_given(result) == [*tools, "subagent_finalize"]


@pytest.mark.spec("sticky:20")
async def test_parents_active_tools_are_inherited(world):
    world.add(KEEPER.format(lists="denied_tools: [grep]\n"), "subagents")
    result = await world.call("keeper", "look", DONE, tools=["read", "grep", "subagent"])
    assert list_given(result) == ["read", "subagent_finalize"]


@pytest.mark.spec("sticky:21")
async def test_both_lists_are_refused(world):
    world.add(KEEPER.format(lists="approved_tools: [read]\ndenied_tools: [bash]\n"), "subagents")
    result = await world.call("keeper", "look", DONE)
    error = result["details"]["error"]
    assert (error["code"], "the agent is ambiguous" in error["message"]) == ("UNKNOWN_AGENT", True)
    assert not (world.home / ".pi" / "subagent-sessions").exists()


@pytest.mark.spec("sticky:24")
async def test_body_is_the_prompt(world):
    world.add(KEEPER.format(lists=""), "subagents")
    (world.work / "AGENTS.md").write_text("Mind the gap.")
    result = await world.call("keeper", "look", DONE)
    sections = read_messages(result["details"]["results"][0]["sessionFile"])[0]["sections"]
    assert (sections["preamble"], "Mind the gap." in sections["project_context"]) == ("Keep it.", True)


async def test_fleet_delivers_what_was_finalised(world):
    replies = [to("^look", text="Here it is."), reminded(**DONE), to("^fail", **finalize(status="ERROR", error="No."))]
    async with world.open(*replies) as crew:
        well, badly = await crew.spawn("scout", "look"), await crew.spawn("scout", "fail")
        outcomes = [await well.wait(20), await badly.wait(20)]
    assert [(each.status, each.text, each.error) for each in outcomes] == [
        (Status.COMPLETED, "The answer.", ""),
        (Status.FAILED, "", "No."),
    ]


async def test_dispatch_delivers_what_was_finalised(world):
    world.set(surfaces=["dispatch"])
    call = ask("dispatch_agent", agent="scout", prompt="look")
    replies = [to("^go", calls=call), to("^go", text="thanks"), to("^look", text="Here it is."), reminded(**DONE)]
    async with world.open(*replies) as crew:
        await crew.prompt("go")
        (result,) = [item for item in read_messages(crew.session_file) if item["role"] == "toolResult"]
    assert (result["isError"], "The answer." in result["content"][0]["text"]) == (False, True)


async def test_main_agent_can_play_such_a_role(world):
    async with world.open({"text": "Hm."}, reminded(**DONE), agent="scout") as crew:
        outcome = await crew.prompt("look")
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "The answer.")


@pytest.mark.spec("sticky:2", "sticky:22")
async def test_child_process_can_finalise(world):
    marks = {"PI_SUBAGENT_CHILD": "1"}
    async with world.open(DONE, {"text": "never"}, environment=marks, tools=["read", "subagent_finalize"]) as crew:
        outcome = await crew.prompt("look")
        system = read_messages(crew.session_file)[0]
    assert (outcome.status, [tool["name"] for tool in system["toolsAdded"]]) == (
        Status.COMPLETED,
        ["read", "subagent_finalize"],
    )
