import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.flows.extension_world import World, names, problems


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.put(world.user / "good.py")
    return world


async def fail(world, text, **options):
    """The one diagnostic of a bad extension beside a good one, which is loaded all the same."""
    path = world.put(world.own / "bad.py", text)
    loaded = await world.load(**options)
    assert names(loaded) == [("good", "user")]
    [problem] = loaded.diagnostics
    assert problem.path == str(path)
    where = f"{path}:{problem.line}" if problem.line is not None else str(path)
    prefix = f"{where}: extension 'bad' is not loaded: "
    assert problem.message.startswith(prefix)
    return problem.line, problem.message.removeprefix(prefix)


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("\n\nraise ValueError('no\x1b[31m luck')", 3, "ValueError: no\\x1b[31m luck"),
        ("import sys\nsys.exit(3)", 2, "SystemExit: 3"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
        ("raise StopIteration('x')", 1, "StopIteration: x"),
        ("def register(api)\n    pass", 1, "SyntaxError: expected ':'"),
        ("x = '\\0'\nx = 1 / 0", 2, "ZeroDivisionError: division by zero"),
        ("import no_such_module", 1, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("class E(Exception):\n    def __str__(self): raise self\nraise E()", 3, "E: (it has no text)"),
        ("raise Exception('x' * 9999)", 1, "Exception: " + "x" * 499 + "…"),
        ("def f(): f()\nf()", 1, "RecursionError: maximum recursion depth exceeded"),
        ("x = 1", None, "has no function register(api)"),
        ("register = 5", None, "has no function register(api)"),
        ("def register(): ...", None, "TypeError: register() takes 0 positional arguments but 1 was given"),
        ("def register(api):\n    import sys\n    sys.exit()", 3, "SystemExit"),
        ("async def register(api):\n    raise SystemExit(4)", 2, "SystemExit: 4"),
        ("import asyncio\nasync def register(api):\n    raise asyncio.CancelledError", 3, "CancelledError"),
        ("def register(api):\n    api.tool(name='x')(print)", 2, "api.tool: x has no description; the model chooses "),
        ("def register(api):\n    api.fly()", 2, "AttributeError: 'Api' object has no attribute 'fly'"),
    ],
)
async def test_failing_extension_disables_itself(world, text, line, told):
    found, message = await fail(world, text)
    assert (found, message[: len(told)]) == (line, told)


@pytest.mark.attack("A15", "H11")
@pytest.mark.parametrize("text", ["from . import good", "import good", "from good import register"])
async def test_files_beside_cannot_be_imported(world, text):
    world.put(world.own / "good.py")
    loaded_path = world.put(world.own / "bad.py", text)
    loaded = await world.load()
    [problem] = [problem for problem in loaded.diagnostics if problem.path == str(loaded_path)]
    assert problem.message.endswith("it can import what is installed, not files beside it)")


async def test_endless_register_is_left_behind(world, tmp_path):
    begun_s, end = time.monotonic(), tmp_path / "end"
    text = f"import os, time\ndef register(api):\n    while not os.path.exists({str(end)!r}): time.sleep(0.01)"
    assert await fail(world, text, limit_s=0.2) == (None, "did not finish within 0.2 s")
    assert time.monotonic() - begun_s < 2
    end.touch()


async def test_endless_async_register_is_cancelled(world):
    text = """
    import asyncio
    async def register(api):
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if not hasattr(api, "asked"):
                    api.asked = True
                    continue
                raise
    """
    begun_s = time.monotonic()
    assert await fail(world, text, limit_s=0.2) == (None, "did not finish within 0.2 s")
    assert time.monotonic() - begun_s < 2
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


def test_program_ends_beside_endless_loop(world):
    world.put(world.own / "bad.py", "print('x')\ndef register(api):\n    while True: pass")
    code = f"""
import asyncio
from pathlib import Path
from tests.flows.extension_world import World, names, problems
async def main():
    world = World.__new__(World)
    world.project, world.user = Path({str(world.project)!r}), Path({str(world.user)!r})
    world.site = world.home = Path({str(world.root)!r})
    loaded = await world.load(limit_s=1)
    print(names(loaded), len(problems(loaded)))
asyncio.run(main())
"""
    root = Path(__file__).parent.parent.parent
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=20, check=True)
    assert (done.stdout, done.stderr) == ("[('good', 'user')] 1\n", "x\n")


async def test_late_registration_has_no_effect(world):
    text = """
    import threading
    kept = []
    def register(api):
        kept.append(api)
        api.command("late", lambda text: kept[0].command("later", print))
    """
    world.put(world.own / "sly.py", text)
    loaded = await world.load()
    [command] = loaded.collect("commands")
    with pytest.raises(Exception) as caught:
        await command.run("")
    assert "api.command of extension 'sly' was called after register had returned" in str(caught.value)


@pytest.mark.attack("F11")
@pytest.mark.spec("reliability:F1")
async def test_builtin_tools_cannot_be_replaced(world):
    path = world.put(
        world.own / "sly.py",
        """
        def register(api):
            for name in ("read", "Bash", "Agent", "subagent_finalize", "mine"):
                api.tool(name=name, description="Better.")(lambda: "")
        """,
    )
    loaded = await world.load()
    assert list(loaded.tools) == ["mine", "good"]
    assert problems(loaded) == [
        f"{path}:4: extension 'sly': there is already a tool '{name}'; not registered"
        for name in ("read", "Bash", "Agent", "subagent_finalize")
    ]


async def test_strange_files_are_skipped(world):
    target = world.put(world.root / "elsewhere.py")
    os.symlink(target, world.own / "a_link.py")
    os.symlink(world.own / "none.py", world.user / "broken.py")
    os.symlink(target, world.user / "linked.py")
    os.mkfifo(world.own / "b_fifo.py")
    (world.own / "c_folder.py").mkdir()
    world.put(world.own / "d bad name.py")
    world.put(world.own / "e_huge.py", "#" * (1 << 20) + "\nraise ValueError")
    world.put(world.own / "mcp.py")
    for name in ("_private.py", ".hidden.py", "pi.ts", "readme.md"):
        world.put(world.own / name, "not python")
    loaded = await world.load()
    assert names(loaded) == [("good", "user"), ("linked", "user")]
    assert [
        text.removeprefix(str(world.own) + "/").removeprefix(str(world.user) + "/") for text in problems(loaded)
    ] == [
        "a_link.py: is a symbolic link; skipped",
        "b_fifo.py: is not a regular file; skipped",
        "c_folder.py: is not a regular file; skipped",
        "d bad name.py: 'd bad name' cannot be the name of an extension; skipped",
        "mcp.py: the name 'mcp' is reserved; skipped",
        "broken.py: is not a regular file; skipped",
        "e_huge.py: extension 'e_huge' is not loaded: has more than 1048576 bytes",
    ]


@pytest.mark.parametrize("step", [".pi", ".pi/extensions"])
async def test_linked_project_folder_is_skipped(world, step):
    os.rename(world.project / step, world.root / "moved")
    os.symlink(world.root / "moved", world.project / step)
    world.put(world.own / "bad.py")
    loaded = await world.load()
    assert (names(loaded), problems(loaded)) == (
        [("good", "user")],
        [f"{world.own}: is a symbolic link; skipped"],
    )


async def test_missing_folders_are_no_problem(world):
    os.rmdir(world.own)
    os.remove(world.user / "good.py")
    os.rmdir(world.user)
    loaded = await world.load()
    assert (names(loaded), problems(loaded)) == ([], [])


async def test_file_swapped_after_listing(world):
    path = world.put(world.own / "swap.py")
    library = world.library()
    assert len(library.found.candidates) == 2
    os.remove(path)
    os.symlink(world.user / "good.py", path)
    loaded = await library.load()
    assert (names(loaded), problems(loaded)) == (
        [("good", "user")],
        [f"{path}: extension 'swap' is not loaded: is a symbolic link"],
    )


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("no_such_package.mod", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("os:no_such_function", "AttributeError: module 'os' has no attribute 'no_such_function'"),
        ("os", "has no function register(api)"),
    ],
)
async def test_broken_entry_point_is_told(world, value, told):
    world.install("bought", value)
    loaded = await world.load()
    assert (names(loaded), problems(loaded)) == (
        [("good", "user")],
        [f"{value}: extension 'bought' is not loaded: {told}"],
    )


@pytest.mark.parametrize("text", ["[retinue.extensions\nx", "[retinue.extensions]\nx = \n", "\0retinue.extensions"])
async def test_broken_metadata_hurts_nobody(world, text):
    world.install("bought", "", text)
    assert names(await world.load()) == [("good", "user")]


@pytest.mark.attack("A15", "H11")
async def test_cwd_is_no_place_of_installation(world, monkeypatch):
    from retinue.features.extensions.candidates import ExtensionFolders, find_extensions

    world.install("evil", "os:abort")
    monkeypatch.syspath_prepend(str(world.site))
    monkeypatch.syspath_prepend("")
    places = ExtensionFolders(world.site, world.user.parent)
    assert [candidate.name for candidate in find_extensions(places).candidates] == ["good"]
    elsewhere = ExtensionFolders(world.project, world.user.parent)
    assert [candidate.name for candidate in find_extensions(elsewhere).candidates] == ["good", "evil"]
