import json

import pytest

from tests.flows.sandbox_world import need_status

WRITER = "---\nname: writer\ndescription: writes\ntools: read, edit, deploy\ndisallowed_tools: bash\n---\nWrite.\n"


@pytest.fixture
def writer(place):
    folder = place.agent_dir / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "writer.md").write_text(WRITER)
    return folder / "writer.md"


def test_granted_tool_shows_its_chain(place, writer):
    done = place.run("why", "writer", "edit")
    first, *chain = done.stdout.partition("\non subagent")[0].splitlines()
    assert (done.status, first, done.stderr) == (0, "on fleet, dispatch: writer has edit", "")
    assert [line.split()[:2] for line in chain] == [
        ["✓", "agent"],
        ["✓", "exists"],
        ["✓", "asked"],
        ["✓", "denials"],
        ["✓", "extensions"],
        ["✓", "kind"],
        ["✓", "read-only"],
        ["✓", "parent"],
    ]
    assert f"{writer}:4 lists it" in done.stdout


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("agent", "tool", "reason"),
    [
        ("writer", "write", "does not ask for it"),
        ("writer", "deploy", "there is no tool 'deploy' here"),
        ("writer", "bash", "does not ask for it"),
        ("Explore", "edit", "does not ask for it"),
        ("reviewer", "write", "does not ask for it"),
    ],
)
def test_refused_tool_names_first_reason(place, writer, agent, tool, reason):
    done = place.run("why", agent, tool)
    first = done.stdout.splitlines()[0]
    assert done.status == 0
    assert f": {agent} does not have {tool}: " in first
    assert first.endswith(reason)


def test_json_has_every_link(place, writer):
    (writer.parent / "strict.md").write_text("---\nname: strict\nreadonly: true\ntools: read, write\n---\nRead.\n")
    answer = json.loads(place.run("why", "strict", "write", "--json").stdout)
    broken = [link for link in answer["chain"] if not link["holds"]]
    assert (answer["agent"], answer["tool"], answer["granted"]) == ("strict", "write", False)
    assert broken == [
        {"step": "read-only", "holds": False, "reason": "write can change things, and the agent is read-only"}
    ]


@pytest.mark.parametrize(("words", "said"), [((), "give an agent and a tool"), (("nobody", "read"), "nobody")])
def test_wrong_words_are_explained(place, words, said):
    done = place.run("why", *words)
    assert (done.status, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("agent", "settings", "said"),
    [
        ("Explore", {}, "✓ sandbox its commands write in $TMPDIR only, without network: enforced by"),
        ("general-purpose", {}, "✓ sandbox its commands write in the workspace, with network: enforced by"),
        ("general-purpose", {"network": False}, "✓ sandbox its commands write in the workspace, without network:"),
        ("general-purpose", {"mode": "off"}, "✗ sandbox its commands have no boundary: sandbox.mode is off"),
        (
            "Explore",
            {"mode": "off"},
            "✗ read-only SANDBOX_UNAVAILABLE: sandbox.mode is off in the user's settings; bash",
        ),
    ],
)
def test_bash_shows_its_boundary(place, agent, settings, said):
    need_status("bwrap")
    (place.agent_dir / "subagents.json").write_text(json.dumps({"sandbox": settings}))
    told = place.run("why", agent, "bash").stdout.partition("\non subagent")[0]
    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert [line for line in lines if line.startswith(said)], lines
