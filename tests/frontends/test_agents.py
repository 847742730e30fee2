import json
import os
import pty
import subprocess
import sys

import pytest

from retinue.testing import process

AGENT = """---
name: Finder # my own
description: "Finds: things"
tools: read, grep, lss
readonly: yes
---

Find it.
"""


@pytest.fixture
def agents(place):
    """Runs `retinue agents` and gives back its JSON."""

    def run(*args):
        done = place.run("agents", "--json", *args)
        assert (done.status, done.stderr.count("Traceback")) == (0, 0)
        return json.loads(done.stdout)

    return run


def write(folder, name, text=AGENT):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def test_listing_counts_files_with_mistakes(place):
    for name in ("one", "two"):
        write(place.agent_dir / "agents", f"{name}.md", "---\nthinking: much\nmemory: all\nisolation: on\n---\n\nx\n")
    done = place.run("agents")
    assert (done.stderr.count("error: "), done.stderr.count("agent files with errors: 2\n")) == (6, 1)


def test_listing_has_the_contract_shape(place, agents):
    path = write(place.agent_dir / "agents", "finder.md")
    found = agents()
    row = next(item for item in found["agents"] if item["name"] == "Finder")
    assert row == {
        "name": "Finder",
        "displayName": "Finder",
        "description": "Finds: things",
        "source": "user",
        "dialect": "pi",
        "path": str(path),
        "enabled": True,
        "readonly": True,
        "tools": ["read", "grep"],
        "model": None,
        "thinking": None,
        "maxTurns": None,
        "completion": "text",
        "shadows": [],
        "fields": [
            {"field": "name", "status": "kept", "note": ""},
            {"field": "description", "status": "kept", "note": ""},
            {"field": "tools", "status": "approximated", "note": row["fields"][2]["note"]},
            {"field": "readonly", "status": "approximated", "note": row["fields"][3]["note"]},
        ],
    }
    assert "lss" in row["fields"][2]["note"]
    told = [(item["path"], item["line"], item["severity"], item["code"]) for item in found["diagnostics"]]
    assert [set(item) for item in found["diagnostics"]] == [{"path", "line", "severity", "code", "message"}] * len(told)
    assert (str(path), 4, "warning", "unknown-tool") in told
    assert (str(path), 5) in [(where, line) for where, line, *_ in told]


@pytest.mark.spec("devkit:13")
def test_all_builtins_are_listed(agents):
    names = {item["name"] for item in agents()["agents"]}
    assert names == {
        *("general-purpose", "Explore", "Plan"),
        *("explorer", "researcher", "reviewer", "implementer", "tester"),
        *("explore", "plan", "scout"),
    }


EVERYWHERE = ["fleet", "subagent", "dispatch"]


def test_similar_builtins_are_one_row(place, agents):
    lines = place.run("agents").stdout.splitlines()
    starts = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert " ".join(starts) == "Explore general-purpose implementer Plan researcher reviewer scout tester"
    text = "\n".join(lines)
    assert "also explorer (read-only · pi · read, grep, find, ls, lsp · on fleet, subagent, dispatch)" in text
    assert "also explore (read-only · codingcode · read_file, " in text and "fetch_url · on dispatch)" in text
    grouped = {row["name"]: (row["surfaces"], row["aliases"]) for row in agents()["agents"] if "aliases" in row}
    assert grouped == {
        "Explore": (EVERYWHERE, ["explorer", "explore"]),
        "explore": (["dispatch"], ["Explore", "explorer"]),
        "explorer": (EVERYWHERE, ["Explore", "explore"]),
        "Plan": (EVERYWHERE, ["plan"]),
        "plan": (["dispatch"], ["Plan"]),
    }


@pytest.mark.parametrize(
    ("name", "shown", "meant"),
    [
        ("Explore", "Explore", "Explore"),
        ("explorer", "explorer", "explorer"),
        ("EXPLORER", "explorer", "explorer"),
        ("explore", "explore", "Explore"),
        ("plan", "plan", "Plan"),
    ],
)
def test_each_name_of_a_row_works(place, name, shown, meant):
    assert place.run("agents", "show", name).stdout.split()[0] == shown
    chains = json.loads(place.run("why", name, "read", "--json").stdout)["answers"]
    assert {chain["agent"] for chain in chains if "fleet" in chain["surfaces"]} == {meant}
    done = place.run("run", name, "look", "--json", "--model", place.script({"text": "Seen."}))
    assert json.loads(done.stdout)["details"]["results"][0]["agent"] == meant
    assert place.run("-p", "--agent", name, "look", replies=[{"text": "Seen."}]).stdout == "Seen.\n"


def test_own_agent_keeps_its_own_row(place, agents):
    write(place.agent_dir / "agents", "explore.md", AGENT.replace("Finder # my own", "explore"))
    write(place.agent_dir / "agents", "exploring.md", AGENT.replace("Finder # my own", "explorers"))
    listed = place.run("agents").stdout
    assert listed.startswith("[user]\n◦ explore ") and "\n◦ explorers " in listed
    assert "\n  explorer " in listed and "also explore" not in listed
    assert [row["name"] for row in agents()["agents"] if "aliases" in row] == ["Plan", "plan"]


@pytest.mark.spec("fleet:B26")
def test_project_agent_hides_others(place, agents):
    write(place.agent_dir / "agents", "explorer.md", AGENT.replace("Finder # my own", "explorer"))
    path = write(place.work / ".pi" / "agents", "explorer.md", AGENT.replace("Finder # my own", "explorer"))
    row = next(item for item in agents("--approve")["agents"] if item["name"] == "explorer")
    assert (row["source"], row["path"], len(row["shadows"])) == ("project", str(path), 2)


def test_untrusted_project_agents_stay_closed(place, agents):
    write(place.work / ".pi" / "agents", "explorer.md", "not even\x00 text")
    found = agents()
    assert next(item for item in found["agents"] if item["name"] == "explorer")["source"] == "builtin"
    assert [item["code"] for item in found["diagnostics"]] == ["untrusted"]
    done = place.run("agents")
    assert "is not trusted: skipped .pi/agents" in done.stderr


@pytest.mark.spec("devkit:62")
def test_table_groups_by_source(place):
    write(place.agent_dir / "agents", "finder.md")
    done = place.run("agents")
    assert done.stdout.index("[user]") < done.stdout.index("Finder") < done.stdout.index("[builtin]")
    assert "(read-only · pi · read, grep)" in done.stdout
    assert "(read/write · pi · read, bash, edit, write, grep, find, ls" in done.stdout


def test_show_explains_each_tool(place):
    write(place.agent_dir / "agents", "finder.md")
    done = place.run("agents", "show", "finder")
    assert "  + read\n  + grep\n  - lss: there is no tool 'lss' here (did you mean 'ls'?)" in done.stdout
    assert "   5  readonly: yes  [approximated]\n        readonly: found 'yes'" in done.stdout
    about = json.loads(place.run("agents", "show", "finder", "--json").stdout)
    refused = [(item["name"], item["code"]) for item in about["refused"]]
    assert (about["prompt"], refused, about["fields"][0]["line"]) == ("Find it.", [("lss", "unknown")], 2)


def test_hostile_file_cannot_reach_the_terminal(place):
    text = '---\nname: evil\ndescription: "a\\e]0;owned\\a b"\n---\n\nDo it.\n'
    write(place.agent_dir / "agents", "evil.md", text)
    for args in (["agents"], ["agents", "show", "evil"], ["doctor"]):
        done = place.run(*args)
        assert "\x1b" not in done.stdout + done.stderr


def test_new_agent_can_be_run(place, agents):
    done = place.run(
        *("agents", "new", "finder", "--description", "a: b #c", "--tools", "read, ls", "--readonly"),
        *("--thinking", "off", "--prompt", "-"),
        stdin="Find it.\nAll of it.\n",
    )
    path = place.agent_dir / "agents" / "finder.md"
    assert (done.status, done.stdout) == (0, f"{path}\n")
    row = next(item for item in agents()["agents"] if item["name"] == "finder")
    expected = ("a: b #c", ["read", "ls"], True, "off")
    assert (row["description"], row["tools"], row["readonly"], row["thinking"]) == expected
    assert path.read_text().endswith("---\n\nFind it.\nAll of it.\n")
    assert agents()["diagnostics"] == []


def test_new_without_tools_has_none(place, agents):
    place.run("agents", "new", "bare", "--description", "d", "--tools", "", "--prompt", "Say it.")
    assert next(item for item in agents()["agents"] if item["name"] == "bare")["tools"] == []


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "name", ["../x", "a/b", ".", "..", "-x", ".x", "con", "main", "a b", "x" * 129, "a\nb", "", "a\\b", "%2e%2e/x"]
)
def test_bad_names_write_nothing(place, name):
    done = place.run("agents", "new", "--description", "d", "--prompt", "p", "--", name)
    assert (done.status, done.stdout) == (2, "")
    assert [path for path in place.root.rglob("*.md")] == []


def test_new_replaces_nothing(place):
    path = write(place.agent_dir / "agents", "Finder.md")
    done = place.run("agents", "new", "finder", "--description", "d", "--prompt", "p")
    assert (done.status, path.read_text()) == (2, AGENT)
    assert done.stderr == f"retinue: {path} exists already; edit or delete it\n"


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["agents", "new", "x", "--prompt", "p"], "retinue agents new needs --description; in a terminal it asks"),
        (["agents", "new", "x", "--description", "d"], "retinue agents new needs --prompt; in a terminal it asks"),
        (["agents", "new"], "retinue agents new needs NAME, --description, --prompt; in a terminal it asks"),
        (["agents", "new", "x", "--description", "d", "--prompt", "p", "--tools", "reed"], "(did you mean 'read'?)"),
        (["agents", "show"], "retinue agents show needs a name"),
        (["agents", "new", "x", "--description", "d", "--prompt", "\udcff"], "--prompt is not UTF-8 text"),
        (["agents", "nwe", "x"], "unknown action 'nwe'"),
        (["agents", "show", "explorr"], "Unknown agent: explorr. Available agents:"),
        (["agents", "delete", "explorer", "--yes"], "'explorer' is built in; to switch it off: "),
        (["agents", "enable", "explorer"], "'explorer' is already enabled"),
        (["agents", "delete", "x", "--readonly"], "retinue agents delete has no option --readonly"),
        (["agents", "--yes"], "retinue agents has no option --yes"),
    ],
)
def test_misuse_gets_one_sentence(place, args, problem):
    done = place.run(*args)
    assert (done.status, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert problem in done.stderr


def test_switching_keeps_every_other_byte(place, agents):
    text = AGENT.replace("\n", "\r\n")
    path = place.agent_dir / "agents" / "finder.md"
    path.parent.mkdir()
    path.write_bytes(text.encode())
    assert place.run("agents", "disable", "finder").status == 0
    assert path.read_bytes() == text.replace("readonly: yes\r\n", "readonly: yes\r\nenabled: false\r\n").encode()
    assert not next(item for item in agents()["agents"] if item["name"] == "Finder")["enabled"]
    assert place.run("agents", "enable", "finder").status == 0
    assert path.read_bytes() == text.encode()


@pytest.mark.spec("fleet:B8")
def test_builtin_is_switched_by_a_stub(place, agents):
    done = place.run("agents", "disable", "Explore")
    stub = place.agent_dir / "agents" / "Explore.md"
    assert done.stdout == f"{stub}\n"
    row = next(item for item in agents()["agents"] if item["name"] == "Explore")
    assert (row["enabled"], row["source"]) == (False, "user")
    ran = place.run("run", "explore", "x", "--json")
    assert json.loads(ran.stdout)["details"]["error"]["code"] == "SUBAGENT_DISABLED"
    assert place.run("agents", "enable", "Explore").status == 0
    assert (stub.exists(), place.run("agents", "enable", "Explore").status) == (False, 2)


def test_stub_of_pi_extension_is_removed(place):
    stub = write(place.agent_dir / "agents", "Explore.md", "---\nenabled: false\n---\n")
    assert place.run("agents", "enable", "explore").status == 0
    assert not stub.exists()


def test_ejected_agent_is_a_copy(place, agents):
    before = next(item for item in agents()["agents"] if item["name"] == "reviewer")
    path = place.agent_dir / "agents" / "reviewer.md"
    assert place.run("agents", "eject", "reviewer").stdout == f"{path}\n"
    after = next(item for item in agents()["agents"] if item["name"] == "reviewer")
    assert after == {**before, "source": "user", "path": str(path), "shadows": [before["path"]]}
    assert place.run("agents", "eject", "reviewer").status == 2


def test_project_writes_need_trust(place):
    new = ["agents", "new", "x", "--description", "d", "--prompt", "p", "--project"]
    write(place.work / ".pi" / "agents", "y.md")
    done = place.run(*new)
    assert (done.status, "is not trusted" in done.stderr) == (2, True)
    assert place.run(*new, "--approve").stdout == f"{place.work / '.pi' / 'agents' / 'x.md'}\n"
    assert place.run("agents", "delete", "x", "--yes", "-a").status == 0


def test_delete_asks_without_yes(place):
    path = write(place.agent_dir / "agents", "finder.md")
    done = place.run("agents", "delete", "Finder")
    assert (done.status, done.stderr, path.exists()) == (2, f"retinue: this deletes {path}; confirm with --yes\n", True)
    assert place.run("agents", "delete", "Finder", "--yes").stdout == f"{path}\n"
    assert not path.exists()


def ask_on_terminal(place, arguments, answers):
    """Run the command with a terminal for its input; its status."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "HOME": str(place.home), "PI_CODING_AGENT_DIR": str(place.agent_dir)}
    command = [sys.executable, "-m", "retinue", *arguments]
    try:
        with process.start(
            command, stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=place.work, env=environment
        ) as program:
            os.write(leader, answers.encode())
            program.communicate(timeout=20)
            return program.returncode
    finally:
        os.close(leader)
        os.close(follower)


def test_new_asks_on_a_terminal(place, agents):
    answers = "\nno/name\nfinder\n\nFinds things\nread, lss\nread, ls\ny\n\nFind it.\n.\n"
    assert ask_on_terminal(place, ["agents", "new"], answers) == 0
    row = next(item for item in agents()["agents"] if item["name"] == "finder")
    found = [row[key] for key in ("description", "tools", "readonly", "model", "source")]
    assert found == ["Finds things", ["read", "ls"], True, None, "user"]


def test_new_asks_only_for_what_is_missing(place):
    given = ["agents", "new", "finder", "--project", "--tools", "ls", "--readonly", "--model", "m", "--prompt", "Find."]
    assert ask_on_terminal(place, given, "Finds things\nn\n") == 0
    text = (place.work / ".pi" / "agents" / "finder.md").read_text()
    assert "description: Finds things" in text and text.endswith("Find.\n")


def test_new_ends_with_its_input(place):
    assert ask_on_terminal(place, ["agents", "new"], "user\n\x04") == 2
    assert list(place.agent_dir.glob("agents/*")) == []


@pytest.mark.parametrize(("answer", "is_left"), [("n\n", True), ("\n", True), ("y\n", False)])
def test_delete_asks_on_a_terminal(place, answer, is_left):
    path = write(place.agent_dir / "agents", "finder.md")
    assert ask_on_terminal(place, ["agents", "delete", "finder"], answer) == 0
    assert path.exists() is is_left


def test_codingcode_switches_are_listed(place, agents):
    folder = place.home / ".codingcode"
    folder.mkdir()
    (folder / "config.yaml").write_text("subagent:\n  disabledAgents: {scout: true, plan: 3}\n")
    listed = agents()
    assert [item["name"] for item in listed["agents"] if not item["enabled"]] == ["Plan", "plan", "scout"]
    assert [item["code"] for item in listed["diagnostics"]] == ["switches"]
    done = place.run("agents", "enable", "scout")
    assert (done.status, "disabled in .codingcode/config.yaml" in done.stderr) == (2, True)


BROKEN = {
    "not closed": b"subagent:\n  disabledAgents: {scout: true\n",
    "no text": b"subagent:\n  disabledAgents: {scout: true}\n\xff\xfe",
    "no object": b"- subagent\n",
    "folder": None,
    "leads nowhere": "gone",
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("in_project", [False, True])
@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_broken_switches_switch_all_agents_off(place, agents, content, in_project):
    path = (place.work if in_project else place.home) / ".codingcode" / "config.yaml"
    path.parent.mkdir()
    if content is None:
        path.mkdir()
    elif content == "gone":
        path.symlink_to(path.parent / "gone")
    else:
        path.write_bytes(content)
    approve = ["--approve"] if in_project else []
    listed = agents(*approve)
    assert [item["name"] for item in listed["agents"] if item["enabled"]] == []
    (problem,) = listed["diagnostics"]
    told = "since it may disable agents, no agent runs until it is fixed or removed"
    assert (problem["path"], problem["message"].endswith(told)) == (str(path), True)
    done = place.run("run", "scout", "Look", *approve, "--model", place.script({"text": "RAN"}))
    assert (done.status, done.stdout, problem["message"] in done.stderr) == (2, "", True), done.stderr
    done = place.run("agents", "enable", "scout", *approve)
    assert (done.status, problem["message"] in done.stderr) == (2, True), done.stderr


def test_broken_file_of_another_program_switches_nothing_off(place, agents):
    path = place.home / ".codingcode" / "config.yaml"
    path.parent.mkdir()
    path.write_text("model: [\n")
    listed = agents()
    assert [item["name"] for item in listed["agents"] if not item["enabled"]] == []
    assert [item["path"] for item in listed["diagnostics"]] == [str(path)]


def test_clear_word_of_project_wins_over_broken_file(place, agents):
    for folder, text in ((place.home, "subagent: ["), (place.work, "subagent: {disabledAgents: {scout: false}}")):
        (folder / ".codingcode").mkdir()
        (folder / ".codingcode" / "config.yaml").write_text(f"{text}\n")
    assert [item["name"] for item in agents("--approve")["agents"] if item["enabled"]] == ["scout"]


@pytest.mark.attack("I6")
@pytest.mark.parametrize("name", [".pi", ".pi/agents", ".agents"])
def test_agent_is_not_made_through_link(place, name):
    outside = place.root / "outside"
    (outside / "agents").mkdir(parents=True)
    (place.work / name).parent.mkdir(exist_ok=True)
    (place.work / name).symlink_to(outside)
    done = place.run("agents", "new", "mine", "--description", "d", "--prompt", "p", "--project", "--approve")
    assert (done.status != 0, [path for path in outside.rglob("*") if path.is_file()]) == (True, [])
    assert "is a link" in done.stderr
