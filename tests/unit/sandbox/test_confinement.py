import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.core.errors import ToolFailed
from retinue.sandbox.cgroup import ControlGroup, find_bound
from retinue.sandbox.confinement import (
    BwrapConfinement,
    LandlockConfinement,
    NoConfinement,
    OpenConfinement,
    list_limits,
    open_sandbox,
    remove_leftovers,
    to_filter,
)
from retinue.sandbox.profile import Profile, SandboxSettings, build_readonly, build_writing
from retinue.sandbox.seccomp import Filter, Sockets, build_filter, find_architecture
from retinue.sandbox.server import ForkServer, ServerSpawner
from retinue.sandbox.status import Backend, SandboxStatus
from retinue.sandbox.stubs import is_stub
from retinue.sandbox.survey import Survey

WHOLE = {each: SandboxStatus("enforced", each, program="/bin/x") for each in ("bwrap", "landlock", "seatbelt")}


def count_open() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files are."""
    folder = tmp_path / "private"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def use(box: OpenConfinement, work: Path) -> None:
    with box.wrap(["/bin/true"], {}, str(work)) as launch:
        assert launch.cwd == str(work)


@pytest.mark.parametrize("writing", [False, True])
@pytest.mark.parametrize("backend", ["bwrap", "landlock", "seatbelt"])
def test_nothing_is_left_open(backend: Backend, writing: bool, work: Path) -> None:
    profile = (build_writing if writing else build_readonly)(work, SandboxSettings())
    counts = []
    for _ in range(2):
        box = open_sandbox(WHOLE[backend], profile)
        use(box, work)
        use(box, work)
        assert all(os.path.isdir(path) for path in box.private)
        box.close()
        box.close()
        assert box.private == ()
        counts.append(count_open())
    assert counts[0] == counts[1]
    assert [path.name for path in work.iterdir()] == []


@pytest.mark.parametrize(
    ("backend", "state", "profile", "told"),
    [
        ("bwrap", "enforced", Profile("/"), "read-only, bwrap"),
        ("bwrap", "partial", Profile("/"), "read-only, bwrap (partial)"),
        ("bwrap", "enforced", Profile("/", "workspace_write"), "workspace, no network, bwrap"),
        ("landlock", "enforced", Profile("/"), "read-only, landlock"),
        ("landlock", "partial", Profile("/"), "read-only, landlock (partial)"),
        ("landlock", "enforced", Profile("/", "workspace_write", True), "workspace, network, landlock (partial)"),
    ],
)
def test_summary_says_what_is_left_out(backend: Backend, state: str, profile: Profile, told: str) -> None:
    box = open_sandbox(SandboxStatus(state, backend), profile)  # type: ignore[arg-type]
    assert (box.summary, box.is_readonly) == (told, profile.is_readonly)
    box.close()


def test_command_of_root_has_a_warden_around(tmp_path: Path, work: Path) -> None:
    (tmp_path / "cgroup.procs").touch()
    found = []
    for is_root in (False, True):
        server = ForkServer(control_group=ControlGroup(str(tmp_path), is_root=is_root))
        box = BwrapConfinement(WHOLE["bwrap"], Profile(str(work)), server)
        with box.wrap(["/bin/true"], {}, str(work)) as launch:
            found.append((launch.layers, isinstance(launch.spawner, ServerSpawner), launch.spawn_thread))
        box.close()
        server.close()
    assert found == [(1, False, None), (2, True, None)]


def test_scoped_command_has_a_pen(tmp_path: Path, work: Path) -> None:
    server = ForkServer(control_group=ControlGroup(str(tmp_path), is_root=False))
    scoped = SandboxStatus("enforced", "bwrap", program="/bin/x", features=frozenset({"scope"}))
    box = BwrapConfinement(scoped, Profile(str(work)), server)
    with box.wrap(["/bin/true"], {}, str(work), pass_fds=(7,)) as launch:
        assert (launch.spawn_thread, launch.layers) == (server.find_thread(scoped=True), 1)
        assert (launch.pass_fds[0], len(launch.pass_fds), launch.argv[-1]) == (7, 2, "/bin/true")
        assert os.read(launch.pass_fds[1], 8)
        assert launch.max_memory == find_bound()
    box.close()
    server.close()


@pytest.mark.parametrize("backend", ["bwrap", "landlock", "seatbelt"])
def test_another_workspace_is_refused(backend: Backend, work: Path) -> None:
    box = open_sandbox(WHOLE[backend], Profile(str(work)))
    with pytest.raises(ToolFailed, match="does not exist"):
        box.wrap(["/bin/true"], {}, str(work / "missing"))
    work.rename(work.with_name("before"))
    for _ in range(2):
        with pytest.raises(ToolFailed, match="was removed or replaced"):
            box.wrap(["/bin/true"], {}, "/")
        work.mkdir(exist_ok=True)
    box.close()


@pytest.mark.parametrize(
    "status", [SandboxStatus("unavailable", reason="no kernel"), SandboxStatus("enforced", "none", "no kernel")]
)
def test_nothing_runs_without_a_boundary(status: SandboxStatus, work: Path) -> None:
    box = open_sandbox(status, Profile(str(work)))
    assert isinstance(box, NoConfinement)
    assert (box.summary, box.is_readonly, box.explain("EROFS")) == ("unavailable: no kernel", True, "")
    with pytest.raises(ToolFailed, match="SANDBOX_UNAVAILABLE: no kernel"):
        box.wrap(["/bin/true"], {}, str(work))


async def test_only_a_reader_stands_in_for_one(work: Path) -> None:
    for mode in ("read_only", "workspace_write"):
        box = BwrapConfinement(WHOLE["bwrap"], Profile(str(work), mode))  # type: ignore[arg-type]
        assert (await box.open(), await box.open_readonly()) == (box, box if mode == "read_only" else None)
    assert await NoConfinement(Profile(str(work)), "x").open_readonly() is None


def test_landlock_says_what_it_leaves_out(work: Path) -> None:
    (work / "secret").touch()
    hidden = (str(work / "secret"),)
    boxes = [
        LandlockConfinement(WHOLE["landlock"], Profile(str(work), mode, secrets=hidden))  # type: ignore[arg-type]
        for mode in ("read_only", "workspace_write")
    ]
    told = [box.notes for box in boxes]
    assert (told[0], told[1][-2:]) == (
        (),
        ("unix sockets are refused", f"files cannot be created directly in '{work}'"),
    )
    for box in boxes:
        box.close()


def test_leftovers_of_dead_processes_are_removed(tmp_path: Path) -> None:
    names = {
        "retinue-tmp-999999999-dead": False,
        f"retinue-tmp-{os.getpid()}-live": True,
        "retinue-tmp-x-odd": True,
        "other-999999999-": True,
    }
    folder = tmp_path / "shared"
    for name in names:
        (folder / name / "inner").mkdir(parents=True)
    (folder / "retinue-tmp-999999999-link").symlink_to(tmp_path)
    (folder / "retinue-tmp-999999999-file").touch()
    before = count_open()
    remove_leftovers(str(folder))
    assert {name: (folder / name).exists() for name in names} == names
    assert (len(list(folder.iterdir())), count_open()) == (5, before)
    remove_leftovers(str(tmp_path / "missing"))


def test_leftover_that_is_locked_stays(tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "shared" / "retinue-tmp-999999999-far").mkdir(parents=True)
    handle = os.open(tmp_path / "shared" / "retinue-tmp-999999999-far", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    remove_leftovers(str(tmp_path / "shared"))
    assert len(list((tmp_path / "shared").iterdir())) == 1
    os.close(handle)
    remove_leftovers(str(tmp_path / "shared"))
    assert list((tmp_path / "shared").iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "open to all"])
def test_private_place_of_others_is_refused(kind: str, work: Path, private: Path) -> None:
    place = private / f"retinue-{os.geteuid()}"
    if kind == "file":
        place.touch()
    else:
        place.mkdir()
        place.chmod(0o777)
    box = open_sandbox(WHOLE["seatbelt"], Profile(str(work)))
    with pytest.raises(ToolFailed, match="belongs to other users too"):
        box.wrap(["/bin/true"], {}, str(work))
    box.close()
    place.unlink() if kind == "file" else place.rmdir()


def test_others_may_only_pass_through_the_private_place(work: Path, private: Path) -> None:
    box = open_sandbox(WHOLE["seatbelt"], Profile(str(work)))
    with box.wrap(["/bin/true"], {}, str(work)):
        place = private / f"retinue-{os.geteuid()}"
        modes = [path.stat().st_mode & 0o777 for path in (place, *place.iterdir())]
    assert modes == [0o711, 0o700]
    box.close()


def test_what_a_reader_may_not() -> None:
    reader, writer = Profile("/", tmp_bytes=5), Profile("/", "workspace_write", tmp_bytes=5)
    assert [list_limits(each) for each in (reader, writer)] == [{"RLIMIT_FSIZE": 5}, {}]
    assert list_limits(Profile("/")) == {"RLIMIT_FSIZE": 256 * 1024 * 1024}
    found = [to_filter(each, namespaces=True) for each in (reader, writer)]
    assert [(each.sockets, each.tracing, each.metadata) for each in found] == [
        ("none", False, True),
        ("all", True, True),
    ]


def test_forbidden_file_goes_with_the_command(work: Path) -> None:
    for backend in ("bwrap", "landlock", "seatbelt"):
        box = open_sandbox(WHOLE[backend], Profile(str(work), "workspace_write", forbidden=(str(work / "commondir"),)))
        with box.wrap(["/bin/true"], {}, str(work)):
            (work / "commondir").touch()
        assert list(work.iterdir()) == []
        box.close()


def test_dead_neighbours_are_cleared_away(work: Path, private: Path) -> None:
    root = private / f"retinue-{os.geteuid()}"
    left = [folder / "retinue-tmp-999999999-dead" for folder in (private, root)]
    for path in left:
        path.mkdir(parents=True)
    box = open_sandbox(WHOLE["seatbelt"], Profile(str(work)))
    use(box, work)
    assert [path.exists() for path in left] == [False, False]
    box.close()


def test_private_directory_is_locked_while_it_is_used(work: Path) -> None:
    import fcntl

    box = open_sandbox(WHOLE["seatbelt"], Profile(str(work)))
    use(box, work)
    handle = os.open(box.private[0], os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    with pytest.raises(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
    box.close()


@pytest.mark.parametrize(("backend", "is_told"), [("bwrap", False), ("landlock", True), ("seatbelt", True)])
def test_complaint_is_explained(backend: Backend, is_told: bool, work: Path) -> None:
    box = open_sandbox(WHOLE[backend], Profile(str(work), "workspace_write"))
    assert bool(box.explain("Permission denied")) is is_told
    assert bool(box.explain("Read-only file system")) is not is_told  # each is said once
    box.close()


def test_nested_configuration_is_found_for_each_command(work: Path) -> None:
    box = open_sandbox(WHOLE["bwrap"], build_writing(work, SandboxSettings(writable=())))
    (work / "inner" / ".pi").mkdir(parents=True)
    with box.wrap(["/bin/true"], {}, str(work)) as launch:
        words = list(launch.argv)
        at = words.index(str(work / "inner" / ".pi"))
        assert words[at - 1 : at + 2] == ["--ro-bind", words[at], words[at]]
    box.close()


def test_protected_link_is_told(work: Path) -> None:
    (work / ".pi").symlink_to("/")
    box = open_sandbox(WHOLE["bwrap"], build_writing(work, SandboxSettings()))
    assert box.notes == (f"'{work}/.pi' is a link, which cannot be protected",)
    box.close()
    assert open_sandbox(WHOLE["seatbelt"], build_writing(work, SandboxSettings())).notes == ()


@pytest.mark.parametrize("features", [frozenset(), frozenset({"disable-userns"})])
def test_filter_is_that_of_the_profile(features: frozenset[str], work: Path) -> None:
    for mode in ("read_only", "workspace_write"):
        profile = Profile(str(work), mode)  # type: ignore[arg-type]
        box = BwrapConfinement(SandboxStatus("enforced", "bwrap", program="/bin/x", features=features), profile)
        with box.wrap(["/bin/true"], {}, str(work)) as launch:
            rules = to_filter(profile, namespaces=bool(features))
            assert os.read(launch.pass_fds[0], 1 << 16) == build_filter(find_architecture(), rules)
            words = list(launch.argv)
            at = words.index("/tmp")
            # A reader's temporary files are in memory.
            assert (words[at - 2 : at], len(box.private)) == (
                ([words[at - 2], "--tmpfs"], 0) if mode == "read_only" else (["--bind", *box.private], 1)
            )
        box.close()


def test_missing_places_are_stood_in_for(work: Path) -> None:
    place, found = work / ".pi", Survey()
    box = open_sandbox(WHOLE["bwrap"], build_writing(work, SandboxSettings(writable=())), survey=found)
    with box.wrap(["/bin/true"], {}, str(work)):
        assert is_stub(str(place))
    deadline = time.monotonic() + 5
    while place.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not place.exists()
    (work / "a" / ".pi").mkdir(parents=True)  # after the command, so not its own
    assert str(work / "a" / ".pi") in found.list_guarded((str(work),), "")
    box.close()


def test_place_that_cannot_be_protected_refuses_the_command(work: Path) -> None:
    import fcntl

    place, found = work / ".pi", Survey()
    place.mkdir()
    place.chmod(0o1755)
    handle = os.open(place, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    box = open_sandbox(WHOLE["bwrap"], build_writing(work, SandboxSettings(writable=())), survey=found)
    with pytest.raises(ToolFailed, match=r"/\.pi' cannot be protected: another program keeps it locked"):
        box.wrap(["/bin/true"], {}, str(work))
    os.close(handle)
    (work / "a" / ".pi").mkdir(parents=True)
    assert str(work / "a" / ".pi") in found.list_guarded((str(work),), "")
    box.close()


@pytest.mark.parametrize(
    ("profile", "sockets"),
    [
        (Profile("/"), "none"),
        (Profile("/", "workspace_write"), "none"),
        (Profile("/", "workspace_write", True), "internet"),
    ],
)
def test_landlock_has_the_stricter_filter(profile: Profile, sockets: Sockets, tmp_path: Path) -> None:
    server = ForkServer(control_group=ControlGroup(str(tmp_path), is_root=False))
    box = LandlockConfinement(WHOLE["landlock"], profile, server)
    is_writer = not profile.is_readonly
    rules = Filter(sockets, tracing=is_writer, metadata=is_writer, namespaces=False, apart=False)
    with box.wrap(["/bin/true"], {}, "/", pass_fds=(7,)) as launch:
        assert isinstance(launch.spawner, ServerSpawner)
        assert launch.spawner._program == build_filter(find_architecture(), rules)
        assert (launch.layers, launch.pass_fds, launch.max_memory) == (0, (7,), find_bound())
        assert launch.env["TMPDIR"] == box.private[0]
    box.close()
    server.close()


def test_server_of_others_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[ForkServer] = []
    monkeypatch.setattr(ForkServer, "close", lambda server: closed.append(server))
    server = ForkServer(control_group=ControlGroup(str(tmp_path), is_root=False))
    LandlockConfinement(WHOLE["landlock"], Profile("/"), server).close()
    assert closed == []
    LandlockConfinement(WHOLE["landlock"], Profile("/")).close()
    assert len(closed) == 1
