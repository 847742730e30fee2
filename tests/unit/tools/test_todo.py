from pathlib import Path

import pytest

from retinue.core.errors import ToolRetry
from retinue.core.schema import fit_arguments
from retinue.core.tool import ToolContext
from retinue.tools.todo import MAX_ITEM_CHARS, MAX_ITEMS, TodoTool

CONTEXT = ToolContext(Path("/"))


def todo(content, status="pending"):
    return {"content": content, "status": status}


async def test_list_comes_back_in_order():
    items = [todo("read  the\ncode", "completed"), todo("change it", "in_progress"), todo("test it")]
    result = await TodoTool().call({"todos": items}, CONTEXT)
    assert result.content[0].text == "1 of 3 done:\n[x] read the code\n[>] change it\n[ ] test it"
    assert result.details == {"todos": [todo("read the code", "completed"), *items[1:]]}


async def test_empty_list_is_said():
    assert (await TodoTool().call({"todos": []}, CONTEXT)).content[0].text == "The list is empty."


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([todo("x")] * (MAX_ITEMS + 1), "The list has 101 items; at most 100 are kept"),
        ([todo("x"), todo(" ")], "Item 2 needs a content of 1 to 500 characters"),
        ([todo("x" * (MAX_ITEM_CHARS + 1))], "Item 1 needs a content of 1 to 500 characters"),
    ],
)
async def test_unbounded_list_is_refused(items, problem):
    with pytest.raises(ToolRetry, match=problem):
        await TodoTool().call({"todos": items}, CONTEXT)


@pytest.mark.parametrize("items", [[todo("x", "later")], [{"content": "x"}], "x", [3]])
def test_schema_wants_whole_items(items):
    assert fit_arguments({"todos": items}, TodoTool().spec.parameters)[1] != []
