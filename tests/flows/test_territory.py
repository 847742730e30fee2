import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from retinue.core.errors import ToolFailed, ToolRetry
from retinue.core.launch import Territory
from retinue.core.tool import ToolContext
from retinue.sandbox import open_beneath as beneath
from retinue.tools.atomic_write import replace_file
from retinue.tools.path_guard import open_parent, open_reading
from retinue.tools.registry import ToolOptions, build_tools

SECRET = "the key of the house"
OPENS = 30_000


class Place:
    """A workspace, a home with secrets, a neighbour, and tools that are held to the workspace."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "proj"
        self.home = root / "home"
        self.evil = root / "proj-evil"
        for folder in (self.work / "src", self.home / ".ssh", self.evil):
            folder.mkdir(parents=True)
        (self.work / "src" / "a.txt").write_text("one\n")
        (self.home / ".ssh" / "id").write_text(SECRET)
        (self.home / "notes.txt").write_text("plain notes\n")
        (self.evil / "f").write_text("theirs\n")
        territory = Territory(
            (str(self.work),), (str(self.home / ".ssh"),), (str(self.work / ".git/hooks"), str(self.work / ".pi"))
        )
        self.context = ToolContext(cwd=self.work, run_id="r", run_name="agent", find_territory=lambda: territory)
        self.tools = build_tools(ToolOptions())

    async def use(self, tool, **arguments):
        result = await self.tools[tool].call(arguments, self.context)
        return result.content[0].text

    async def refuse(self, tool, **arguments):
        with pytest.raises((ToolFailed, ToolRetry)) as refused:
            await self.use(tool, **arguments)
        return str(refused.value)


@pytest.fixture
def place(tmp_path):
    return Place(Path(os.path.realpath(tmp_path)))


@pytest.fixture(params=["kernel", "steps"])
def way(request, monkeypatch):
    if request.param == "steps":
        monkeypatch.setattr(beneath, "_find_openat2", lambda: None)
    return request.param


@pytest.mark.attack("C1")
@pytest.mark.parametrize(
    "path", ["../x", "/x-retinue", "src/../../x", "~/x", "../proj-evil/f", "src/../../proj-evil/f"]
)
async def test_write_outside_is_refused(place, way, path):
    assert "outside of where this agent may change files" in await place.refuse("write", path=path, content="mine")
    assert (place.evil / "f").read_text() == "theirs\n"
    assert not (place.root / "x").exists()


@pytest.mark.attack("C1")
@pytest.mark.parametrize("folder", ["..", "src/../..", "../new", "src/../../new"])
def test_no_step_leads_up(place, way, folder):
    with pytest.raises(OSError):
        beneath.open_beneath(str(place.work), folder, make=True)
    assert not (place.root / "new").exists()


@pytest.mark.attack("C1")
@pytest.mark.parametrize("path", ["$HOME/x", "%2e%2e/x", "..\\x", "a\nb", " x. "])
async def test_odd_names_are_plain_names(place, path):
    await place.use("write", path=path, content="mine")
    written = [entry for entry in place.work.rglob("*") if entry.is_file() and entry.read_text() == "mine"]
    assert len(written) == 1
    assert sorted(entry.name for entry in place.root.iterdir()) == ["home", "proj", "proj-evil"]


@pytest.mark.attack("C2")
async def test_neighbour_with_same_prefix_is_outside(place, way):
    assert "outside" in await place.refuse("write", path=str(place.evil / "f"), content="mine")
    edits = [{"oldText": "theirs", "newText": "mine"}]
    assert "outside" in await place.refuse("edit", path=str(place.evil / "f"), edits=edits)
    assert (place.evil / "f").read_text() == "theirs\n"


@pytest.mark.attack("C3")
@pytest.mark.parametrize("kind", ["file", "folder", "chain", "dangling"])
async def test_links_do_not_lead_out(place, way, kind):
    link = place.work / "link"
    target = {"file": place.evil / "f", "dangling": place.evil / "new"}.get(kind, place.evil)
    link.symlink_to(target)
    if kind == "chain":
        (place.work / "link2").symlink_to("link")
    path = {"folder": "link/f", "chain": "link2/f"}.get(kind, "link")
    assert "outside" in await place.refuse("write", path=path, content="mine")
    assert sorted(entry.name for entry in place.evil.iterdir()) == ["f"]
    assert (place.evil / "f").read_text() == "theirs\n"


@pytest.mark.attack("C3")
async def test_links_inside_are_followed(place, way):
    (place.work / "link").symlink_to("src")
    await place.use("write", path="link/deep/er/b.txt", content="two")
    assert (place.work / "src/deep/er/b.txt").read_text() == "two"


@pytest.mark.attack("C3", "C7")
@pytest.mark.parametrize("path", ["{home}/.ssh/id", "{home}/a/../.ssh/id", "link", "folder/id"])
async def test_hidden_files_stay_hidden(place, path):
    (place.work / "link").symlink_to(place.home / ".ssh" / "id")
    (place.work / "folder").symlink_to(place.home / ".ssh")
    (place.home / "a").mkdir()
    path = path.format(home=place.home)
    assert "hidden from agents" in await place.refuse("read", path=path)
    assert "hidden from agents" in await place.refuse("grep", path=path, pattern="key")
    edits = [{"oldText": "key", "newText": "lock"}]
    assert "hidden from agents" in await place.refuse("edit", path=path, edits=edits)


@pytest.mark.attack("C7")
async def test_searches_pass_hidden_files_by(place):
    (place.home / "key.txt").write_text("a key\n")
    found = await place.use("grep", path=str(place.home), pattern="key")
    assert ("key.txt" in found, SECRET in found) == (True, False)
    assert ".ssh" not in await place.use("find", path=str(place.home), pattern="**/*")
    assert "hidden" in await place.refuse("ls", path=str(place.home / ".ssh"))


async def test_reading_elsewhere_is_free(place):
    assert await place.use("read", path=str(place.home / "notes.txt")) == "plain notes\n"
    assert "f" in await place.use("ls", path="../proj-evil")


@pytest.mark.attack("C8")
@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".pi/agents/evil.md", ".pi", "src/../.pi/settings.json"])
async def test_protected_paths_stay_unchanged(place, way, path):
    assert "is protected" in await place.refuse("write", path=path, content="#!/bin/sh\n")
    assert not (place.work / ".git").exists()
    assert not (place.work / ".pi").exists()


@pytest.mark.attack("C5")
async def test_other_hard_link_keeps_content(place):
    os.link(place.evil / "f", place.work / "mine")
    await place.use("write", path="mine", content="new")
    assert ((place.evil / "f").read_text(), (place.work / "mine").read_text()) == ("theirs\n", "new")


@pytest.mark.attack("C10")
@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "/proc/1/environ", "/proc/self/task/../environ", "/proc/self/mem"]
)
async def test_process_secrets_are_hidden(place, path):
    assert "hidden from agents" in await place.refuse("read", path=path)


@pytest.mark.attack("C4")
@pytest.mark.parametrize("seconds", [1.0, pytest.param(20.0, marks=pytest.mark.slow)])
def test_swapped_links_never_lead_out(place, way, seconds):
    real, swapped = place.work / "dir", place.work / "other"
    real.mkdir()
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            real.rename(swapped)
            real.symlink_to(place.evil)
            real.unlink()
            swapped.rename(real)
            time.sleep(0.0001)  # else a slow machine may never see the folder itself

    attacker = threading.Thread(target=swap)
    attacker.start()
    written = refused = 0
    begun = time.monotonic()
    try:
        while (lasted := time.monotonic() - begun) < seconds or (lasted < 30 and not (written and refused > 100)):
            try:
                replace_file(str(real / "f"), b"mine", territory=place.context.territory)
                written += 1
            except (OSError, ToolFailed, ToolRetry):
                refused += 1
    finally:
        stop.set()
        attacker.join()
    print(f"{written} written, {refused} refused")
    assert written > 0
    assert refused > 100
    assert (place.evil / "f").read_text() == "theirs\n"
    assert sorted(entry.name for entry in place.evil.iterdir()) == ["f"]


SWAPPER = """
import os, sys
real, kept, target = sys.argv[1:]
while True:
    os.rename(real, kept); os.symlink(target, real); os.unlink(real); os.rename(kept, real)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.attack("C4", "SEC-11")
@pytest.mark.parametrize("kind", ["reading", "changing"])
def test_thousands_of_opens_stay_inside(place, way, kind, measure):
    real, target = place.work / "dir", place.home / ".ssh"
    real.mkdir()
    (real / "id").write_text("mine")
    territory, opened, escapes = place.context.territory, 0, 0
    inside, outside = os.stat(real), os.stat(target)
    with subprocess.Popen([sys.executable, "-c", SWAPPER, str(real), str(place.work / "kept"), str(target)]) as swapper:
        for _ in range(OPENS):
            try:
                if kind == "reading":
                    handle = open_reading(str(real / "id"), "dir/id", territory)
                    escapes += os.read(handle, 100) == SECRET.encode()
                else:
                    handle, _, _ = open_parent(str(real / "id"), "dir/id", territory)
                    escapes += os.path.samestat(os.fstat(handle), outside)
                    opened += os.path.samestat(os.fstat(handle), inside)
            except (OSError, ToolFailed):
                continue
            os.close(handle)
            opened += kind == "reading"
        swapper.kill()
    measure("SEC-11", f"{kind}, {way}", escapes=escapes, opens=OPENS)
    assert (escapes, opened > 0) == (0, True)
