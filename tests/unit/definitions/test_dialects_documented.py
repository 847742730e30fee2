import re
from pathlib import Path

import pytest

from retinue.core.definition import FOREIGN
from retinue.core.tool import CODINGCODE
from retinue.definitions.dialects import claude, codex, codingcode, copilot, cursor, gemini, opencode, pi, sticky

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "agent-files.md").read_text(encoding="utf-8")
SOURCE = Path(pi.__file__).parent.parent


def find_section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("dialect", [pi, codingcode, sticky], ids=lambda module: module.__name__.rsplit(".")[-1])
def test_every_field_is_documented(dialect: object) -> None:
    fields: dict[str, str] = dialect.FIELDS  # type: ignore[attr-defined]
    section = find_section(f"`{dialect.__name__.rsplit('.')[-1]}`")  # type: ignore[attr-defined]
    assert [name for name in fields if f"`{name}`" not in section] == []


@pytest.mark.parametrize("dialect", [claude, codex, opencode, cursor, copilot, gemini])
def test_every_foreign_field_is_documented(dialect: object) -> None:
    name = dialect.__name__.rsplit(".")[-1]  # type: ignore[attr-defined]
    page = (Path(__file__).parents[3] / "docs" / "reference" / "foreign-agents.md").read_text(encoding="utf-8")
    section = page.split(f"## `{name}`\n")[1].split("\n## ")[0]
    fields = (*dialect.FIELDS, *dialect.IGNORED)  # type: ignore[attr-defined]
    assert [field for field in fields if f"`{field}`" not in section] == []


def test_every_code_is_documented() -> None:
    files = [path for path in SOURCE.rglob("*.py") if path.stem not in (*FOREIGN, "convert")]
    source = "\n".join(path.read_text(encoding="utf-8") for path in files)
    codes = set(re.findall(r'"((?:[a-z]+-)+[a-z]+|yaml|link|clash|shadowed|untrusted)"', source)) - {"general-purpose"}
    listed = set(re.findall(r"`([a-z-]+)`", find_section("Messages")))
    assert codes <= listed


def test_tool_names_are_documented() -> None:
    rows = dict(re.findall(r"\| `(\w+)` \| `(\w+)` \|\n", find_section("`codingcode`")))
    assert rows == CODINGCODE
