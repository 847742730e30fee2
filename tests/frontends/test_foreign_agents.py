import json

import pytest

HEAD = "---\nname: {name}\ndescription: d\n{front}---\nDo it.\n"


@pytest.fixture
def listing(place):
    def run(*args):
        done = place.run("agents", "--json", "--approve", *args)
        assert (done.status, done.stderr.count("Traceback")) == (0, 0), done.stderr
        return {item["name"]: item for item in json.loads(done.stdout)["agents"]}

    return run


def write(path, text=None, name="x", front=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD.format(name=name, front=front) if text is None else text)
    return path


def test_each_tool_has_its_folder(place, listing):
    (place.work / ".git").mkdir()
    write(place.work / ".claude/agents/team/a.md", name="a", front="tools: Read, Glob\n")
    write(place.home / ".codex/agents/b.toml", 'name = "b"\ndescription = "d"\ndeveloper_instructions = "Do."\n')
    write(place.work / ".opencode/agent/c.md", "---\ndescription: d\n---\nDo.\n")
    write(place.home / ".config/opencode/opencode.json", '{"agent": {"d": {"description": "d", "prompt": "Do."}}}')
    write(place.work / ".cursor/agents/e.md", name="e", front="readonly: true\n")
    write(place.work / ".github/agents/f.agent.md", name="Eff")
    write(place.home / ".gemini/agents/g.md", name="g")
    plugin = place.root / "plugin"
    write(plugin / "agents/h.md", name="h")
    installed = {"plugins": {"p@m": [{"scope": "user", "installPath": str(plugin)}]}}
    write(place.home / ".claude/plugins/installed_plugins.json", json.dumps(installed))
    found = listing()
    kinds = {name: (found[name]["dialect"], found[name]["source"]) for name in "abcdefgh"}
    assert kinds == {
        "a": ("claude", "project"), "b": ("codex", "user"), "c": ("opencode", "project"), "d": ("opencode", "user"),
        "e": ("cursor", "project"), "f": ("copilot", "project"), "g": ("gemini", "user"), "h": ("claude", "user"),
    }  # fmt: skip
    assert (found["a"]["tools"], found["e"]["readonly"]) == (["read", "find"], True)
    assert found["a"]["fields"][2] == {"field": "tools", "status": "kept", "note": ""}


def test_plugins_are_those_of_this_project(place, listing):
    (place.work / ".git").mkdir()
    installed, settings = {}, {"b@m": False}
    for name, project in (("a", None), ("b", None), ("c", place.work), ("d", place.root), ("e", None)):
        write(place.root / name / "agents/x.md", name=name)
        installed[f"{name}@m"] = [{"installPath": str(place.root / name), "projectPath": project and str(project)}]
    write(place.root / "a/.claude-plugin/plugin.json", '{"agents": ["./more/", "./one/y.md", "../../out.md"]}')
    write(place.root / "a/more/m.md", name="m")
    write(place.root / "a/one/y.md", name="y")
    write(place.root / "a/one/z.md", name="z")
    write(place.home / ".claude/plugins/installed_plugins.json", json.dumps({"plugins": installed}))
    write(place.home / ".claude/settings.json", json.dumps({"enabledPlugins": settings}))
    write(place.work / ".claude/settings.local.json", '{"enabledPlugins": {"e@m": false}}')
    assert {"a", "b", "c", "d", "e", "m", "y", "z"} & set(listing()) == {"a", "c", "m", "y"}


def test_disabled_agent_names_the_field(place, listing):
    write(place.home / ".claude/agents/m.md", name="m", front="permissionMode: moonlight\n")
    assert listing()["m"]["enabled"] is False
    done = place.run("run", "m", "go", "--json")
    error = json.loads(done.stdout)["details"]["error"]
    assert (error["code"], "permissionMode" in error["message"]) == ("SUBAGENT_DISABLED", True)


def test_every_surface_names_the_field(place):
    write(place.home / ".claude/agents/m.md", name="m", front="permissionMode: moonlight\n")
    (place.agent_dir / "subagents.json").write_text('{"surfaces": ["fleet", "subagent", "dispatch"]}')
    calls = [
        {"name": "Agent", "arguments": {"subagent_type": "m", "prompt": "go", "description": "d"}},
        {"name": "subagent", "arguments": {"agent": "m", "task": "go"}},
        {"name": "dispatch_agent", "arguments": {"agent": "m", "prompt": "go"}},
    ]
    done = place.run("-p", "--mode", "json", "begin", replies=[{"calls": calls}, {"text": "done"}])
    ends = [record for line in done.stdout.splitlines() if (record := json.loads(line))["type"] == "tool_execution_end"]
    assert ["permissionMode" in json.dumps(end) and "is disabled" in json.dumps(end) for end in ends] == [True] * 3


@pytest.mark.parametrize("schema", ["{type: objekt}", "nothing.json"])
@pytest.mark.parametrize("folder", [".pi/agent/agents", ".claude/agents"])
def test_unusable_schema_is_named(place, listing, schema, folder):
    write(place.home / folder / "s.md", name="s", front=f"output_schema: {schema}\n")
    assert listing()["s"]["enabled"] is False
    error = json.loads(place.run("run", "s", "go", "--json").stdout)["details"]["error"]
    assert (error["code"], "output_schema: " in error["message"]) == ("SUBAGENT_DISABLED", True)


def test_schema_file_of_an_opencode_entry_is_read(place, listing):
    entry = {"description": "d", "prompt": "Do.", "output_schema": "s.json"}
    path = write(place.home / ".config/opencode/opencode.json", json.dumps({"agent": {"o": entry}}))
    assert listing()["o"]["enabled"] is False
    write(path.parent / "s.json", '{"type": "object"}')
    assert listing()["o"]["enabled"] is True


def test_schema_of_a_foreign_file_counts(place):
    write(place.home / ".claude/agents/s.md", name="s", front="output_schema: {type: object, required: [n]}\n")
    replies = [{"calls": [{"name": "submit_result", "arguments": {"n": 1}}]}]
    done = place.run("run", "s", "go", "--json", "--model", place.script(*replies))
    assert json.loads(done.stdout)["details"]["results"][0]["structured"] == {"n": 1}


def test_rules_beside_agents_apply(place, listing):
    write(place.home / ".claude/agents/r.md", name="r")
    write(place.home / ".claude/settings.json", '{"permissions": {"deny": ["Write"]}}')
    write(place.work / ".claude/settings.local.json", '{"permissions": {"deny": ["Bash"]}}')
    assert listing()["r"]["tools"] == ["read", "edit", "grep", "find", "ls"]
    write(place.home / ".gemini/agents/gem.md", name="gem")
    write(place.work / ".gemini/settings.json", '{"tools": {"core": ["read_file"]}}')
    write(place.home / ".codex/config.toml", 'sandbox_mode = "read-only"\n')
    write(place.home / ".codex/agents/co.toml", 'name = "co"\ndescription = "d"\ndeveloper_instructions = "Do."\n')
    assert (listing()["gem"]["tools"], listing()["co"]["readonly"]) == (["read"], True)
    write(place.work / ".claude/settings.json", '{"permissions": {"deny": ["Edit(src/**)"]}}')
    row = listing()["r"]
    assert row["enabled"] is False
    assert "permissions.deny: 'Edit(src/**)'" in place.run("agents").stderr


def test_entry_of_opencode_restricts_a_file(place, listing):
    (place.work / ".git").mkdir()
    write(place.work / ".opencode/agents/o.md", "---\ndescription: d\n---\nDo.\n")
    write(place.home / ".config/opencode/opencode.json", '{"agent": {"o": {"permission": {"edit": "deny"}}}}')
    assert listing()["o"]["tools"] == ["read", "bash", "grep", "find", "ls"]
    write(place.work / "opencode.json", '{"agent": {"o": {"disable": true}}}')
    assert listing()["o"]["enabled"] is False


def test_sources_are_chosen(place, listing):
    write(place.home / ".claude/agents/a.md", name="a")
    write(place.home / ".gemini/agents/g.md", name="g")
    write(place.agent_dir / "subagents.json", '{"agentSources": ["gemini"]}')
    assert {"a", "g"} & set(listing()) == {"g"}


def test_project_agents_need_trust(place):
    (place.work / ".git").mkdir()
    write(place.work / ".claude/agents/a.md", name="a")
    done = place.run("agents", "--json")
    assert "a" not in {item["name"] for item in json.loads(done.stdout)["agents"]}
    assert "skipped .claude/agents" in done.stderr


def test_order_of_tools_is_fixed(place, listing):
    write(place.home / ".gemini/agents/a.md", name="a")
    write(place.home / ".claude/agents/a.md", name="a")
    assert listing()["a"]["dialect"] == "claude"
    write(place.agent_dir / "agents/a.md", name="a")
    assert (listing()["a"]["dialect"], len(listing()["a"]["shadows"])) == ("pi", 2)


def test_convert_writes_and_reports(place, listing):
    write(place.home / ".claude/agents/a.md", name="a", front="tools: Read, Bash\nmaxTurns: 4\nvibe: calm\n")
    done = place.run("agents", "convert", "a", "--to", "pi")
    path = place.agent_dir / "agents/a.md"
    assert (done.status, done.stdout) == (0, f"{path}\n")
    assert "retinue: tools: kept" in done.stderr
    again = place.run("agents", "convert", "a", "--to", "pi")
    assert (again.status, again.stdout, "exists already" in again.stderr) == (1, "", True)
    row = listing()["a"]
    assert (row["dialect"], row["tools"], row["maxTurns"]) == ("pi", ["read", "bash"], 4)
    lost = place.run("agents", "convert", "a", "--to", "codex")
    assert (lost.status, ": tools: " in lost.stderr) == (1, True)
    assert place.run("agents", "convert", "a", "--to", "moonlight").status == 2


def test_convert_writes_to_the_project(place):
    (place.work / ".git").mkdir()
    write(place.agent_dir / "agents/a.md", name="a", front="readonly: true\n")
    for target, path in (
        ("claude", ".claude/agents/a.md"),
        ("codex", ".codex/agents/a.toml"),
        ("opencode", ".opencode/agents/a.md"),
        ("cursor", ".cursor/agents/a.md"),
        ("copilot", ".github/agents/a.agent.md"),
        ("gemini", ".gemini/agents/a.md"),
    ):
        done = place.run("agents", "convert", "a", "--to", target, "--project", "--approve")
        assert done.stdout == f"{place.work}/{path}\n", done.stderr
    copilot = place.run("agents", "convert", "a", "--to", "copilot", "--user")
    assert copilot.stdout == f"{place.home}/.copilot/agents/a.agent.md\n"


def test_files_of_others_stay_untouched(place, listing):
    path = write(
        place.home / ".config/opencode/opencode.json", '{"agent": {"d": {"description": "d", "prompt": "Do."}}}'
    )
    before = path.read_text()
    assert place.run("agents", "delete", "d", "--yes").status == 2
    assert place.run("agents", "disable", "d").status == 0
    assert (listing()["d"]["enabled"], path.read_text()) == (False, before)
    assert place.run("agents", "enable", "d").status == 0
    assert listing()["d"]["enabled"] is True
