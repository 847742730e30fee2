import asyncio
import os
import shutil
from pathlib import Path

import pytest

from retinue.core.tool import ToolContext
from retinue.tools.lsp.pool import LspPool, PoolContext
from retinue.tools.lsp.session import LspBounds
from retinue.tools.lsp.tool import TIMEOUT, LspTool, Permission

ROOT = Path(__file__).resolve().parent.parent.parent
WRONG = "def greet(name: str) -> str:\n    return name\n\n\nvalue = greet(3)\n"
OTHERS = [pytest.param(name, marks=pytest.mark.interop) for name in ("pyright", "basedpyright")]
SERVERS = ["ty", *OTHERS]


def find_program(name):
    """Where a server is; the test is skipped without it."""
    program = name if name == "ty" else f"{name}-langserver"
    found = shutil.which(program) or shutil.which(program, path=ROOT / ".venv" / "bin")
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


@pytest.fixture(params=SERVERS)
async def ask(request, tmp_path):
    """Asks a real server about a small package; the tool's answer as text."""
    found = find_program(request.param)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "small"\nversion = "1"\n')
    (tmp_path / "a.py").write_text(WRONG)
    (tmp_path / "b.py").write_text("from a import greet\n\nprint(greet('x'))\n")
    environment = {**os.environ, "PATH": f"{Path(found).parent}:{os.environ['PATH']}"}
    pool = LspPool(PoolContext(environment, python=request.param))
    tool = LspTool(lambda: pool, Permission(allow_mutating=True))

    async def call(action, **arguments):
        for _ in range(8):
            result = await tool.call({"action": action, **arguments}, ToolContext(tmp_path))
            lines = result.content[0].text.splitlines()
            # A server that has just been started may take longer than anybody is made to wait.
            if TIMEOUT not in lines:
                break
        return [line for line in lines if not line.startswith(("action:", "query:", "severity:", "resolvedPosition:"))]

    call.folder = tmp_path
    yield call
    await pool.close()


async def test_real_server_knows_the_package(ask):
    assert await ask("definition", file="b.py", line=3, column=8) == ["a.py:1:5"]
    assert sorted(await ask("references", file="a.py", query="greet")) == [
        "a.py:1:5",
        "a.py:5:9",
        "b.py:1:15",
        "b.py:3:7",
    ]
    assert "def greet(name: str) -> str" in "\n".join(await ask("hover", file="b.py", line=3, column=8))
    assert "name: str" in "\n".join(await ask("signature", file="a.py", line=5, column=15))


async def test_real_server_sees_changes(ask):
    (complaint,) = await ask("diagnostics", file="a.py", severity="error")
    assert complaint.startswith("a.py:5:15: error: ")
    (ask.folder / "a.py").write_text(WRONG.replace("(3)", "('3')"))
    assert await ask("diagnostics", file="a.py", severity="error") == ["No diagnostics."]


async def test_real_server_sees_other_files_change(ask, monkeypatch):
    monkeypatch.setattr("retinue.tools.lsp.session.WATCH_S", 0)
    assert await ask("diagnostics", file="b.py", severity="error") == ["No diagnostics."]
    (ask.folder / "a.py").write_text("def welcome() -> None: ...\n")
    for _ in range(40):
        told = await ask("diagnostics", file="b.py", severity="error")
        if told != ["No diagnostics."]:
            break
        await asyncio.sleep(0.1)
    assert told[0].startswith("b.py:1:15: error: ")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", SERVERS)
async def test_real_server_knows_this_repository(name):
    program = find_program(name)
    environment = {**os.environ, "PATH": f"{Path(program).parent}:{os.environ['PATH']}"}
    pool = LspPool(PoolContext(environment, python=name), LspBounds(request_s=60))
    tool = LspTool(lambda: pool, Permission())
    arguments = {"action": "references", "file": "src/retinue/tools/lsp/documents.py", "query": "read_source"}
    wanted = {f"src/retinue/tools/lsp/{each}.py" for each in ("documents", "call")}
    files = set()
    for _ in range(10):
        # One that still looks for the files of a project answers with those it knows.
        result = await tool.call(arguments, ToolContext(ROOT))
        files |= {line.partition(":")[0] for line in result.content[0].text.splitlines()}
        if wanted <= files:
            break
        await asyncio.sleep(0.5)
    [session] = pool.list_sessions()
    await pool.close()
    assert (session.program_name, wanted - files) == (Path(program).name, set())
