"""What is private to one run: another one, of the same user or of root, does not see it."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from retinue.core.errors import ToolFailed
from retinue.sandbox.confinement import open_sandbox
from retinue.sandbox.profile import TMP_PREFIX, SandboxSettings, build_readonly, find_private_root
from retinue.sandbox.status import Backend
from tests.flows.sandbox_world import BACKENDS, Box, Who, list_users, need_status, open_box
from tests.flows.test_sandbox_around import Ground
from tests.flows.test_sandbox_feature import enter


@contextmanager
def open_neighbour(backend: Backend, who: Who, *, writing: bool) -> Iterator[tuple[Box, str]]:
    """A boundary beside that of a run which has something private."""
    with open_box(backend, who, writing=writing) as box:
        neighbour = Box(box.world, box.status, writing=True)
        neighbour.confinement._open_tmp()  # type: ignore[attr-defined]
        assert neighbour.run('echo PRIVATE >"$TMPDIR/note"; cat "$TMPDIR/note"') == (0, "PRIVATE\n")
        try:
            yield box, neighbour.confinement._tmp  # type: ignore[attr-defined]
        finally:
            neighbour.close()


@pytest.mark.sample(7)
@pytest.mark.attack("I9")
@pytest.mark.parametrize("writing", [False, True])
@pytest.mark.parametrize("place", ["usual", "elsewhere"])
@pytest.mark.parametrize("who", list_users())
@pytest.mark.parametrize("backend", BACKENDS)
def test_neighbours_private_files_are_hidden(
    backend: Backend, who: Who, place: str, writing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/var" if os.geteuid() == 0 else Path.cwd()) as folder:
        os.chmod(folder, 0o711)
        if place != "usual":
            monkeypatch.setattr(tempfile, "tempdir", folder)
        with open_neighbour(backend, who, writing=writing) as (box, private):
            assert (Path(private) / "note").read_text() == "PRIVATE\n"
            code, text = box.run(
                f"cat {private}/note; cat {Path(private).parent}/*/note; echo $TMPDIR; echo x >$TMPDIR/x"
            )
        assert (code, "PRIVATE" in text) == (0, False), text
        assert place == "usual" or os.listdir(folder) == []


@pytest.mark.attack("I9")
@pytest.mark.parametrize("backend", BACKENDS)
def test_neighbour_that_comes_later_is_hidden(backend: Backend) -> None:
    who = list_users()[0]
    with open_box(backend, who) as box, open_box(backend, who, writing=True) as later:
        argv = ["/bin/sh", "-c", 'cat "$(cat where)"']
        with box.confinement.wrap(argv, box.world.environment, str(box.world.workspace)) as launch:
            assert later.run('echo PRIVATE >"$TMPDIR/note"')[0] == 0
            note = Path(later.confinement.private[0]) / "note"
            (box.world.workspace / "where").write_text(str(note))
            assert note.read_text() == "PRIVATE\n"
            code, text = box._finish(launch)
    assert (code != 0, str(note) in text, "PRIVATE" in text) == (True, True, False), text


@pytest.mark.attack("I9")
@pytest.mark.parametrize("backend", BACKENDS)
def test_long_outputs_of_others_are_hidden(backend: Backend) -> None:
    with tempfile.TemporaryDirectory(prefix=f"{TMP_PREFIX}{os.getppid()}-") as others:
        (Path(others) / "retinue-bash-x.log").write_text("PRIVATE\n")
        with open_box(backend, list_users()[0]) as box:
            code, text = box.run(f"cat {others}/*")
    assert (code != 0, "PRIVATE" in text) == (True, False)


@pytest.mark.attack("I9")
async def test_tools_see_only_own_private_files(home: Path) -> None:
    ground = Ground(home, "src/mine", "landlock")
    other = ground.boundaries.surround(readonly=True)
    said = await ground.run("echo PRIVATE >$TMPDIR/note; echo $TMPDIR")
    path = f"{said.split()[0]}/note"
    assert "PRIVATE" in await ground.read(path)
    ground.feature, mine = other, ground.feature
    for tool, arguments in (("read", {"path": path}), ("ls", {"path": os.path.dirname(path)})):
        await enter(other, ground.work)
        with pytest.raises(ToolFailed, match="hidden"):
            await ground._use(tool, await ground._reach(), **arguments)
    mine.close()
    ground.close()


@pytest.mark.attack("I9")
@pytest.mark.parametrize("kind", ["link", "open to all"])
def test_foreign_place_for_private_files_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = need_status("landlock")
    (tmp_path / "t").mkdir()
    (tmp_path / "w").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    root = Path(find_private_root())
    if kind == "link":
        root.symlink_to(tmp_path / "w")
    else:
        root.mkdir()
        root.chmod(0o777)
    boundary = open_sandbox(status, build_readonly(tmp_path / "w", SandboxSettings()))
    with pytest.raises(ToolFailed, match="remove it, or set TMPDIR"):
        boundary.wrap(["/bin/true"], {}, str(tmp_path / "w"))
    boundary.close()
