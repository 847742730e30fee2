"""Servers and hooks of the user's own that run a file of the project: whoever swaps the file is asked about again."""

import json

import pytest

HOOK = {"name": "mine", "point": "agent.turn.start", "type": "observer", "command": "sh"}
GUARD = {**HOOK, "point": "tool.approval.pre", "type": "decision"}
WRITE = {"calls": [{"name": "write", "arguments": {"path": "a.txt", "content": "x"}}]}


@pytest.fixture
def own(place):
    script = place.work / "tools" / "note.sh"
    script.parent.mkdir()
    script.write_text(f"echo good >> {place.home}/ran\n")
    (place.home / ".codingcode").mkdir()

    def configure(**fields):
        entry = {**HOOK, "args": [str(script)], **fields}
        (place.home / ".codingcode" / "hooks.yaml").write_text(json.dumps({"hooks": [entry]}))

    configure()
    place.note, place.configure = script, configure
    place.run("trust", "--yes")
    return place


def ran(place, replies=({"text": "done"},), *flags):
    done = place.run(*flags, "-p", "go", replies=list(replies))
    assert done.status == 0, done.stderr
    marks = place.home / "ran"
    return marks.read_text().split() if marks.exists() else [], done.stderr


@pytest.mark.sample(3)
@pytest.mark.attack("A12")
@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("sh", ["tools/note.sh"]),
        ("sh", ["-e", "./tools/../tools/note.sh"]),
        ("sh", ["-c", "sh ./tools/note.sh; true"]),
        ("env", ["FILE=tools/note.sh", "sh", "-c", '. ./"$FILE"']),
        ("sh", ["-c", "cd tools && sh ./note.sh"]),
    ],
)
def test_own_hook_waits_for_consent(own, command, args):
    own.configure(command=command, args=args)
    marks, told = ran(own)
    text = "hook 'mine' of yours runs a file of this project and is not approved: skipped (to see and approve it: "
    assert (marks, told) == ([], f"retinue: {text}retinue trust --hook mine)\n")
    own.run("trust", "--hook", "mine", "--yes")
    assert ran(own) == (["good"], "")


@pytest.mark.attack("A12", "I1")
@pytest.mark.parametrize("path", ["notes.py", "notes/__main__.py"])
def test_own_hook_takes_no_module_of_the_project(own, path):
    target = own.work / path
    target.parent.mkdir(exist_ok=True)
    target.write_text(f"open({str(own.home / 'ran')!r}, 'a').write('evil ')\n")
    own.configure(command="python3", args=["-m", "notes"])
    marks, told = ran(own)
    assert (marks, "runs a file of this project and is not approved" in told) == ([], True)


@pytest.mark.attack("A12")
def test_swapped_script_is_not_run(own):
    own.run("trust", "--hook", "mine", "--yes")
    own.note.write_text(f"echo evil >> {own.home}/ran\n")
    marks, told = ran(own)
    assert marks == [] and "has changed since it was approved: skipped" in told
    assert '+    "' in own.run("trust", "--hook", "mine").stdout


@pytest.mark.attack("A12")
def test_script_swapped_meanwhile_is_not_run(own):
    own.configure(point="agent.turn.stop")
    own.run("trust", "--hook", "mine", "--yes")
    arguments = {"path": str(own.note), "content": f"echo evil >> {own.home}/ran"}
    swap = {"calls": [{"name": "write", "arguments": arguments}]}
    marks, told = ran(own, [swap, {"text": "done"}])
    assert marks == [] and "tools/note.sh' has changed since it was approved" in told


@pytest.mark.attack("A12", "F8")
def test_waiting_guard_lets_nothing_pass(own):
    own.configure(**GUARD)
    marks, told = ran(own, [WRITE, {"text": "done"}])
    assert (marks, (own.work / "a.txt").exists()) == ([], False)
    assert (
        "it does not run, and every call that it guards is refused (to see and approve it: retinue trust --hook mine)"
        in told
    )
    own.run("trust", "--hook", "mine", "--yes")
    assert ran(own, [WRITE, {"text": "done"}])[0] == ["good"]


@pytest.mark.attack("A1", "A12")
def test_consent_needs_the_folders_trust(own):
    own.run("trust", "--hook", "mine", "--yes")
    marks, told = ran(own, [{"text": "done"}], "--no-approve")
    assert marks == [] and "runs a file of this project and is not approved" in told


@pytest.mark.attack("A12")
@pytest.mark.parametrize("word", ["tools/server.py", "{work}/tools/server.py"])
def test_own_server_waits_for_consent(own, word):
    own.configure(enabled=False)
    (own.work / "tools" / "server.py").write_text("")
    entry = {"command": "python3", "args": [word.format(work=own.work)]}
    (own.agent_dir / "mcp.json").write_text(json.dumps({"mcpServers": {"mine": entry}}))
    text = (
        "MCP server 'mine' of yours runs a file of this project and is not approved: skipped (to see and approve it: "
    )
    assert ran(own) == ([], f"retinue: {text}retinue trust --mcp mine)\n")
    assert "not approved" in own.run("trust", "--mcp", "mine").stdout
    own.run("trust", "--mcp", "mine", "--yes")
    assert "not approved" not in ran(own)[1]


def test_own_programs_elsewhere_are_free(own):
    own.note.rename(own.home / "note.sh")
    own.configure(args=[str(own.home / "note.sh")])
    (own.work / "sh").write_text("echo evil")
    assert ran(own) == (["good"], "")
    refused = own.run("trust", "--hook", "mine")
    assert (refused.status, "is your own: it needs no approval" in refused.stderr) == (2, True)
