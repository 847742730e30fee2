"""Files that go into a prompt by themselves: a link in a clone shows the provider nothing but the clone."""

import json
import os
import subprocess

import pytest

SECRET = "cnry-linked-31-q8Zt"
HI = {"text": "Hello."}


@pytest.fixture
def clone(place):
    """A repository nobody has decided about, and a key in the home."""
    (place.home / ".ssh").mkdir()
    (place.home / ".ssh" / "id_ed25519").write_text(f"---\ndescription: d\nname: n\n---\n{SECRET}\n")
    (place.home / "notes.md").write_text(f"{SECRET}\n")
    subprocess.run(["git", "init", "-q", str(place.work)], check=True)
    return place


def look(place, *args):
    """What a run has told its model and its session, and a person."""
    done = place.run(*args, "--mode", "json", "-p", "Hi", replies=[HI])
    kept = "".join(path.read_text() for path in place.agent_dir.rglob("*.jsonl"))
    assert done.status == 0, done.stderr
    return done.stdout + kept, done.stderr


def put_link(path, target):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return str(path)


@pytest.mark.sample(4)
@pytest.mark.attack("I2")
@pytest.mark.parametrize("name", ["AGENTS.md", "AGENTS.override.md", "CLAUDE.md"])
@pytest.mark.parametrize("target", [".ssh/id_ed25519", "notes.md", ".pi/agent/auth.json"])
def test_linked_context_is_not_read(clone, name, target):
    (clone.agent_dir / "auth.json").write_text(json.dumps({"p": {"type": "api_key", "key": SECRET}}))
    (clone.agent_dir / "auth.json").chmod(0o600)
    link = put_link(clone.work / name, clone.home / target)
    told, stderr = look(clone)
    line = next(line for line in stderr.splitlines() if link in line)
    assert (
        SECRET in told,
        str(clone.home / target) in line,
        any(word in line for word in ("replace the link", "use another file")),
    ) == (
        False,
        True,
        True,
    )


@pytest.mark.attack("I2")
@pytest.mark.parametrize("way", ["chain", "folder", "parent", "hidden"])
def test_roundabout_links_are_not_followed(clone, way):
    here = clone.work / "sub"
    here.mkdir()
    if way == "chain":
        put_link(clone.work / "b", clone.home / "notes.md")
        put_link(clone.work / "a.md", "b")
        put_link(here / "AGENTS.md", "../a.md")
    elif way == "folder":
        put_link(clone.work / "docs", clone.home)
        put_link(here / "AGENTS.md", "../docs/notes.md")
    elif way == "parent":
        put_link(clone.work / "AGENTS.md", "../home/notes.md")
    else:  # inside of the root, but nothing for agents
        (here / "keys").write_text(SECRET)
        (clone.agent_dir / "subagents.json").write_text(json.dumps({"sandbox": {"hidden": [str(here / "keys")]}}))
        put_link(here / "AGENTS.md", "keys")
    told, stderr = look(clone, "-C", str(here))
    assert (SECRET in told, "AGENTS.md: leads to" in stderr) == (False, True)


@pytest.mark.attack("I2")
def test_links_inside_of_clone_are_followed(clone):
    (clone.work / "docs").mkdir()
    (clone.work / "docs" / "all.md").write_text("Speak in rhymes.")
    (clone.work / "sub").mkdir()
    put_link(clone.work / "sub" / "CLAUDE.md", "../docs/all.md")
    put_link(clone.work / "AGENTS.md", clone.work / "docs" / "all.md")
    told, stderr = look(clone, "-C", str(clone.work / "sub"))
    assert (told.count("Speak in rhymes.") >= 4, stderr) == (True, "")


@pytest.mark.attack("I2")
@pytest.mark.parametrize(
    "name", ["SYSTEM.md", "APPEND_SYSTEM.md", "agents/x.md", "agents/y/x.md", "agent-tool-description.md"]
)
def test_trusted_project_links_stay_inside(clone, name):
    parts = name.split("/")
    path = clone.work / ".pi" / parts[0]
    (clone.agent_dir / "subagents.json").write_text(json.dumps({"toolDescriptionMode": "custom"}))
    if len(parts) == 3:  # a folder that is a link
        (clone.home / "agents").mkdir()
        (clone.home / "agents" / "x.md").write_text((clone.home / ".ssh" / "id_ed25519").read_text())
        put_link(path, clone.home / "agents")
    else:
        put_link(clone.work / ".pi" / name, clone.home / ".ssh" / "id_ed25519")
    told, stderr = look(clone, "--approve")
    listed = clone.run("agents", "--approve", "--json")
    assert SECRET not in told + listed.stdout
    assert '"name": "n"' not in listed.stdout
    assert str(clone.work / ".pi" / parts[0]) in stderr + listed.stdout


@pytest.mark.attack("I2")
@pytest.mark.parametrize("name", ["s.md", "s", "s/SKILL.md"])
def test_linked_skills_are_told_and_left_out(clone, name):
    (clone.home / "s").mkdir()
    (clone.home / "s" / "SKILL.md").write_text((clone.home / ".ssh" / "id_ed25519").read_text())
    link = put_link(clone.work / ".pi" / "skills" / name, clone.home / "s" / ("" if name == "s" else "SKILL.md"))
    told, stderr = look(clone, "--approve", "--tools", "read")
    assert (link in told, link in stderr, "symbolic link" in stderr or "is a link" in stderr) == (False, True, True)


@pytest.mark.attack("I2")
@pytest.mark.parametrize(
    "name", ["settings.json", "subagents.json", "mcp.json", "../.codingcode/hooks.yaml", "../.codingcode/config.yaml"]
)
def test_project_configuration_stays_inside(clone, name):
    outside = clone.home / "outside"
    outside.write_text('{"cnry": 1}' if name.endswith("json") else "cnry: 1\n")
    link = put_link(clone.work / ".pi" / name, outside)
    done = clone.run("--approve", "--tools", "bash", "-p", "Hi", replies=[HI])
    shown = os.path.normpath(link)
    assert (f"{shown}: leads to {outside}" in done.stderr, "cnry" in done.stderr) == (True, False)


@pytest.mark.attack("I2")
def test_users_own_links_are_followed(clone):
    for name in ("AGENTS.md", "APPEND_SYSTEM.md"):
        target = clone.home / "dotfiles" / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(f"Mine: {name}.")
        put_link(clone.agent_dir / name, target)
    put_link(clone.agent_dir / "SYSTEM.md", clone.home / ".ssh" / "id_ed25519")
    told, stderr = look(clone)
    assert ("Mine: AGENTS.md." in told, "Mine: APPEND_SYSTEM.md." in told, SECRET in told) == (True, True, False)
    assert "SYSTEM.md: leads to" in stderr and "hidden from agents" in stderr


@pytest.mark.attack("I2")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_foreign_context_above_is_not_read(clone):
    above = clone.root / "AGENTS.md"
    above.write_text(SECRET)
    os.chown(above, 12345, 12345)
    inside = clone.work / "AGENTS.md"
    inside.write_text("Speak in rhymes.")
    os.chown(inside, 12345, 12345)
    (clone.work / "sub").mkdir()
    told, stderr = look(clone, "-C", str(clone.work / "sub"))
    assert (SECRET in told, "Speak in rhymes." in told) == (False, True)
    assert f"{above}: belongs to another user" in stderr


@pytest.mark.sample(3)
@pytest.mark.attack("I2")
@pytest.mark.parametrize("where", ["context", "skill", "memory", "agent", "description", "called skill"])
def test_copied_keys_are_redacted(clone, where):
    login = {"type": "oauth", "access": f"{SECRET}-access", "refresh": f"{SECRET}-refresh", "expires": 1}
    auth = {"openai": {"type": "api_key", "key": SECRET}, "other": login, "odd": {"type": "new", "key": f"{SECRET}-9"}}
    (clone.agent_dir / "auth.json").write_text(json.dumps(auth))
    (clone.agent_dir / "auth.json").chmod(0o600)
    copy = f"Before. {json.dumps(auth)} After."
    skill = clone.agent_dir / "skills" / "s" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(f"---\nname: s\ndescription: x\n---\n{copy if 'skill' in where else ''}")
    notes = clone.home / ".pi" / "agent-memory" / "a" / "MEMORY.md"
    notes.parent.mkdir(parents=True)
    notes.write_text(copy if where == "memory" else "")
    (clone.agent_dir / "agents").mkdir()
    body = copy if where == "agent" else "Act."
    about = f"Before {SECRET}-9 After" if where == "description" else "d"
    head = f"---\nname: a\ndescription: {about}\nmemory: user\nskills: s\n---\n"
    (clone.agent_dir / "agents" / "a.md").write_text(f"{head}{body}\n")
    (clone.work / "AGENTS.md").write_text(copy if where == "context" else "")
    call = {"name": "Agent", "arguments": {"subagent_type": "a", "prompt": "leaf", "description": "d"}}
    replies = [{"match": {"last_user": "begin"}, "calls": [call]}, {"match": {"last_user": "^"}, "text": "done"}]
    words = "/skill:s begin" if where == "called skill" else "begin"
    done = clone.run("--mode", "json", "-p", words, replies=replies)
    told = done.stdout + "".join(path.read_text() for path in clone.agent_dir.rglob("*.jsonl"))
    assert (SECRET in told, "[redacted]" in told) == (False, True)
