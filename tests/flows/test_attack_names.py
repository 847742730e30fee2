"""Attacks by spelling: other names for a file that is hidden or protected."""

import json
import unicodedata

import pytest

from retinue import Retinue
from retinue.core.events import ToolFinished
from retinue.testing import EventCollector
from tests.flows.crew_world import call, repository, script, to

SECRET = "the key of the house"
NAME = "geheimnis-é.txt"
FORMS = ("NFC", "NFD")


def spell(form):
    return unicodedata.normalize(form, NAME)


@pytest.fixture
def place(tmp_path, agent_dir):
    """A checkout, and a home with something to hide in it under every name."""
    home = agent_dir.parent.parent
    work = repository(tmp_path)
    for name in (".ssh", ".SSH", ".Ssh"):
        (home / name).mkdir(exist_ok=True)
        (home / name / "id").write_text(SECRET)
    (agent_dir / "subagents.json").write_text(json.dumps({"sandbox": {"hidden": [str(work / spell("NFC"))]}}))
    for form in FORMS:
        (work / spell(form)).write_text(SECRET)
    return work


async def ask(work, folder, name, **arguments):
    """What one call of a tool comes to, through the whole program."""
    seen = EventCollector()
    replies = [to("^go", calls=[call(name, **arguments)]), to("^", text="done")]
    async with Retinue(work, model=script(folder, *replies)) as crew:
        crew.listen(seen)
        await crew.prompt("go")
    (result,) = [event.result for event in seen.events if isinstance(event, ToolFinished)]
    return result.content[0].text, result.is_error


@pytest.mark.attack("C6", "C8")
@pytest.mark.parametrize(
    "path",
    [
        *(
            ".PI/agents/x.md",
            ".Pi/x",
            ".pi ./x",
            ".pi./agents/x.md",
            ".p\u200di/x",
            ".\ufeffpi/x",
            ".\u017fsh/../.PI/x",
        ),
        *(".git/Hooks/post-commit", ".GIT/config", ".git/CONFIG", ".Git /hooks/x", ".MCP.json", ".VSCode/tasks.json"),
    ],
)
async def test_other_spelling_stays_protected(place, tmp_path, path):
    text, is_error = await ask(place, tmp_path, "write", path=path, content="x")
    assert ("is protected" in text, is_error, (place / path).exists()) == (True, True, False)


@pytest.mark.attack("C6", "C7")
@pytest.mark.parametrize("tool", ["read", "ls"])
@pytest.mark.parametrize("name", [".ssh", ".SSH", ".Ssh"])
async def test_other_case_stays_hidden(place, tmp_path, home, name, tool):
    path = home / name / "id" if tool == "read" else home / name
    text, is_error = await ask(place, tmp_path, tool, path=str(path))
    assert ("hidden from agents" in text, SECRET in text, is_error) == (True, False, True)


@pytest.mark.attack("C6", "C7")
@pytest.mark.parametrize("asked", FORMS)
async def test_other_form_stays_hidden(place, tmp_path, asked):
    text, is_error = await ask(place, tmp_path, "read", path=spell(asked))
    assert ("hidden from agents" in text, SECRET in text, is_error) == (True, False, True)


async def test_similar_names_are_other_files(place, tmp_path):
    for path in (".pie/x", "pi/x", ".gitignore", "sub/config", "caf\u00e9", "cafe"):
        text, is_error = await ask(place, tmp_path, "write", path=path, content="x")
        assert (path, is_error) == (path, False), text
