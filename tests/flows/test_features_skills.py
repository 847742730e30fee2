import os
from pathlib import Path

import pytest

from retinue.core.run import Outcome, Reason, Status
from retinue.features import skills
from retinue.features.skills import Skill, Skills, find_skill_roots, list_skills, preload_skill, render_catalogue
from retinue.tools.registry import ToolOptions, build_tools
from tests.run_setup import build_setup

HEAD = "---\nname: {name}\ndescription: {about}\n---\nBody of {name}."


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or HEAD.format(name=path.parent.name if path.name == "SKILL.md" else path.stem, about="Use."))
    return path


def body(name, *roots):
    return preload_skill(name, roots).removeprefix(f"# Preloaded Skill: {name}\n\n")


async def enter(selection, roots, *, tools=("read",), sections=None):
    made = build_tools(ToolOptions(), tools)
    setup = build_setup("r", Path("/"), None, tools=made, sections=sections or {"a": "A"})
    feature = Skills(selection, roots)
    ended = Outcome(Status.COMPLETED, Reason.DONE)
    assert await feature.leave(ended) is ended
    return (await feature.enter(setup)).sections


@pytest.mark.spec("fleet:B91")
def test_roots_have_an_order():
    roots = find_skill_roots(Path("/p"), Path("/agent"), Path("/home"), configs=(".pi", ".agents"))
    assert [str(root) for root in roots] == [
        "/p/.pi/skills",
        "/p/.agents/skills",
        "/agent/skills",
        "/home/.agents/skills",
        "/home/.pi/skills",
        "/home/.claude/skills",
    ]


def test_untrusted_project_gives_no_skills():
    roots = find_skill_roots(Path("/p"), Path("/agent"), None, configs=())
    assert roots == (Path("/agent/skills"),)


@pytest.mark.spec("fleet:B91")
def test_first_root_wins(tmp_path):
    put(tmp_path / "b" / "x.md", "second")
    put(tmp_path / "a" / "deep" / "x" / "SKILL.md", "first")
    assert body("x", tmp_path / "none", tmp_path / "a", tmp_path / "b") == "first"


@pytest.mark.spec("fleet:B91")
def test_flat_file_beats_directory(tmp_path):
    put(tmp_path / "x" / "SKILL.md", "directory")
    put(tmp_path / "x.md", "\n  ---\nname: x\n---\nflat \n")
    assert body("x", tmp_path) == "---\nname: x\n---\nflat"


@pytest.mark.spec("fleet:B91")
def test_shallow_beats_deep_and_bytes_sort(tmp_path):
    put(tmp_path / "a" / "b" / "x" / "SKILL.md", "deep")
    put(tmp_path / "z" / "x" / "SKILL.md", "lower")
    put(tmp_path / "Z" / "x" / "SKILL.md", "upper")
    assert body("x", tmp_path) == "upper"


@pytest.mark.spec("fleet:B91")
def test_skill_is_not_descended_into(tmp_path):
    put(tmp_path / "pack" / "SKILL.md", "pack")
    put(tmp_path / "pack" / "x" / "SKILL.md", "inside")
    assert body("x", tmp_path) == f'(Skill "x" not found in {tmp_path})'


@pytest.mark.spec("fleet:B91")
def test_same_name_without_a_skill_is_descended_into(tmp_path):
    put(tmp_path / "x" / "notes.md", "no skill")
    put(tmp_path / "x" / "x" / "SKILL.md", "found")
    assert body("x", tmp_path) == "found"


@pytest.mark.parametrize("folder", [".git", ".hidden", "node_modules"])
def test_hidden_folders_are_not_searched(tmp_path, folder):
    put(tmp_path / folder / "x" / "SKILL.md", "hidden")
    assert body("x", tmp_path) == f'(Skill "x" not found in {tmp_path})'


@pytest.mark.attack("A10")
@pytest.mark.spec("fleet:B91")
def test_links_are_refused_and_the_search_goes_on(tmp_path):
    secret = put(tmp_path / "outside" / "x" / "SKILL.md", "secret")
    root = tmp_path / "root"
    (root / "a" / "x").mkdir(parents=True)
    (root / "x.md").symlink_to(secret)
    (root / "x").symlink_to(secret.parent)
    (root / "a" / "x" / "SKILL.md").symlink_to(secret)
    assert body("x", root) == f'(Skill "x" not found in {root})'
    put(root / "b" / "c" / "x" / "SKILL.md", "own")
    assert body("x", root) == "own"


@pytest.mark.spec("fleet:B91")
def test_linked_root_is_refused(tmp_path):
    put(tmp_path / "real" / "x.md", "text")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert body("x", tmp_path / "link") == f'(Skill "x" not found in {tmp_path}/link)'


@pytest.mark.sample(7)
@pytest.mark.spec("fleet:B91")
@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\\b", "-a", ".a", "a b", "a\n# H", "a\0", "é", "a" * 129, "%2e"]
)
def test_unsafe_name_is_skipped(tmp_path, name):
    put(tmp_path.parent / "x.md", "outside")
    heading, blank, note = preload_skill(name, [tmp_path]).split("\n")
    assert (heading.startswith("# Preloaded Skill: "), blank, note.startswith('(Skill "')) == (True, "", True)
    assert '" skipped: ' in note


def test_empty_flat_file_counts(tmp_path):
    (tmp_path / "x.md").touch()
    put(tmp_path / "x" / "SKILL.md", "directory")
    assert preload_skill("x", [tmp_path]) == "# Preloaded Skill: x\n\n"


def test_pipe_named_like_a_skill_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "x.md")
    put(tmp_path / "x" / "SKILL.md", "directory")
    assert body("x", tmp_path) == "directory"
    assert [skill.name for skill in list_skills([tmp_path])[0]] == []


def test_long_skill_is_cut(tmp_path):
    put(tmp_path / "x.md", "y" * (skills.MAX_SKILL_BYTES + 1))
    assert body("x", tmp_path).endswith(f"y\n... (truncated at {skills.MAX_SKILL_BYTES} bytes)")


@pytest.mark.attack("A10")
def test_invisible_characters_are_shown(tmp_path):
    put(tmp_path / "x.md", "say\u202e \u200bhi\U000e0041\r\nnext")
    assert body("x", tmp_path) == "say\\u202e \\u200bhi\\U000e0041\nnext"


def test_walk_is_bounded(tmp_path):
    for number in range(100):
        folder = tmp_path / f"{number:03}"
        folder.mkdir()
        for name in range(101):
            (folder / f"{name}").touch()
    put(tmp_path / "zzz" / "x" / "SKILL.md", "too far")
    assert body("x", tmp_path) == f'(Skill "x" not found in {tmp_path} (only the first 10000 entries were searched))'


def test_deep_folders_end_the_walk(tmp_path):
    put(tmp_path.joinpath(*"abcdefghijklmnop", "x", "SKILL.md"), "deep")
    assert body("x", tmp_path) == f'(Skill "x" not found in {tmp_path})'


def test_catalogue_lists_names_and_descriptions(tmp_path):
    a = put(tmp_path / "a" / "SKILL.md", "---\nname: pdf\ndescription: >\n  Read\n  PDFs\n---\nlong body")
    b = put(tmp_path / "b.md", "---\ndescription: yes & <no>\n---\n")
    put(tmp_path / "README.md", "# no skill")
    put(tmp_path / "c" / "SKILL.md", "---\nname: c\ndescription: d\ndisable-model-invocation: true\n---\n")
    found, problems = list_skills([tmp_path])
    assert (found, problems) == ((Skill("b", "yes & <no>", str(b)), Skill("pdf", "Read PDFs", str(a))), ())
    text = render_catalogue(found)
    assert "    <description>yes &amp; &lt;no&gt;</description>\n" in text
    assert "long body" not in text


@pytest.mark.parametrize(
    "text", ["plain", "---\nname: a\n---\n", "---\ndescription: [\n---\n", "---\n- a\n---\n", "---\n"]
)
def test_skill_without_description_is_told(tmp_path, text):
    path = put(tmp_path / "a" / "SKILL.md", text)
    found, problems = list_skills([tmp_path])
    assert (found, [(problem.path, problem.code) for problem in problems]) == ((), [(str(path), "skill")])


def test_second_skill_of_a_name_is_told(tmp_path):
    first, second = put(tmp_path / "a" / "x" / "SKILL.md"), put(tmp_path / "b" / "x" / "SKILL.md")
    found, problems = list_skills([tmp_path / "a", tmp_path / "b"])
    assert [skill.path for skill in found] == [str(first)]
    assert problems[0].message == f"{second}: there is already a skill 'x': {first}; skipped"


def test_catalogue_is_bounded(tmp_path):
    for number in range(skills.MAX_LISTED + 3):
        put(tmp_path / f"s{number}" / "SKILL.md", HEAD.format(name=f"s{number}", about="d" * 3000))
    found, problems = list_skills([tmp_path])
    assert (len(found), len(problems), len(found[0].description)) == (skills.MAX_LISTED, 3, 1024)


async def test_listed_skills_are_preloaded_in_order(tmp_path):
    put(tmp_path / "b.md", "B")
    put(tmp_path / "a.md", "A")
    assert await enter(("b", "gone", "a"), [tmp_path], tools=()) == {
        "a": "A",
        "skill:b": "# Preloaded Skill: b\n\nB",
        "skill:gone": f'# Preloaded Skill: gone\n\n(Skill "gone" not found in {tmp_path})',
        "skill:a": "# Preloaded Skill: a\n\nA",
    }


async def test_true_offers_the_catalogue(tmp_path):
    put(tmp_path / "x" / "SKILL.md")
    sections = await enter(True, [tmp_path])
    assert (list(sections), "<name>x</name>" in sections["skills"]) == (["a", "skills"], True)


async def test_catalogue_is_not_told_in_vain(tmp_path):
    put(tmp_path / "x" / "SKILL.md")
    inherited = {"parent": "…<available_skills>…"}
    assert await enter(False, [tmp_path]) == {"a": "A"}
    assert await enter(True, [tmp_path], tools=("edit",)) == {"a": "A"}
    assert await enter(True, [tmp_path / "none"]) == {"a": "A"}
    assert await enter(True, [tmp_path], sections=inherited) == inherited


def test_new_folder_is_seen_soon(tmp_path, monkeypatch):
    glance, folder = skills.SkillCheck(), tmp_path / "skills"
    seen = [glance.is_any_there([folder])]
    folder.mkdir()
    seen.append(glance.is_any_there([folder]))
    monkeypatch.setattr(skills, "FRESH_S", 0.0)
    assert [*seen, glance.is_any_there([folder])] == [False, False, True]
