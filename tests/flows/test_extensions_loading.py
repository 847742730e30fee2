import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.core.definition import DeclaredTools, Definition
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.features.extensions.candidates import WantedExtensions, to_wanted
from retinue.tools.policy import BUILTIN_OFFERS, Terms, decide_tools
from retinue.tools.selectors import Offer
from tests.flows.extension_world import World, names, problems


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


async def call(loaded, name):
    result = await loaded.tools[name].call({}, ToolContext(Path("/")))
    return result.content[0].text


async def test_all_places_are_searched(world, monkeypatch):
    monkeypatch.syspath_prepend(str(world.site))
    world.put(world.own / "ours.py")
    world.put(world.user / "mine.py")
    world.put(world.site / "bought_module.py", "def register(api):\n    api.command('buy', print)")
    world.install("bought", "bought_module")
    loaded = await world.load()
    assert names(loaded) == [("ours", "project"), ("mine", "user"), ("bought", "installed")]
    assert (problems(loaded), [command.name for command in loaded.collect("commands")]) == ([], ["buy"])
    assert await call(loaded, "ours") == f"{world.own / 'ours.py'} ours {world.project}"


async def test_entry_point_may_name_function(world, monkeypatch):
    monkeypatch.syspath_prepend(str(world.site))
    world.put(world.site / "kit" / "__init__.py", "def set_up(api):\n    api.renderer(api.name, str)")
    world.install("tools", "kit:set_up")
    [renderer] = (await world.load()).collect("renderers")
    assert renderer.kind == "tools"


async def test_async_register_is_awaited(world):
    text = "import asyncio\nasync def register(api):\n    await asyncio.sleep(0)\n    api.command('late', print)"
    world.put(world.user / "slow.py", text)
    assert [command.name for command in (await world.load()).collect("commands")] == ["late"]


def test_untrusted_project_is_not_opened(world):
    world.put(world.own / "evil.py", "import os; os._exit(9)")
    code = f"""
import asyncio, sys
from pathlib import Path
from retinue.features.extensions.candidates import ExtensionFolders
from retinue.features.extensions.loader import ExtensionLibrary
project, seen = {str(world.project)!r}, []
places = ExtensionFolders(Path(project), Path({str(world.user.parent)!r}), Path(project), trusted=False)
sys.addaudithook(lambda event, given: seen.append((event, *map(str, given))))
print(asyncio.run(ExtensionLibrary(places).load()).extensions)
print([event for event in seen if any(text.startswith(project) for text in event[1:])])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=world.project, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("()\n[]\n", "")


async def test_strongest_of_one_name_counts(world, monkeypatch):
    monkeypatch.syspath_prepend(str(world.site))
    ours, mine = world.put(world.own / "Ops.py"), world.put(world.user / "ops.py")
    world.install("OPS", "does_not_exist")
    loaded = await world.load()
    assert names(loaded) == [("Ops", "project")]
    assert problems(loaded) == [
        f"{mine}: there is already an extension 'ops': {ours}; skipped",
        f"does_not_exist: there is already an extension 'OPS': {ours}; skipped",
    ]
    assert names(await world.load(trusted=False)) == [("ops", "user")]


async def test_strongest_of_one_tool_counts(world):
    world.put(world.user / "b.py", "def register(api):\n    api.tool(name='Look', description='b')(lambda: 'b')")
    world.put(world.own / "z.py", "def register(api):\n    api.tool(name='look', description='z')(lambda: 'z')")
    loaded = await world.load()
    assert (list(loaded.tools), await call(loaded, "look")) == (["look"], "z")
    text = "extension 'b': its tool 'Look' is not used: extension 'z' has a tool of the same name"
    assert problems(loaded) == [f"{world.user / 'b.py'}: {text}"]


@pytest.mark.sample(3)
@pytest.mark.spec("reliability:F11")
@pytest.mark.parametrize(
    "wanted",
    [
        WantedExtensions(False),
        WantedExtensions(isolated=True),
        WantedExtensions(excluded=("MARK",)),
        WantedExtensions(("other",)),
        WantedExtensions(("{user}/mark.py",), excluded=("mark",)),
    ],
)
async def test_unwanted_code_never_runs(world, wanted, tmp_path):
    world.put(world.user / "mark.py", f"open({str(tmp_path / 'ran')!r}, 'w').close()\ndef register(api): ...")
    if isinstance(wanted.selection, tuple):
        wanted = WantedExtensions(tuple(entry.format(user=world.user) for entry in wanted.selection), wanted.excluded)
    assert (await world.load(wanted)).extensions == ()
    assert not (tmp_path / "ran").exists()
    assert names(await world.load(WantedExtensions(("mark",)))) == [("mark", "user")]
    assert (tmp_path / "ran").exists()


COUNTING = """
def note(text):
    with open({file!r}, "a") as file:
        file.write(text)
note({text!r})
def register(api):
    note("register ")
"""


async def test_extension_is_registered_once(world, tmp_path):
    world.put(world.user / "a.py", COUNTING.format(file=str(tmp_path / "count"), text="import "))
    library = world.library()
    loads = await asyncio.gather(*(library.load(WantedExtensions(excluded=(name,))) for name in ("x", "y", "a", "z")))
    assert [len(loaded.extensions) for loaded in loads] == [1, 1, 0, 1]
    assert (tmp_path / "count").read_text() == "import register "


async def test_one_import_per_content(world, tmp_path):
    for text in ("import 1 ", "import 1 ", "import 2 "):
        world.put(world.user / "a.py", COUNTING.format(file=str(tmp_path / "count"), text=text))
        await world.load()
    assert (tmp_path / "count").read_text() == "import 1 register register import 2 register "


async def test_modules_keep_to_themselves(world):
    text = "from __future__ import annotations\nimport dataclasses, sys, json\n"
    text += "@dataclasses.dataclass\nclass Box:\n    size: int = 1\n"
    text += "def register(api):\n    api.renderer(__name__, json.dumps)\n    api.renderer(__file__, Box)"
    world.put(world.user / "json.py", text)
    world.put(world.own / "retinue.py", text)
    before = list(sys.path)
    loaded = await world.load()
    kinds = [renderer.kind for renderer in loaded.collect("renderers")]
    assert problems(loaded) == [] and kinds[1::2] == [str(world.own / "retinue.py"), str(world.user / "json.py")]
    assert [kind[:-17] for kind in kinds[::2]] == ["retinue_extension_retinue", "retinue_extension_json"]
    assert (sys.path, "dumps" in vars(sys.modules["json"])) == (before, True)


async def test_nothing_is_written_beside(world, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for folder in (world.own, world.user):
        world.put(folder / f"{folder.parent.name.strip('.')}.py")
    before = sorted(world.root.rglob("*"))
    assert len((await world.load()).extensions) == 2
    assert sorted(world.root.rglob("*")) == before


async def test_listed_paths_are_loaded(world):
    world.put(world.project / "lib" / "near.py")
    world.put(world.home / "far.py")
    world.put(world.user / "other.py")
    loaded = await world.load(WantedExtensions(("lib/near.py", "~/far.py")))
    assert (names(loaded), problems(loaded)) == ([("near", "path"), ("far", "path")], [])
    assert await call(loaded, "near") == f"{world.project / 'lib' / 'near.py'} near {world.project}"


async def test_listed_path_hides_its_namesake(world):
    near, mine = world.put(world.project / "lib" / "ops.py"), world.put(world.user / "ops.py")
    library = world.library()
    loaded = await library.load(WantedExtensions(("./lib/ops.py", "*")))
    assert names(loaded) == [("ops", "path")]
    assert problems(loaded) == [f"{mine}: hidden by {near}, which an agent lists by its path"]
    assert names(await library.load()) == names(await library.load(WantedExtensions((str(mine),)))) == [("ops", "user")]


async def test_untrusted_paths_are_refused(world):
    world.put(world.project / "lib" / "near.py")
    os.symlink(world.project / "lib", world.home / "link")
    loaded = await world.load(
        WantedExtensions(("./lib/near.py", "~/link/near.py", "~/x.ts", "~root/x.py", "a\0/b.py")), trusted=False
    )
    assert loaded.extensions == ()
    assert problems(loaded) == [
        "extension './lib/near.py': belongs to a project that is not trusted; not loaded",
        "extension '~/link/near.py': belongs to a project that is not trusted; not loaded",
        "extension '~/x.ts': is not a Python file; not loaded",
        "extension '~root/x.py': is not a usable path; not loaded",
        "extension 'a\\x00/b.py': is not a usable path; not loaded",
    ]


def define(**fields):
    return Definition(name="a", dialect="pi", source="user", path="/a.md", **fields)


@pytest.mark.spec("fleet:B34", "fleet:B35", "fleet:B36")
async def test_tools_pass_through_the_policy(world):
    world.put(
        world.user / "ops.py",
        "def register(api):\n    api.tool(name='Look', description='b', effect='read')(lambda: '')",
    )
    world.put(world.user / "wiki.py")
    library = world.library()

    async def decide(**fields):
        definition = define(**fields)
        loaded = await library.load(to_wanted(definition))
        return decide_tools(definition, Terms(available={**BUILTIN_OFFERS, **loaded.offers})).allowed

    one_builtin = DeclaredTools(names=("ls",))
    assert (await library.load()).offers == {"Look": Offer(Effect.READ, "ops"), "wiki": Offer(Effect.EXECUTE, "wiki")}
    assert await decide(tools=one_builtin) == ("ls", "Look", "wiki")
    assert await decide(tools=one_builtin, readonly=True) == ("ls", "Look")
    assert await decide(tools=DeclaredTools(names=())) == ()
    assert await decide(tools=DeclaredTools(names=(), selectors=("ext:OPS/Look",))) == ("Look",)
    assert await decide(tools=DeclaredTools(names=(), selectors=("ext:ops/look",))) == ()
    assert await decide(tools=one_builtin, exclude_extensions=("OPS",)) == ("ls", "wiki")
    assert await decide(tools=one_builtin, isolated=True) == ("ls",)


async def test_tool_prints_to_stderr(world, capfd):
    world.put(
        world.user / "loud.py",
        """
        import sys
        print("import")
        async def register(api):
            print("register")
            @api.tool(name="loud", description="Prints.")
            def loud():
                print("call")
                sys.stdout.buffer.write(b"bytes\\n")
        """,
    )
    loaded = await world.load()
    assert await loaded.tools["loud"].call({}, ToolContext(Path("/"))) == ToolResult.of("(no output)")
    print("answer")
    sys.stderr.flush()
    out, err = capfd.readouterr()
    assert (out, sorted(err.split())) == ("answer\n", ["bytes", "call", "import", "register"])
