import json

import pytest

# What these do is done with a program that was started as a user does, and not only with a fork.
fresh = pytest.mark.fresh

TEXT = {"text": "Hello"}


def roles(records, kind):
    return [record["message"]["role"] for record in records if record["type"] == kind]


@fresh
def test_print_gives_the_answer_only(place):
    result = place.run("-p", "Hi", replies=[TEXT])
    assert (result.status, result.stdout, result.stderr) == (0, "Hello\n", "")


@fresh
def test_json_mode_streams_events(place):
    result = place.run("--mode", "json", "-p", "Hi", replies=[{"text": "Hé\u2028llo"}])
    kinds = [record["type"] for record in result.lines if record["type"] != "message_update"]
    assert kinds == [
        "session",
        "agent_start",
        "turn_start",
        "message_start",
        "message_end",
        "message_start",
        "message_end",
        "message_start",
        "message_end",
        "turn_end",
        "agent_end",
        "agent_settled",
    ]
    assert result.stdout.isascii()


@fresh
def test_tools_really_run(place):
    (place.work / "note.txt").write_text("the secret is 42\n")
    calls = {"calls": [{"name": "read", "arguments": {"path": "note.txt"}}]}
    place.run("-p", "Read it", replies=[calls, TEXT])
    results = [e["message"] for e in place.entries() if e.get("message", {}).get("role") == "toolResult"]
    assert [block["text"] for block in results[0]["content"]] == ["the secret is 42\n"]


def test_stdin_goes_before_the_prompt(place):
    place.run("-p", "go", stdin="piped text\n", replies=[TEXT])
    users = [e["message"] for e in place.entries() if e.get("message", {}).get("role") == "user"]
    assert users[0]["content"][0]["text"] == "piped text\n\ngo"


def test_files_and_images_go_with_the_prompt(place):
    (place.work / "a.md").write_text("# A\n")
    (place.work / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 10)
    place.run("-p", "@a.md", "@p.png", "look", replies=[TEXT])
    content = next(e["message"] for e in place.entries() if e.get("message", {}).get("role") == "user")["content"]
    assert content[0]["text"] == (
        f'<file name="{place.work}/a.md">\n# A\n\n</file>\n<file name="{place.work}/p.png"></file>\nlook'
    )
    assert (content[1]["type"], content[1]["mimeType"]) == ("image", "image/png")


def test_each_word_is_a_prompt(place):
    result = place.run("-p", "one", "two", replies=[{"text": "first"}, {"text": "second"}])
    assert result.stdout == "second\n"


@fresh
def test_continue_goes_on_in_the_newest_session(place):
    place.run("-p", "one", replies=[{"text": "first"}, {"text": "second"}])
    result = place.run("-c", "-p", "two", replies=[{"text": "first"}, {"text": "second"}])
    assert (result.stdout, len(place.sessions())) == ("second\n", 1)


def test_session_is_found_by_the_start_of_its_id(place):
    place.run("-p", "one", replies=[{"text": "first"}, {"text": "second"}])
    identity = place.entries()[0]["id"]
    result = place.run("--session", identity[:23], "-p", "two", replies=[{"text": "first"}, {"text": "second"}])
    assert (result.stdout, len(place.sessions())) == ("second\n", 1)


def test_session_path_is_made_when_missing(place):
    path = place.root / "deep" / "s.jsonl"
    place.run("--session", str(path), "-p", "Hi", replies=[TEXT])
    assert json.loads(path.read_text().splitlines()[0])["type"] == "session"


def test_session_id_is_made_then_found(place):
    for prompt in ("one", "two"):
        place.run("--session-id", "my.run-1", "-p", prompt, replies=[{"text": "first"}, {"text": "second"}])
    assert [entry["id"] for entry in place.entries()[:1]] == ["my.run-1"]
    assert len(place.sessions()) == 1


def test_no_session_leaves_nothing(place):
    result = place.run("--no-session", "-p", "Hi", replies=[TEXT])
    assert (result.stdout, place.sessions()) == ("Hello\n", [])


def test_session_goes_on_in_its_own_folder(place):
    place.run("-p", "one", replies=[{"text": "first"}, {"text": "second"}])
    other = place.root / "other"
    other.mkdir()
    calls = {"calls": [{"name": "bash", "arguments": {"command": "pwd"}}]}
    replies = [{"text": "first"}, calls, {"text": "second"}]
    place.run("-C", str(other), "--session", str(place.sessions()[0]), "-p", "two", replies=replies)
    results = [e["message"] for e in place.entries() if e.get("message", {}).get("role") == "toolResult"]
    assert results[0]["content"][0]["text"].strip() == str(place.work)


def test_tools_flag_is_exact(place):
    calls = {"calls": [{"name": "bash", "arguments": {"command": "echo hi"}}]}
    result = place.run("--tools", "read,ls", "--mode", "json", "-p", "Hi", replies=[calls, TEXT])
    added = next(record["message"] for record in result.lines if record["type"] == "message_end")["toolsAdded"]
    assert [tool["name"] for tool in added] == ["read", "ls"]
    ended = [record for record in result.lines if record["type"] == "tool_execution_end"]
    assert [record["isError"] for record in ended] == [True]


def test_context_and_prompt_files_are_read(place):
    (place.work / "AGENTS.md").write_text("Speak in rhymes.")
    (place.agent_dir / "APPEND_SYSTEM.md").write_text("Be kind.")
    result = place.run("--mode", "json", "-p", "Hi", replies=[TEXT])
    sections = next(record["message"] for record in result.lines if record["type"] == "message_end")["sections"]
    assert "Speak in rhymes." in sections["project_context"]
    assert sections["addendum"] == "<addendum>\nBe kind.\n</addendum>"


def test_system_prompt_flag_replaces_the_text(place):
    (place.work / "p.md").write_text("You are a parrot.")
    result = place.run("--system-prompt", "p.md", "--mode", "json", "-p", "Hi", replies=[TEXT])
    sections = next(record["message"] for record in result.lines if record["type"] == "message_end")["sections"]
    assert list(sections) == ["preamble", "cwd"] and sections["preamble"] == "You are a parrot."


@fresh
def test_models_lists_the_default(place):
    listed = json.loads(place.run("models", "--json").stdout)
    assert listed["default"] == "offline/rules"
    row = next(model for model in listed["models"] if model["provider"] == "offline")
    assert row == {
        "provider": "offline",
        "id": "rules",
        "name": row["name"],
        "api": "offline",
        "contextWindow": row["contextWindow"],
        "available": True,
    }


def test_sessions_lists_what_was_said(place):
    place.run("-p", "Where is it?", "--name", "search", replies=[TEXT])
    rows = json.loads(place.run("sessions", "--json").stdout)["sessions"]
    assert [(row["name"], row["messages"], row["cwd"], row["parentSession"]) for row in rows] == [
        ("search", 3, str(place.work), None)
    ]
    assert set(rows[0]) >= {"id", "path", "cwd", "created", "modified", "messages", "name", "parentSession"}


@fresh
def test_offline_model_answers_without_a_key(place):
    (place.work / "store.py").write_text("def save_session(path):\n    return path\n")
    result = place.run("-p", "Where is save_session defined?")
    assert result.status == 0
    assert "store.py:1" in result.stdout
    assert result.stderr.count("\n") == 1 and "offline/rules" in result.stderr


def test_offline_model_splits_a_question_over_agents(place):
    (place.work / "store.py").write_text("def save_session(path):\n    return path\n")
    (place.work / "prices.py").write_text("def read_price(item):\n    return item\n")
    (place.work / "agents.md").write_text("<active_agent name='Explore' depth='1'/> names an agent, Explore.\n")
    result = place.run("-p", "Where is save_session defined, and where is read_price defined?")
    assert (result.status, result.stderr.count("\n")) == (0, 1)
    assert ("2 `Explore` agents" in result.stdout, "store.py:1" in result.stdout) == (True, True)
    assert ("prices.py:1" in result.stdout, "agents.md" in result.stdout) == (True, False)


@fresh
def test_help_and_version_exit_with_zero(place):
    shown = place.run("--help")
    assert (shown.status, "usage: retinue" in shown.stdout, place.run("-v").stdout.split()[0]) == (0, True, "retinue")
