import json

import pytest


def read_prompt(place, *args):
    done = place.run("-p", *args, "--approve", replies=[{"text": "ok"}])
    assert done.status == 0, done.stderr
    lines = [json.loads(line) for line in place.sessions()[-1].read_text().splitlines()]
    content = next(line["message"]["content"] for line in lines if line.get("message", {}).get("role") == "user")
    return content if isinstance(content, str) else content[0]["text"]


@pytest.mark.parametrize(
    ("body", "words", "expected"),
    [
        ("Fix $1 in $2.", "'a b' c", "Fix a b in c."),
        ("All: $ARGUMENTS", "x $1 y", "All: x $1 y"),
        ("All: $@", "x y", "All: x y"),
        ("Rest: ${@:2} of ${@:1:1}", "a b c", "Rest: b c of a"),
        ("Or ${1:-none}", "", "Or none"),
        ("No place", "x", "No place\n\nARGUMENTS: x"),
        ("Run !`rm x` on $1", "y", "Run !`rm x` on y"),
    ],
)
def test_command_is_filled_in(place, body, words, expected):
    folder = place.work / ".claude/commands/team"
    folder.mkdir(parents=True)
    (place.work / ".git").mkdir()
    (folder / "fix.md").write_text(f"---\ndescription: d\nallowed-tools: Bash\n---\n{body}\n")
    assert read_prompt(place, f"/fix {words}".strip()) == expected


def test_prompt_templates_of_pi_count(place):
    folder = place.agent_dir / "prompts"
    folder.mkdir(parents=True)
    (folder / "review.md").write_text("Review $1.\n")
    (folder / "nested").mkdir()
    (folder / "nested/other.md").write_text("Never.\n")
    assert read_prompt(place, "/review this") == "Review this."
    assert read_prompt(place, "/other") == "/other"


def test_links_are_not_followed(place):
    folder = place.home / ".claude/commands"
    folder.mkdir(parents=True)
    (place.root / "secret.md").write_text("secret")
    (folder / "leak.md").symlink_to(place.root / "secret.md")
    assert read_prompt(place, "/leak") == "/leak"


def test_untrusted_commands_are_not_read(place):
    (place.work / ".git").mkdir()
    (place.work / ".claude/commands").mkdir(parents=True)
    (place.work / ".claude/commands/x.md").write_text("Evil.\n")
    done = place.run("-p", "/x", replies=[{"text": "ok"}])
    assert done.status == 0
    assert "Evil" not in place.sessions()[-1].read_text()


def test_skills_of_claude_are_found(place):
    folder = place.home / ".claude/skills/pdf"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: pdf\ndescription: Reads PDF files\n---\nUse pdftotext.\n")
    assert "Use pdftotext." in read_prompt(place, "/skill:pdf")
