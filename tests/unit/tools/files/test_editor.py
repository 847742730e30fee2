from pathlib import Path

import pytest

from retinue.core.errors import ToolRetry
from retinue.core.tool import ToolContext
from retinue.tools.file_changes import FileChanges, PathLocks
from retinue.tools.files.edit import EditTool
from retinue.tools.files.editor import EditedFileTool
from retinue.tools.files.write import WriteTool


class Saver:
    async def read_text(self, path):
        return Path(path).read_text()

    async def save_text(self, path, text):
        return await self.show_text(path, text)

    async def show_text(self, path, text):
        with open(path, "w") as file:
            file.write(text)
        return True


async def test_saved_again_still_counts_as_changed_by_the_run(tmp_path):
    path, seen = tmp_path / "a.txt", FileChanges()
    path.write_text("one\n")
    edit = EditedFileTool(EditTool(PathLocks(), seen), Saver(), PathLocks())
    change = {"path": "a.txt", "edits": [{"oldText": "one", "newText": "two"}]}
    await edit.call(change, ToolContext(tmp_path, run_id="first", run_name="First"))
    write = EditedFileTool(WriteTool(PathLocks(), seen), Saver(), PathLocks())
    with pytest.raises(ToolRetry, match="was changed by First"):
        await write.call({"path": "a.txt", "content": "blind"}, ToolContext(tmp_path, run_id="second"))
    assert path.read_text() == "two\n"
