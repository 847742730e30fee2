import pytest

SKILL = "---\nname: {name}\ndescription: About {name}.\n---\nDo it."


@pytest.fixture
def skilled(place):
    for root, name in ((place.agent_dir, "mine"), (place.work / ".pi", "theirs")):
        folder = root / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(SKILL.format(name=name))
    return place


def sections(place):
    return next(entry["message"]["sections"] for entry in place.entries() if entry.get("message", {}).get("sections"))


def test_main_agent_learns_of_trusted_skills(skilled):
    assert skilled.run("-p", "--approve", "hi", replies=[{"text": "ok"}]).status == 0
    told = sections(skilled)
    assert list(told)[-2:] == ["skills", "cwd"]
    assert f"<location>{skilled.work}/.pi/skills/theirs/SKILL.md</location>" in told["skills"]
    assert told["skills"].index("theirs") < told["skills"].index("mine")


def test_untrusted_skills_are_not_told(skilled):
    result = skilled.run("-p", "hi", replies=[{"text": "ok"}])
    assert (result.status, "theirs" in sections(skilled)["skills"]) == (0, False)
    assert "mine" in sections(skilled)["skills"]


def test_skills_need_a_tool_that_reads(skilled):
    assert skilled.run("-p", "--tools", "edit", "hi", replies=[{"text": "ok"}]).status == 0
    assert "skills" not in sections(skilled)
