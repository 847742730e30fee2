import re
from pathlib import Path

import pytest

from retinue.core.tool import CODINGCODE
from retinue.definitions.dialects import codingcode, pi, sticky

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "agent-files.md").read_text(encoding="utf-8")
SOURCE = Path(pi.__file__).parent.parent


def find_section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("dialect", [pi, codingcode, sticky], ids=lambda module: module.__name__.rsplit(".")[-1])
def test_every_field_is_documented(dialect: object) -> None:
    fields: dict[str, str] = dialect.FIELDS  # type: ignore[attr-defined]
    section = find_section(f"`{dialect.__name__.rsplit('.')[-1]}`")  # type: ignore[attr-defined]
    assert [name for name in fields if f"`{name}`" not in section] == []


def test_every_code_is_documented() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    codes = set(re.findall(r'"((?:[a-z]+-)+[a-z]+|yaml|link|clash|shadowed|untrusted)"', source)) - {"general-purpose"}
    listed = set(re.findall(r"`([a-z-]+)`", find_section("Messages")))
    assert codes <= listed


def test_tool_names_are_documented() -> None:
    rows = dict(re.findall(r"\| `(\w+)` \| `(\w+)` \|\n", find_section("`codingcode`")))
    assert rows == CODINGCODE
