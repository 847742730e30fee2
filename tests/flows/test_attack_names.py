"""Attacks by spelling: other names for a file that is hidden or protected."""

import os
import unicodedata
from pathlib import Path

import pytest

from retinue.core.errors import ToolFailed, ToolRetry
from retinue.core.territory import Territory
from retinue.core.tool import ToolContext
from retinue.tools.registry import ToolOptions, build_tools

NAME = "geheimnis-é.txt"
FORMS = ("NFC", "NFD")


def spell(form):
    return unicodedata.normalize(form, NAME)


@pytest.fixture
def work(tmp_path):
    folder = Path(os.path.realpath(tmp_path)) / "work"
    folder.mkdir()
    return folder


@pytest.mark.attack("C6", "C7")
@pytest.mark.parametrize("stored", FORMS)
@pytest.mark.parametrize("asked", FORMS)
async def test_other_form_of_name_stays_hidden(work, stored, asked):
    (work / spell(stored)).write_text("the key")
    territory = Territory((str(work),), (str(work / spell(stored)),))
    context = ToolContext(cwd=work, run_id="r", run_name="agent", find_territory=lambda: territory)
    with pytest.raises((ToolFailed, ToolRetry)) as refused:
        await build_tools(ToolOptions())["read"].call({"path": spell(asked)}, context)
    assert "the key" not in str(refused.value)


@pytest.mark.attack("C6", "C8")
@pytest.mark.parametrize("path", [".PI/agents/x.md", ".Pi/x", ".git/Hooks/x", ".GIT/config"])
async def test_other_case_reaches_no_protected_file(work, path):
    for folder in (".pi", ".git/hooks"):
        (work / folder).mkdir(parents=True)
    protected = (str(work / ".pi"), str(work / ".git/hooks"), str(work / ".git/config"))
    territory = Territory((str(work),), (), protected)
    context = ToolContext(cwd=work, run_id="r", run_name="agent", find_territory=lambda: territory)
    try:
        await build_tools(ToolOptions())["write"].call({"path": path, "content": "x"}, context)
    except (ToolFailed, ToolRetry):
        return
    # Where case matters it is another file; where it does not, this would be the protected one.
    assert not (work / ".pi" / "x").exists()
    assert list((work / ".pi").iterdir()) == list((work / ".git/hooks").iterdir()) == []
    assert not (work / ".git" / "config").exists()
