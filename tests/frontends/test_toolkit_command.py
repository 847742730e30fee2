import json
import re

import pytest

CALL = {"calls": [{"name": "read", "arguments": {"path": "s3cret.txt"}}, {"name": "ls", "arguments": {}}]}


def list_tools(output):
    return re.findall(r"^  \d\d:\d\d:\d\d  (\S+)", output, re.MULTILINE)


def test_what_tools_did_is_listed(place):
    place.run("-p", "look", replies=[CALL, {"text": "done"}])
    done = place.run("logs")
    assert (done.status, sorted(list_tools(done.stdout))) == (0, ["ls", "read"])
    assert "✗ error" in done.stdout
    counted = json.loads(place.run("activity", "--json").stdout)
    assert counted["tools"]["ls"] == {"calls": 1, "success": 1, "error": 0, "rate_limited": 0}
    assert len(list_tools(place.run("logs", "--limit", "1").stdout)) == 1


def test_log_holds_no_arguments(place):
    place.run("-p", "look", replies=[CALL, {"text": "done"}])
    files = list(place.agent_dir.glob("retinue/activity/*.jsonl"))
    assert len(files) == 1
    assert "s3cret" not in files[0].read_text()


def test_nothing_is_logged_without_session(place):
    place.run("--no-session", "-p", "look", replies=[CALL, {"text": "done"}])
    assert "(no recent activity)" in place.run("logs").stdout
    assert not (place.agent_dir / "retinue" / "activity").exists()


@pytest.mark.spec("devkit:64")
def test_agents_are_not_in_the_log(place):
    call = {"name": "subagent", "arguments": {"agent": "explorer", "task": "look"}}
    (place.agent_dir / "subagents.json").write_text('{"surfaces": ["subagent"]}')
    child = {"calls": [{"name": "ls", "arguments": {}}]}
    place.run("-p", "look", replies=[{"calls": [call, *child["calls"]]}, {"text": "done"}])
    tools = list_tools(place.run("-p", "/toolkit logs").stdout)
    assert "ls" in tools and "subagent" not in tools
    assert {"ls", "subagent"} <= set(list_tools(place.run("logs").stdout))
    assert {"ls", "subagent"} <= set(json.loads(place.run("activity", "--json").stdout)["tools"])


@pytest.mark.spec("devkit:65")
@pytest.mark.parametrize("words", ["/toolkit", "/toolkit nonsense", "/toolkit HELP"])
def test_unknown_words_get_the_help(place, words):
    done = place.run("-p", words)
    assert (done.status, done.stdout.splitlines()[0]) == (0, "Usage: /toolkit COMMAND")


@pytest.mark.spec("devkit:60", "devkit:62")
def test_reports_are_plain_text(place):
    lines = place.run("-p", "/toolkit DOCTOR").stdout.splitlines()
    assert (lines[0], lines[1], lines[2].split(":")[0]) == ("Toolkit Doctor", "", "Summary")
    assert place.run("-p", "/toolkit agents").stdout.startswith("Available Agents (11)\n\n[BUILTIN]\n")


@pytest.mark.parametrize("args", [("-p", "/toolkit activity"), ("--mode", "json", "-p", "/toolkit logs")])
def test_no_place_for_a_report_is_told(place, args):
    done = place.run(*args)
    assert (done.status, "Activity" in done.stdout, done.stderr.count("/toolkit")) == (0, False, 2 - ("json" in args))


def test_toolkit_can_be_switched_off(place):
    (place.agent_dir / "subagents.json").write_text('{"commands": {"enabled": false}}')
    done = place.run("-p", "/toolkit modules", replies=[{"text": "said to the agent"}])
    assert done.stdout == "said to the agent\n"


def test_bad_limits_are_refused(place):
    done = place.run("logs", "--limit", "many")
    assert (done.status, done.stderr) == (2, "retinue: --limit must be a whole number, not 'many'\n")


def test_tools_of_children_carry_their_agent(place):
    call = {"name": "Agent", "arguments": {"subagent_type": "Explore", "description": "look", "prompt": "look"}}
    child = place.root / "child.json"
    child.write_text(json.dumps({"replies": [{"calls": [{"name": "ls", "arguments": {}}]}, {"text": "seen"}]}))
    call["arguments"]["model"] = f"scripted/{child}"
    place.run("-p", "look", replies=[{"calls": [call]}, {"text": "waiting"}, {"text": "done"}])
    entries = json.loads(place.run("logs", "--json").stdout)["entries"]
    assert [entry.get("agent") for entry in entries if entry["tool"] == "ls"] == ["Explore"]


def test_lines_tell_run_and_sizes(place):
    (place.work / "a.txt").write_text("12345")
    place.run("-p", "look", replies=[{"calls": [{"name": "read", "arguments": {"path": "a.txt"}}]}, {"text": "done"}])
    [entry] = json.loads(place.run("logs", "--json").stdout)["entries"]
    [line] = [line for line in place.run("logs").stdout.splitlines() if " read " in line and "requests" not in line]
    assert line.endswith(f"{entry['durationMs']}ms  5 → {entry['answeredChars']} characters  run {entry['run'][:8]}")
    assert "characters" not in place.run("-p", "/toolkit logs").stdout


def test_limits_mean_the_same_everywhere(place):
    calls = [{"name": "web_search", "arguments": {"query": ""}}, *CALL["calls"], *CALL["calls"]]
    place.run("-p", "look", replies=[{"calls": calls}, {"text": "done"}])
    endless = "9" * 5000
    wishes = [("0", 0), ("2", 2), (endless, 5), (endless, 1, "--search"), ("1", 1, "--tool", "ls")]
    for limit, count, *flags in wishes:
        done = place.run("logs", "--json", "--limit", limit, *flags)
        entries = json.loads(done.stdout)["entries"]
        shown = list_tools(place.run("logs", "--limit", limit, *flags).stdout)
        assert (len(entries), shown) == (count, [entry["tool"] for entry in entries])


def test_days_are_told_apart(place):
    place.run("-p", "look", replies=[CALL, {"text": "done"}])
    [path] = place.agent_dir.glob("retinue/activity/*.jsonl")
    path.write_text('{"atMs": 86400000000, "tool": "old", "status": "success"}\n' + path.read_text())
    days = re.findall(r"^\d{4}-\d\d-\d\d$", place.run("logs").stdout, re.MULTILINE)
    assert [day[:7] for day in days] == ["1972-09"]
