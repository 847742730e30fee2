"""The file tools as a run calls them, in a folder of real files."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from retinue.core.errors import ToolFailed
from retinue.core.tool import Tool, ToolContext

Call = Callable[..., Awaitable[str]]


def make_call(tools: Mapping[str, Tool], folder: Path) -> Call:
    async def run(name: str, **arguments: Any) -> str:
        result = await tools[name].call(arguments, ToolContext(folder))
        return result.content[0].text

    return run


async def fail(call: Call, name: str, **arguments: Any) -> str:
    """What a call that fails says."""
    with pytest.raises(ToolFailed) as caught:
        await call(name, **arguments)
    return str(caught.value)
