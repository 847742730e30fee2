"""Code that appears in a folder after the start, or that nobody decided about, is never imported by the program."""

import json
import subprocess

import pytest

from retinue.testing.process import run_cli
from tests.flows.extension_world import TOOL

AGENT = "---\nname: evil\ndescription: d\ntools: read\nextensions: {extension}\n---\nGo.\n"
CHILD = {"match": {"first_user": "child task"}, "text": "done"}

pytestmark = pytest.mark.attack("I1")


class Late:
    """A repository, and a mark that only code outside of the sandbox can leave."""

    def __init__(self, place):
        self.place = place
        self.mark = place.root / "mark"
        self.code = f"open({str(self.mark)!r}, 'a').write('x')\ndef register(api):\n    pass\n"
        subprocess.run(["git", "init", "-q", str(place.work)], check=True)

    def put(self, path, text=None):
        target = self.place.work / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.code if text is None else text)
        return target

    def put_agent(self, name, text, folder="agents"):
        path = self.place.agent_dir / folder / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, *words, cwd=None):
        return run_cli(list(words), cwd or self.place.work, None, None, home=self.place.home, timeout_s=30)

    def prompt(self, command, agent="evil", *flags, cwd=None):
        """The main agent runs a command, and then starts an agent."""
        call = {"name": "bash", "arguments": {"command": command}}
        spawn = {
            "name": "Agent",
            "arguments": {"subagent_type": agent, "prompt": "child task", "description": "c"},
        }
        model = self.place.script(CHILD, {"calls": [call]}, {"calls": [spawn]}, {"text": "end"}, {"text": "end"})
        return self.run("--model", model, *flags, "-p", "main task", cwd=cwd)

    def render_plant(self, folder):
        """A command that writes an agent with an extension, and an extension that needs no agent."""
        agent = AGENT.format(extension=f"{folder}/x.py")
        files = {f"{folder}/agents/evil.md": agent, f"{folder}/x.py": self.code, f"{folder}/extensions/y.py": self.code}
        parts = [f"mkdir -p {folder}/agents {folder}/extensions"]
        parts += [f"cat > {path} <<'END'\n{text}END" for path, text in files.items()]
        return "\n".join(parts)


@pytest.fixture
def late(place):
    return Late(place)


def test_linked_folder_is_no_configuration(late):
    (late.place.work / "tools").mkdir()
    (late.place.work / ".pi").symlink_to("tools")
    done = late.prompt(late.render_plant("tools").replace("tools/x.py\n", "./tools/x.py\n"))
    assert (late.place.work / "tools" / "x.py").exists()
    assert (late.mark.exists(), "Unknown agent" in json.dumps(late.place.entries())) == (False, True)
    assert (
        f"{late.place.work / '.pi'}: is a link, so nothing in it is read; replace it with a real folder" in done.stderr
    )


def test_linked_agents_folder_is_no_configuration(late):
    late.put(".pi/settings.json", "{}")
    (late.place.work / "tools").mkdir()
    (late.place.work / ".pi" / "agents").symlink_to("../tools")
    agent = AGENT.format(extension="./x.py")
    done = late.prompt(
        f"cat > tools/evil.md <<'END'\n{agent}END\ncat > x.py <<'END'\n{late.code}END", "evil", "--approve"
    )
    assert (late.place.work / "tools" / "evil.md").exists()
    assert (done.status, late.mark.exists()) == (0, False)
    assert "Unknown agent" in json.dumps(late.place.entries())


@pytest.mark.parametrize("flag", [(), ("--approve",)])
def test_start_in_a_subfolder_reads_nothing_new(late, flag):
    late.put("sub/keep", "")
    done = late.prompt(late.render_plant(".pi"), "evil", *flag, cwd=late.place.work / "sub")
    assert (late.place.work / "sub" / ".pi" / "x.py").exists()
    assert (done.status, late.mark.exists()) == (0, False)


@pytest.mark.parametrize("flag", [(), ("--approve",)])
def test_child_process_reads_nothing_new(late, flag):
    # Else the command could not write there.
    (late.place.agent_dir / "subagents.json").write_text('{"sandbox": {"mode": "off"}}')
    late.put_agent("outside", "---\nname: outside\ndescription: d\nrunner: process\ntools: read\n---\nGo.\n")
    done = late.prompt(late.render_plant(".pi"), "outside", *flag)
    assert (late.place.work / ".pi" / "extensions" / "y.py").exists()
    assert (done.status, late.mark.exists()) == (0, False)
    assert "done" in json.dumps(late.place.entries())


@pytest.mark.attack("A7")
def test_new_folder_below_a_trusted_one_is_asked_about(late, place):
    parent = place.root / "parent"
    (parent / "old" / ".pi" / "extensions").mkdir(parents=True)
    (parent / "old" / ".pi" / "extensions" / "y.py").write_text(late.code)
    late.run("trust", str(parent), "--yes")
    (parent / "new" / ".pi" / "extensions").mkdir(parents=True)
    (parent / "new" / ".pi" / "extensions" / "y.py").write_text(late.code)
    model = place.script({"text": "hi"})
    done = late.run("--model", model, "-p", "hi", cwd=parent / "new")
    assert f"{parent / 'new' / '.pi'} was not there when {parent} was trusted" in done.stderr
    assert (done.status, late.mark.exists()) == (0, False)
    late.run("--model", model, "-p", "hi", cwd=parent / "old")
    assert late.mark.exists()


def test_configuration_added_to_a_trusted_folder_is_asked_about(late, place):
    late.run("trust", "--yes")
    late.put(".pi/extensions/y.py")
    model = place.script({"text": "hi"})
    assert "was not there when" in late.run("--model", model, "-p", "hi").stderr
    assert not late.mark.exists()
    late.run("trust", "--yes")
    late.run("--model", model, "-p", "hi")
    assert late.mark.exists()


@pytest.mark.parametrize("is_trusted", [False, True])
def test_own_agent_loads_no_code_of_the_project(late, place, is_trusted):
    late.put("x.py")
    late.put_agent("mine", AGENT.format(extension="./x.py").replace("evil", "mine"))
    if is_trusted:
        late.run("trust", "--yes")
    done = late.prompt("true", "mine")
    told = (
        "is not approved; read it, then: retinue trust --extension" if is_trusted else "a project that is not trusted"
    )
    assert (late.mark.exists(), told in done.stderr) == (False, True)


def test_approved_extension_is_loaded_until_it_changes(late, place):
    late.put("x.py")
    late.put_agent("mine", AGENT.format(extension="./x.py").replace("evil", "mine"))
    late.run("trust", "--yes")
    shown = late.run("trust", "--extension", "x.py", "--yes").stdout
    assert f"{place.work / 'x.py'}: approved" in shown and "def register(api):" in shown
    late.prompt("true", "mine")
    assert late.mark.read_text() == "x"
    done = late.prompt("echo '# changed' >> x.py", "mine")
    assert late.mark.read_text() == "x"
    assert "has changed since you approved it" in done.stderr


def test_own_extension_that_is_a_link_is_judged_by_what_it_holds(late, place):
    (place.agent_dir / "extensions").mkdir(parents=True)
    (place.agent_dir / "extensions" / "x.py").symlink_to(late.put("x.py"))
    model = place.script({"text": "hi"})
    assert "is not approved; read it, then: retinue trust --extension" in late.run("--model", model, "-p", "hi").stderr
    assert not late.mark.exists()
    late.run("trust", "--yes")
    late.run("trust", "--extension", "x.py", "--yes")
    late.run("--model", model, "-p", "hi")
    assert late.mark.exists()


def test_linked_extension_is_judged_by_what_it_holds(late, place):
    outside = place.root / "tools"
    outside.mkdir()
    (outside / "x.py").write_text(late.code)
    late.put_agent("mine", AGENT.format(extension=str(outside / "x.py")).replace("evil", "mine"))
    assert "is not approved" in late.prompt("true", "mine").stderr
    late.run("trust", "--extension", str(outside / "x.py"), "--yes")
    late.prompt("true", "mine")
    assert late.mark.read_text() == "x"


@pytest.mark.attack("I15")
@pytest.mark.parametrize(
    ("readonly", "denied", "reply"), [("", "", "deployed"), ("readonly: true\n", "", None), ("", "deploy", None)]
)
def test_tools_of_a_path_extension_reach_the_agent(late, place, readonly, denied, reply):
    late.put("deploy.py", TOOL.format(name="deploy").replace("__file__", "'deployed '"))
    late.put_agent(
        "mine", f"---\nname: mine\ndescription: d\n{readonly}tools: read\nextensions: ./deploy.py\n---\nGo.\n"
    )
    (place.agent_dir / "subagents.json").write_text(json.dumps({"denyTools": [denied] if denied else []}))
    late.run("trust", "--yes")
    late.run("trust", "--extension", "deploy.py", "--yes")
    call = {"match": {"first_user": "child task"}, "calls": [{"name": "deploy", "arguments": {}}]}
    spawn = {"subagent_type": "mine", "prompt": "child task", "description": "c"}
    model = place.script(
        call, CHILD, {"calls": [{"name": "Agent", "arguments": spawn}]}, {"text": "end"}, {"text": "end"}
    )
    late.run("--model", model, "-p", "main task")
    child = next(place.agent_dir.glob("sessions/*/*/*/session.jsonl")).read_text()
    results = [json.loads(line)["message"] for line in child.splitlines() if '"toolResult"' in line]
    assert [item["isError"] for item in results] == [reply is None]
    assert (reply or "deploy") in results[0]["content"][0]["text"]


def make_agent(late, name, *flags):
    words = ("--description", "d", "--prompt", "Go.", "--tools", "read", "--project")
    return late.run("agents", "new", name, *words, *flags)


def list_names(late):
    return [
        row["name"] for row in json.loads(late.run("agents", "--json").stdout)["agents"] if row["source"] == "project"
    ]


def test_new_agent_file_is_accepted_alone(late, place):
    told = make_agent(late, "first").stderr
    assert "the file is not used yet because this folder is not trusted; to use it: retinue trust --file" in told
    assert list_names(late) == []
    late.run("trust", "--file", ".pi/agents/first.md", "--yes")
    assert (list_names(late), "skipped" in late.run("agents").stderr) == (["first"], False)
    assert make_agent(late, "second", "--approve").stderr == ""
    assert list_names(late) == ["first", "second"]
    late.run("agents", "disable", "second")
    assert list_names(late) == ["first", "second"]


def test_accepted_file_counts_as_it_was(late, place):
    make_agent(late, "first", "--approve")
    path = place.work / ".pi" / "agents" / "first.md"
    path.write_text(path.read_text() + "Changed.\n")
    assert list_names(late) == []
    told = late.run("agents").stderr
    assert f"{path}: has changed since you accepted it; to use it: retinue trust --file {path} --yes" in told


def test_other_files_beside_an_accepted_one_need_trust(late, place):
    make_agent(late, "first", "--approve")
    late.put(".pi/agents/second.md", AGENT.format(extension="false").replace("evil", "second"))
    late.put(".pi/extensions/y.py")
    done = late.prompt("true", "second")
    assert "is not trusted: skipped .pi/agents, .pi/extensions" in done.stderr
    assert (list_names(late), late.mark.exists()) == (["first"], False)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--file", "x.md"),
            "'x.md' is neither an agent file of this project (.pi/agents, .agents, ",
        ),
        (("--file", ".pi/agents/none.md"), "cannot be read: no such file or directory"),
        (("--extension", "none.py"), "is not trusted, so its files are not read"),
        (("--extension", "a.py", "--file", "b.md"), "--extension and --file: use one of them at a time"),
    ],
)
def test_wrong_files_are_explained(late, words, told):
    done = late.run("trust", *words, "--yes")
    assert (done.status, told in done.stderr) == (2, True), done.stderr
