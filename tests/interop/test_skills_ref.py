"""The skills of `.claude/skills` mean here what they mean to the reference library of the format."""

import json
import os
import re
import subprocess
from html import unescape
from pathlib import Path

import pytest

from retinue.features.skills import find_skill_roots, list_skills, render_catalogue

LIBRARY = os.environ.get("RETINUE_SKILLS_DIR", "")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not LIBRARY, reason="RETINUE_SKILLS_DIR names no folder with skills-ref"),
]
HEADS = {
    "plain": "name: plain\ndescription: Does one thing.",
    "quoted": 'name: "quoted"\ndescription: "Use: when it says so, \'now\'."',
    "folded": "name: folded\ndescription: >\n  Two lines\n  of text.",
    "whole": "name: whole\ndescription: d & <e>\nlicense: MIT\nmetadata:\n  author: a\nallowed-tools: Bash(git:*) Read",
}
BROKEN = {"nameless": "name: nameless", "open": "name: open\ndescription: [d"}


def ask(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([f"{LIBRARY}/bin/agentskills", *words], capture_output=True, text=True, timeout=60)


def write(home: Path, heads: dict[str, str]) -> dict[str, Path]:
    for name, head in heads.items():
        (home / ".claude" / "skills" / name).mkdir(parents=True)
        (home / ".claude" / "skills" / name / "SKILL.md").write_text(f"---\n{head}\n---\n\nDo it.\n")
    return {name: home / ".claude" / "skills" / name for name in heads}


def test_skills_are_read_as_the_library_does(tmp_path: Path) -> None:
    folders = write(tmp_path, HEADS)
    skills, problems = list_skills(find_skill_roots(tmp_path / "work", tmp_path / "agent", tmp_path, configs=()))
    assert [ask("validate", str(folder)).returncode for folder in folders.values()] == [0] * len(folders)
    theirs = [json.loads(ask("read-properties", str(folder)).stdout) for folder in folders.values()]
    expected = {item["name"]: item["description"].strip() for item in theirs}
    assert ({skill.name: skill.description for skill in skills}, problems) == (expected, ())


def test_catalogue_has_the_elements_of_the_library(tmp_path: Path) -> None:
    folders = write(tmp_path, HEADS)
    skills, _ = list_skills([tmp_path / ".claude" / "skills"])
    theirs = ask("to-prompt", *(str(folders[skill.name]) for skill in skills)).stdout

    def find_elements(text: str) -> list[tuple[str, str]]:
        found = re.findall(r"<(name|description|location)>(.*?)</\1>", text, re.S)
        return [(tag, unescape(value.strip())) for tag, value in found]

    assert find_elements(render_catalogue(skills)) == find_elements(theirs)


def test_skill_that_the_library_refuses_is_skipped(tmp_path: Path) -> None:
    folders = write(tmp_path, BROKEN)
    assert [ask("validate", str(folder)).returncode for folder in folders.values()] == [1] * len(folders)
    skills, problems = list_skills([tmp_path / ".claude" / "skills"])
    assert (skills, len(problems)) == ((), len(folders))
