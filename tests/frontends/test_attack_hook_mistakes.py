"""A guard that is written down wrongly still guards: what it might have refused is refused until it is mended."""

import json

import pytest

GUARD = {"name": "gate", "point": "tool.approval.pre", "type": "decision", "command": "true"}
WATCH = {"name": "note", "point": "agent.turn.start", "type": "observer", "command": "true"}
WRITE = {"calls": [{"name": "write", "arguments": {"path": "a.txt", "content": "x"}}]}
READ = {"calls": [{"name": "ls", "arguments": {}}]}
AGENT = "---\nname: helper\ndescription: d\ntools: [write_file, list_files]\n{}\n---\n\nWork.\n"


def put(folder, content):
    path = folder / ".codingcode" / "hooks.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps({"hooks": content}))
    return path


def try_calls(place, *args):
    """What two calls of a run were answered."""
    done = place.run("-p", *args, "begin", replies=[WRITE, READ, {"text": "done"}])
    assert (done.status, done.stdout, "Traceback" in done.stderr) == (0, "done\n", False), done.stderr
    found = [entry["message"] for entry in place.entries() if entry.get("message", {}).get("role") == "toolResult"]
    return [message["content"][0]["text"] for message in found if message["isError"]]


def find_failures(place, *args):
    done = place.run("doctor", "--json", *args)
    items = [item for item in json.loads(done.stdout)["items"] if item["category"] == "hooks"]
    return done.status, [item["details"] for item in items if item["status"] == "fail"]


@pytest.mark.attack("I13")
@pytest.mark.parametrize(
    "text", ["name: gate\npoint: tool.approval.pre\ntype: decision\ncommand: 'true'\n", "hook: x\n"]
)
def test_guard_outside_of_the_list_refuses(place, text):
    put(place.home, text)
    assert len(try_calls(place)) == 2
    put(place.home, "version: 1\n")
    assert try_calls(place) == []


MISTAKES = {
    "misspelt point": ({"point": "tool.aproval.pre"}, "point: found 'tool.aproval.pre'"),
    "other point": ({"point": "PreToolUse"}, "point: found 'PreToolUse'"),
    "point of another kind": ({"point": ["tool.approval.pre"]}, "point: found an array"),
    "no point": ({"point": None}, "point: found null"),
    "upper case": ({"point": "Tool.Approval.Pre"}, "point: found 'Tool.Approval.Pre'"),
    "told where it should be asked": ({"point": "tool.execute.before"}, "type: found 'decision'"),
    "told afterwards": ({"point": "tool.approval.post"}, "type: found 'decision'"),
    "step with a mistake": ({"point": "agent.step.before", "command": None}, "command: found null"),
    "other type": ({"type": "decide"}, "type: found 'decide'"),
    "no type": ({"type": None}, "type: found null"),
    "matcher": ({"matcher": "write("}, "matcher: unknown field"),
    "misspelt key": ({"tols": ["write"]}, "tols: unknown field"),
    "no command": ({"command": None}, "command: found null"),
    "command as a list": ({"command": ["sh", "-c", "true"]}, "command: found an array"),
    "args as a text": ({"args": "-c true"}, "args: found '-c true'"),
    "too many args": ({"args": ["x"] * 200}, "args: found 'a list of more than 100'"),
    "env as a list": ({"env": ["A=b"]}, "env: found an array"),
    "priority as a word": ({"priority": "high"}, "priority: found 'high'"),
    "enabled as a word": ({"enabled": "on"}, "enabled: found 'on'"),
    "no name": ({"name": None}, "name: found null"),
}


@pytest.mark.sample(7)
@pytest.mark.attack("I13")
@pytest.mark.parametrize(("change", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistake_in_an_entry_refuses(place, change, said):
    path = put(place.home, [WATCH, {**GUARD, **change}])
    answers = try_calls(place)
    assert (len(answers), (place.work / "a.txt").exists()) == (2, False)
    assert all(f"{path}:1: hooks[1].{said}" in text and "enabled: false" in text for text in answers), answers
    status, failures = find_failures(place)
    assert (status, any(f"hooks[1].{said}" in text for text in failures)) == (1, True)


@pytest.mark.sample(5)
@pytest.mark.attack("I13")
@pytest.mark.parametrize(
    "content",
    [
        "hooks: [",
        "hooks:\n  - gate\n",
        "hooks:\n  -\n",
        "hooks: gate\n",
        "hook:\n  - {name: gate, point: tool.approval.pre, type: decision, command: 'true'}\n",
        "hooks: []\nhoks: [{name: gate}]\n",
        "hooks: []\nhooks: []\n",
        "hooks:\n  - {name: g, point: tool.approval.pre, point: agent.turn.end, type: observer, command: 'true'}\n",
        "hooks: !!python/object:os.system x\n",
        "- name: gate\n",
        "\0",
    ],
)
def test_mistake_in_the_file_refuses(place, content):
    path = put(place.home, content)
    answers = try_calls(place)
    assert (len(answers), (place.work / "a.txt").exists()) == (2, False)
    assert all(str(path) in text for text in answers), answers
    assert find_failures(place)[0] == 1


@pytest.mark.attack("I13")
@pytest.mark.parametrize("kind", ["folder", "dangling", "circle", "closed"])
def test_file_that_cannot_be_read_refuses(place, kind):
    path = put(place.home, [GUARD])
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "dangling":
        path.symlink_to(place.root / "gone.yaml")
    elif kind == "circle":
        path.parent.rmdir()
        path.parent.symlink_to(path.parent)
    else:
        path.write_text(json.dumps({"hooks": [GUARD]}) * 100_000)
    assert (len(try_calls(place)), (place.work / "a.txt").exists()) == (2, False)
    assert find_failures(place)[0] == 1


@pytest.mark.attack("I13")
def test_second_guard_of_a_name_is_asked(place):
    deny = {**GUARD, "command": "echo", "args": ['{"decision": "deny", "reason": "no"}']}
    put(place.home, [GUARD, deny])
    assert (len(try_calls(place)), (place.work / "a.txt").exists()) == (2, False)


@pytest.mark.attack("I13")
def test_guard_behind_too_many_others_refuses(place):
    put(place.home, [{**WATCH, "name": f"note{number}", "enabled": False} for number in range(200)] + [GUARD])
    assert (len(try_calls(place)), (place.work / "a.txt").exists()) == (2, False)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "entry",
    [
        {**WATCH, "command": None},
        {**WATCH, "matcher": "write"},
        {**WATCH, "type": "watch"},
        {**GUARD, "point": "tool.aproval.pre", "enabled": False},
        {**GUARD, "command": None, "enabled": False},
    ],
)
def test_mistake_of_an_observer_is_told(place, entry):
    put(place.home, [entry])
    assert (try_calls(place), (place.work / "a.txt").exists()) == ([], True)
    assert find_failures(place)[0] == 1


@pytest.mark.attack("I13")
@pytest.mark.parametrize(
    "content", [[{**GUARD, "point": "tool.aproval.pre"}], "hooks: [", "hooks:\n  - gate\n", [{**GUARD, "command": 5}]]
)
def test_project_without_consent_refuses_nothing(place, content):
    put(place.work, content)
    place.run("trust", "--yes")
    assert (try_calls(place), (place.work / "a.txt").exists()) == ([], True)


@pytest.mark.sample(3)
@pytest.mark.attack("I13")
@pytest.mark.parametrize(
    "content",
    [
        [{**GUARD, "point": "tool.aproval.pre"}],
        [{**GUARD, "matcher": "x"}],
        "hooks: [",
        "hooks:\n  - gate\n",
        "hook: [{}]\n",
    ],
)
def test_approved_guard_refuses_once_broken(place, content):
    put(place.work, [GUARD])
    place.run("trust", "--yes")
    assert place.run("trust", "--hook", "gate", "--yes").status == 0
    put(place.work, content)
    assert (len(try_calls(place)), (place.work / "a.txt").exists()) == (2, False)


@pytest.mark.sample(4)
@pytest.mark.attack("I13")
@pytest.mark.parametrize(
    "fields",
    [
        "hooks: [{name: gate, point: tool.aproval.pre, type: decision, command: 'true'}]",
        "hooks: [{name: gate, point: tool.approval.pre, type: decision, command: 'true', tols: x}]",
        "hooks: gate",
        "hooks: [gate]",
        "hooks: {name: gate}",
        'hook: [{name: g, point: tool.approval.pre, type: decision, command: echo, args: [\'{"decision": "deny"}\']}]',
        "hooks: '[{'",
    ],
)
def test_mistake_in_an_agent_file_refuses(place, fields):
    path = place.home / ".codingcode" / "agents" / "helper.md"
    path.parent.mkdir(parents=True)
    path.write_text(AGENT.format(fields))
    replies = [{"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}]}, {"text": "done"}]
    place.run("-p", "--agent", "helper", "begin", replies=replies)
    assert not (place.work / "a.txt").exists()
    assert place.run("doctor").status == 1 or "hook:" in fields


EXTENSIONS = {
    "point": "def register(api):\n    api.hook(lambda payload: None, point='tool.aproval.pre')\n",
    "decorator": "def register(api):\n    @api.hook(point='PreToolUse')\n    def gate(payload):\n        return None\n",
    "object": "def register(api):\n    api.hook(object())\n",
    "later": "def register(api):\n    api.hook(lambda payload: None, point='tool.approval.pre')\n    1 / 0\n",
    "syntax": "def register(api)\n    api.hook(lambda payload: None, point='tool.approval.pre')\n",
    "import": "import nowhere\n\ndef register(api):\n    api.hook(lambda payload: None, point='tool.approval.pre')\n",
    "priority": "def register(api):\n    api.hook(lambda payload: None, point='tool.approval.pre', priority='x')\n",
}


@pytest.mark.sample(4)
@pytest.mark.attack("I13")
@pytest.mark.parametrize("text", EXTENSIONS.values(), ids=EXTENSIONS)
def test_mistake_in_an_extension_refuses(place, text):
    path = place.agent_dir / "extensions" / "gate.py"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    answers = try_calls(place)
    assert (len(answers), (place.work / "a.txt").exists()) == (2, False)
    assert all(str(path) in text for text in answers), answers


def test_broken_extension_without_hooks_refuses_nothing(place):
    path = place.agent_dir / "extensions" / "gate.py"
    path.parent.mkdir(parents=True)
    path.write_text("def register(api):\n    1 / 0\n")
    assert (try_calls(place), (place.work / "a.txt").exists()) == ([], True)
