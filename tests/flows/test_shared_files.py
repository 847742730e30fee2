import asyncio
from pathlib import Path

import pytest

from retinue.core.errors import ToolRetry
from retinue.core.tool import ToolContext
from retinue.tools.registry import ToolOptions, build_tools

START = "one\ntwo\nthree\n"


class Place:
    """One file and two runs that work on it with the same tools."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "a.txt"
        self.file.write_text(START)
        self.tools = build_tools(ToolOptions())
        self.runs = {
            name: ToolContext(cwd=folder, run_id=name, run_name=f"{name}#1234") for name in ("writer", "fixer")
        }

    async def use(self, run, tool, **arguments):
        result = await self.tools[tool].call({"path": "a.txt", **arguments}, self.runs[run])
        return result.content[0].text

    async def edit(self, run, old, new):
        return await self.use(run, "edit", edits=[{"oldText": old, "newText": new}])


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


async def test_edit_after_foreign_edit_is_refused(place):
    await place.use("writer", "read")
    await place.use("fixer", "read")
    await place.edit("fixer", "two", "2")
    with pytest.raises(ToolRetry) as refused:
        await place.edit("writer", "three", "3")
    assert "was changed by fixer#1234 since you looked at it; nothing was written" in str(refused.value)
    assert "-two\n+2" in str(refused.value)
    assert place.file.read_text() == "one\n2\nthree\n"


async def test_shown_difference_counts_as_seen(place):
    await place.use("writer", "read")
    await place.edit("fixer", "two", "2")
    with pytest.raises(ToolRetry):
        await place.edit("writer", "three", "3")
    await place.edit("writer", "three", "3")
    assert place.file.read_text() == "one\n2\n3\n"


async def test_overwriting_foreign_work_is_refused(place):
    await place.use("fixer", "write", content="one\ntwo\nthree\nfour\n")
    with pytest.raises(ToolRetry, match="was changed by fixer#1234"):
        await place.use("writer", "write", content="mine\n")
    await place.use("writer", "write", content="mine\n")
    assert place.file.read_text() == "mine\n"


async def test_long_difference_asks_for_reading(place):
    await place.use("writer", "read")
    await place.use("fixer", "write", content="".join(f"line {n}\n" for n in range(2000)))
    for _ in range(2):
        with pytest.raises(ToolRetry, match="Read it again"):
            await place.use("writer", "write", content="mine\n")
    await place.use("writer", "read")
    await place.use("writer", "write", content="mine\n")
    assert place.file.read_text() == "mine\n"


async def test_own_changes_are_no_conflict(place):
    await place.use("writer", "read")
    await place.edit("writer", "one", "1")
    await place.edit("writer", "two", "2")
    await place.use("writer", "write", content="all\n")
    assert place.file.read_text() == "all\n"


async def test_reading_again_settles_conflict(place):
    await place.use("writer", "read")
    await place.edit("fixer", "two", "2")
    await place.use("writer", "read")
    await place.edit("writer", "three", "3")
    assert place.file.read_text() == "one\n2\n3\n"


async def test_changes_from_outside_do_not_stop_edits(place):
    await place.use("writer", "read")
    place.file.write_text("one\n2\nthree\n")
    await place.edit("writer", "three", "3")
    assert place.file.read_text() == "one\n2\n3\n"


async def test_other_name_is_same_file(place):
    (place.file.parent / "link.txt").symlink_to("a.txt")
    await place.use("writer", "read")
    await place.use("fixer", "edit", path="link.txt", edits=[{"oldText": "two", "newText": "2"}])
    with pytest.raises(ToolRetry, match="fixer#1234"):
        await place.edit("writer", "three", "3")


async def test_one_of_many_writers_wins(place):
    for run in range(20):
        place.runs[f"r{run}"] = ToolContext(cwd=place.file.parent, run_id=f"r{run}", run_name=f"r{run}")
        await place.use(f"r{run}", "read")
    edits = [place.edit(f"r{run}", "two", f"two {run}") for run in range(20)]
    results = await asyncio.gather(*edits, return_exceptions=True)
    won = [result for result in results if isinstance(result, str)]
    assert (len(won), {type(result) for result in results if result not in won}) == (1, {ToolRetry})
