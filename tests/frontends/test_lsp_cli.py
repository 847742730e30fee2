"""The program with a language server: who may ask it, what it says about changed files, what doctor says."""

import json
import os
from pathlib import Path

import pytest

from tests.flows.lsp_world import write_server
from tests.needs import explain_lack

COMPLAIN = """
def note(text):
    with open("notes.txt", "a") as file:
        file.write(text)
def ask(message):
    uri = message["params"]["textDocument"]["uri"]
    if message["method"].endswith("diagnostic"):
        text = open(uri[7:]).read()
        found = [(1, "bad")] if "bad" in text else []
        found += [(2, "odd")] if "odd" in text else []
        items = [{"severity": number, "range": place(0), "message": word} for number, word in found]
        answer(message, {"kind": "full", "items": items})
    else:
        answer(message, [{"uri": uri, "range": place(2, 4)}])
"""


@pytest.fixture
def go(place):
    """Runs the program where `gopls` is installed."""
    folder = place.root / "bin"
    write_server(folder, COMPLAIN)
    (place.work / "a.go").write_text("package a\n")
    path = f"{folder}:{os.environ['PATH']}"

    def run(*args, replies, env=None):
        return place.run("-p", "--mode", "json", *args, "begin", replies=replies, env={"PATH": path, **(env or {})})

    return run


def settle(place, **lsp):
    (place.agent_dir / "subagents.json").write_text(json.dumps({"lsp": lsp}))


def calls(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def results(done):
    assert done.status == 0, done.stderr
    found = [record["result"] for record in done.lines if record["type"] == "tool_execution_end"]
    return ["".join(block["text"] for block in result["content"]) for result in found]


def reports(done):
    ends = [record["message"] for record in done.lines if record["type"] == "message_end"]
    return [message["content"] for message in ends if message.get("customType") == "lsp-diagnostics"]


def starts(place):
    notes = place.work / "notes.txt"
    return notes.read_text().count("start") if notes.exists() else 0


DEFINE = calls("lsp", action="definition", file="a.go", line=1, column=1)
RENAME = calls("lsp", action="rename", file="a.go", line=1, column=1, newName="b")


def test_main_agent_asks_a_server(place, go):
    done = go(replies=[DEFINE, DEFINE, {"text": "done"}])
    assert results(done) == ["action: definition\na.go:3:5"] * 2
    assert starts(place) == 1


@pytest.mark.spec("devkit:77")
def test_setting_decides_about_renames(place, go):
    assert results(go(replies=[RENAME, {"text": "done"}])) == [
        'Action "rename" is disabled: lsp.tool.allowMutatingActions is false.'
    ]
    settle(place, tool={"allowMutatingActions": True})
    assert results(go(replies=[RENAME, {"text": "done"}])) == ["action: rename\nNothing to rename here."]


@pytest.mark.parametrize("lsp", [{"enabled": False}, {"tool": {"enabled": False}}])
def test_switched_off_tool_is_not_offered(place, go, lsp):
    settle(place, **lsp)
    (text,) = results(go(replies=[DEFINE, {"text": "done"}]))
    assert text.startswith("Tool 'lsp' not found.")


@pytest.mark.spec("devkit:78")
@pytest.mark.parametrize(
    ("marks", "text"),
    [
        ({}, "LSP tool is disabled for this subagent process."),
        (
            {"PI_SUBAGENT_ALLOW_LSP": "1", "PI_SUBAGENT_LSP_ACTIONS": "hover"},
            'LSP action "definition" is not allowed for this subagent process.',
        ),
        ({"PI_SUBAGENT_ALLOW_LSP": "1", "PI_SUBAGENT_LSP_ACTIONS": "definition"}, "action: definition\na.go:3:5"),
    ],
)
def test_environment_limits_a_child(place, go, marks, text):
    env = {"PI_SUBAGENT_CHILD": "1", "PI_SUBAGENT_DEPTH": "1", **marks}
    assert results(go("--tools", "lsp", replies=[DEFINE, {"text": "done"}], env=env)) == [text]


@pytest.mark.spec("devkit:77", "devkit:78")
@pytest.mark.parametrize("runner", ["inprocess", "process"])
def test_agents_have_the_allowed_actions(place, go, runner):
    settings = {"subagents": {"allowedLspActions": ["definition"]}, "lsp": {"tool": {"allowMutatingActions": True}}}
    (place.agent_dir / "subagents.json").write_text(json.dumps({**settings, "runner": runner}))
    (place.agent_dir / "agents").mkdir()
    (place.agent_dir / "agents" / "asker.md").write_text("---\ntools: lsp\ndescription: Asks.\n---\nAsk.\n")
    hover = calls("lsp", action="hover", file="a.go", line=1, column=1)
    asked = {"calls": [*DEFINE["calls"], *hover["calls"], *RENAME["calls"]]}
    spawn = calls("Agent", subagent_type="asker", prompt="look", description="a look")
    replies = [to("^begin", **spawn), to("^begin", text="started"), to("^look", **asked), to("^look", text="looked")]
    go("--approve", replies=[*replies, to("looked", text="done")])
    (session,) = place.agent_dir.glob("sessions/*/*/*/session.jsonl")
    entries = [json.loads(line).get("message", {}) for line in session.read_text().splitlines()]
    assert [entry["content"][0]["text"] for entry in entries if entry.get("role") == "toolResult"] == [
        "action: definition\na.go:3:5",
        'LSP action "hover" is not allowed for this subagent process.',
        'LSP action "rename" is not allowed for this subagent process.',
    ]


def test_changed_files_are_looked_at(place, go):
    spoil = calls("write", path="b.go", content="bad and odd\n")
    mend = calls("write", path="b.go", content="good\n")
    done = go(replies=[spoil, {"text": "wrote it"}, mend, {"text": "mended it"}])
    head = "Language servers report about the files that were changed:"
    assert reports(done) == [f"{head}\nb.go:1:1: error: bad\nb.go:1:1: warning: odd"]
    assert json.loads(done.stdout.splitlines()[-1])["type"] == "agent_settled"
    assert (place.work / "b.go").read_text() == "good\n"


def test_edits_are_told_errors_only(place, go):
    edit = calls("edit", path="a.go", edits=[{"oldText": "package a", "newText": "odd"}])
    assert reports(go(replies=[calls("read", path="a.go"), edit, {"text": "done"}])) == []
    edit = calls("edit", path="a.go", edits=[{"oldText": "odd", "newText": "bad odd"}])
    told = reports(go(replies=[calls("read", path="a.go"), edit, {"text": "done"}, {"text": "so be it"}]))
    assert [text.splitlines()[1:] for text in told] == [["a.go:1:1: error: bad"]]


def test_agent_that_mends_nothing_ends(place, go):
    spoil = calls("write", path="b.go", content="bad\n")
    rounds = [{**spoil}, {"text": "no idea"}] * 6
    done = go(replies=[*rounds, {"text": "never said"}])
    assert (done.status, len(reports(done))) == (0, 5)


def test_result_tells_at_once(place, go):
    settle(place, hook={"mode": "edit_write"})
    done = go(replies=[calls("write", path="b.go", content="bad\n"), {"text": "done"}])
    (text,) = results(done)
    assert text.splitlines()[-2:] == ["A language server reports about this file:", "b.go:1:1: error: bad"]
    assert reports(done) == []


@pytest.mark.parametrize("lsp", [{"hook": {"mode": "disabled"}}, {"hook": {"enabled": False}}, {"enabled": False}])
def test_hook_can_be_off(place, go, lsp):
    settle(place, **lsp)
    done = go(replies=[calls("write", path="b.go", content="bad\n"), {"text": "done"}])
    assert (reports(done), starts(place)) == ([], 0)


@pytest.mark.attack("F10")
def test_project_settings_start_no_server(place, go):
    evil = place.work / ".pi"
    evil.mkdir()
    canary = place.root / "canary"
    command = ["/bin/sh", "-c", f"touch {canary}"]
    servers = {"gopls": {"command": command}, "evil": {"command": command, "extensions": [".go"]}}
    (evil / "subagents.json").write_text(json.dumps({"lsp": {"servers": servers, "python": "evil"}}))
    for trust in ("--approve", "--no-approve"):
        done = go(trust, replies=[DEFINE, {"text": "done"}])
        assert done.status == 0
        assert not canary.exists()
    assert "Unsupported" in results(done)[0]


def test_doctor_tells_of_servers(place):
    items = json.loads(place.run("doctor", "--json").stdout)["items"]
    found = {item["message"]: item["status"] for item in items if item["category"] == "lsp"}
    assert found["LSP tool enabled"] == "pass"
    assert found["LSP diagnostics hook enabled (agent_end)"] == "pass"
    settle(place, enabled=False)
    items = json.loads(place.run("doctor", "--json").stdout)["items"]
    assert [(item["status"], item["message"]) for item in items if item["category"] == "lsp"] == [
        ("warn", "LSP module disabled")
    ]


def test_start_loads_no_server_code(place):
    program = Path(__file__).resolve().parent.parent.parent / "src" / "retinue" / "tools" / "lsp" / "pool.py"
    assert program.exists()
    done = place.run("-p", "hi", replies=[{"text": "hello"}], env={"PYTHONVERBOSE": "1"})
    assert "retinue.tools.lsp.pool" not in done.stderr
    assert "retinue.tools.lsp.session" not in done.stderr


TELL = """
texts = []
def note(text):
    pass
def hear(message):
    params = message["params"]
    if message["method"].endswith("didOpen"):
        texts.append(params["textDocument"]["text"])
    elif message["method"].endswith("didChange"):
        texts.append(params["contentChanges"][0]["text"])
def ask(message):
    if message["method"].endswith("diagnostic"):
        items = [{"severity": 1, "range": place(0), "message": " ".join(texts)}]
        answer(message, {"kind": "full", "items": items})
    else:
        answer(message, {"contents": " ".join(texts)})
"""
HOVER = {"action": "hover", "line": 1, "column": 1}


@pytest.fixture
def secrets(place, go):
    """Files that agents do not read: in the home, and in the workspace by a setting of the user."""
    write_server(place.root / "bin", TELL)
    inside = place.work / "private"
    for folder in (place.home / ".ssh", inside, place.root / "outside"):
        folder.mkdir()
        (folder / "a.go").write_text("package canary\n")
    (place.work / "sub").mkdir()
    for name in ("b.go", "sub/a.go"):
        (place.work / name).write_text("package b\n")
    (place.agent_dir / "subagents.json").write_text(json.dumps({"sandbox": {"hidden": [str(inside)]}}))


SWAPS = [
    ("a.go", "ln -sf ~/.ssh/a.go a.go"),
    ("a.go", "ln -sf private/a.go a.go"),
    ("a.go", "ln -sf ../outside/a.go a.go"),
    ("sub/a.go", "rm -r sub && ln -s ~/.ssh sub"),
    ("sub/a.go", "mv sub old && ln -s private sub"),
]


@pytest.mark.sample(3)
@pytest.mark.attack("I8")
@pytest.mark.parametrize(("file", "command"), SWAPS)
def test_swapped_document_is_not_read_again(go, secrets, file, command):
    swap = calls("bash", command=command)
    asked = [calls("lsp", file=file, **HOVER), swap, *[calls("lsp", file=name, **HOVER) for name in ("b.go", file)]]
    first, *told = results(go(replies=[*asked, {"text": "done"}]))
    assert "package" in first and "package b" in told[1] and "canary" not in str(told)


@pytest.mark.attack("I8")
def test_changed_file_is_reported_from_its_own_text(place, go, secrets):
    written = calls("write", path="a.go", content="package mine\n")
    swap = calls("bash", command="ln -sf private/a.go a.go")
    done = go(replies=[written, swap, {"text": "done"}, {"text": "done"}])
    # Landlock alone lets nobody make entries beside a hidden folder.
    is_swapped = os.path.islink(place.work / "a.go") or bool(explain_lack("bwrap"))
    assert is_swapped and "canary" not in done.stdout
