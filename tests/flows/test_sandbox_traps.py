import asyncio
import errno
import fcntl
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

import retinue
from retinue.core.errors import ToolFailed
from retinue.core.tool import ToolContext
from retinue.sandbox import bwrap, landlock
from retinue.sandbox.confinement import open_sandbox, remove_leftovers
from retinue.sandbox.probe import Machine, Probe
from retinue.sandbox.profile import Profile, SandboxSettings, build_writing
from retinue.sandbox.status import Backend
from retinue.tools.process_tree import TreeProbe
from retinue.tools.shell.bash import BashTool
from tests.flows.sandbox_world import BACKENDS, Who, become, list_users, need_status, open_box


@pytest.mark.attack("B10")
@pytest.mark.parametrize("lacking", [(), ("disable-userns",)])
@pytest.mark.parametrize("who", list_users())
def test_root_has_no_capabilities(who: Who, lacking: tuple[str, ...]) -> None:
    with open_box("bwrap", who) as box:
        features = box.status.features.difference(lacking)
        box.confinement = open_sandbox(structs.replace(box.status, features=features), box.profile)
        assert box.run("grep Cap /proc/self/status | cut -f2 | sort -u") == (0, f"{'0' * 16}\n")
        assert box.run("mount -o remount,rw,bind /")[0] != 0


@pytest.mark.attack("B11")
@pytest.mark.parametrize("who", list_users())
def test_kernel_knobs_are_readonly(who: Who) -> None:
    with open_box("bwrap", who) as box:
        code, text = box.run("for f in /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches; do : >>$f; done")
    assert (code != 0, text.count("\n")) == (True, 2)


@pytest.mark.attack("F1")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("who", list_users())
def test_first_process_knows_no_secret(backend: Backend, who: Who) -> None:
    with open_box(backend, who) as box:
        environment = {**box.world.environment, "OPENAI_API_KEY": "CANARY"}
        argv = ["/bin/sh", "-c", "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep CANARY || echo clean"]
        with box.confinement.wrap(argv, environment, str(box.world.workspace)) as launch:
            assert box._finish(launch) == (0, "clean\n")


@pytest.mark.parametrize("place", ["/tmp", "/run"])
def test_host_sockets_are_out_of_sight(place: str) -> None:
    if not os.access(place, os.W_OK):
        pytest.skip(f"{place} is not ours to write")
    path = f"{place}/retinue-canary-{os.urandom(6).hex()}"
    with open_box("bwrap", list_users()[0]) as box, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        try:
            assert box.run(f"test -e {path}")[0] == 1
        finally:
            os.unlink(path)


@pytest.mark.attack("B8")
@pytest.mark.parametrize("who", list_users())
def test_landlock_guards_metadata(who: Who) -> None:
    with open_box("landlock", who) as box:
        before = box.world.digest()
        for command in ("chmod 600 a.txt", "touch a.txt", "chattr +d a.txt", "ln a.txt b.txt"):
            assert box.run(command)[0] != 0, command
        assert box.world.digest() == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_daemon_ends_with_command(backend: Backend) -> None:
    marker = f"300.{int.from_bytes(os.urandom(3)):09}"
    with open_box(backend, list_users()[0]) as box:
        assert box.run(f"setsid nohup sleep {marker} >/dev/null 2>&1 & sleep 0.1")[0] == 0
        deadline = time.monotonic() + 30
        while subprocess.run(["pgrep", "-f", f"sleep {marker}"], check=False, capture_output=True).returncode == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_private_directories_are_bounded() -> None:
    with open_box("bwrap", list_users()[0]) as box:
        box.profile = Profile(str(box.world.workspace), tmp_bytes=1 << 20)
        box.confinement = open_sandbox(box.status, box.profile)
        places = [folder for folder in ("/tmp", "/var/tmp", "/dev/shm") if os.path.isdir(folder)]
        for folder in places:
            code, text = box.run(f"head -c 4000000 /dev/zero >{folder}/big")
            assert (code != 0, os.strerror(errno.ENOSPC) in text) == (True, True), folder
        assert box.run("echo x >/dev/x")[0] != 0


def test_workspace_below_tmp_is_seen() -> None:
    with open_box("bwrap", list_users()[0]) as box:
        assert str(box.world.workspace).startswith("/tmp/")
        assert box.run("pwd; cat a.txt") == (0, f"{box.world.workspace}\none\n")


def make_bwrap(folder: Path, script: str) -> str:
    folder.mkdir()
    (folder / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bwrap").chmod(0o755)
    return str(folder)


def test_container_without_setfcap_is_named(tmp_path: Path) -> None:
    place = make_bwrap(tmp_path / "bin", "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1")
    status = Machine(Probe(dirs=(place,), backends=("bwrap",))).look()
    assert (status.state, "lacks CAP_SETFCAP" in status.reason) == ("unavailable", True)


@pytest.mark.attack("B18")
def test_lying_helper_is_not_believed(tmp_path: Path) -> None:
    run = f'while [ "$1" != -- ]; do shift; done; shift; TMPDIR={tmp_path} exec "$@"'
    place = make_bwrap(tmp_path / "bin", run)
    status = Machine(Probe(dirs=(place,), backends=("bwrap",))).look()
    assert (status.state, "a read-only command could write" in status.reason) == ("unavailable", True)


@pytest.mark.attack("I9")
@pytest.mark.skipif(not landlock.has_scopes(), reason="this kernel never keeps signals in")
@pytest.mark.parametrize(("abi", "state"), [(5, "partial"), (6, "enforced")])
def test_signals_that_get_out_are_told(abi: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "read_abi", lambda: abi)
    status = need_status("landlock")
    is_told = "signals of commands reach other programs" in status.sentence
    assert (status.state, is_told, "command lines" in status.sentence) == (state, state == "partial", True)
    with (
        open_box("landlock", list_users()[-1]) as box,
        subprocess.Popen([*become(box.world.who), "sleep", "60"]) as other,
    ):
        while b"sleep" not in Path(f"/proc/{other.pid}/cmdline").read_bytes().split(b"\0")[:1]:
            time.sleep(0.01)  # it is not yet that user
        box.run(f"kill {other.pid}")
        ended = (other.wait(30) if is_told else other.poll()) is not None
        other.kill()
    assert ended is is_told


@pytest.mark.attack("B18")
def test_old_helper_works_with_less(tmp_path: Path) -> None:
    need_status("bwrap")
    refuse = 'case " $* " in *" --size "*|*" --disable-userns "*) echo "bwrap: Unknown option" >&2; exit 1;; esac'
    place = make_bwrap(tmp_path / "bin", f'{refuse}\nexec /usr/bin/bwrap "$@"')
    status = Machine(Probe(dirs=(place,), backends=("bwrap",))).look()
    assert (status.state, status.features - {landlock.SCOPE}) == ("partial", frozenset(bwrap.HARD_FEATURES))
    profile = Profile(os.path.realpath(tmp_path))
    with open_sandbox(status, profile).wrap(["/usr/bin/unshare", "-U", "true"], {}, profile.workspace) as launch:
        done = subprocess.run(launch.argv, env=launch.env, pass_fds=launch.pass_fds, check=False, capture_output=True)
        assert (done.returncode, b"Operation not permitted" in done.stderr) == (1, True)


@pytest.mark.attack("A14", "B18")
async def test_missing_helper_runs_nothing(tmp_path: Path) -> None:
    need_status("bwrap")
    place = make_bwrap(tmp_path / "bin", 'exec /usr/bin/bwrap "$@"')
    status = Machine(Probe(dirs=(place,), backends=("bwrap",))).look()
    confinement = open_sandbox(status, Profile(os.path.realpath(tmp_path)))
    os.unlink(f"{place}/bwrap")
    with pytest.raises(ToolFailed, match=r"^SANDBOX_UNAVAILABLE: .*The command was not run"):
        await BashTool(TreeProbe()).call({"command": "touch pwn"}, ToolContext(tmp_path, confinement=confinement))
    assert not (tmp_path / "pwn").exists()


@pytest.mark.attack("B18")
async def test_failing_helper_runs_nothing(tmp_path: Path) -> None:
    need_status("bwrap")
    place = make_bwrap(tmp_path / "bin", 'exec /usr/bin/bwrap "$@"')
    status = Machine(Probe(dirs=(place,), backends=("bwrap",))).look()
    confinement = open_sandbox(status, Profile(os.path.realpath(tmp_path)))
    Path(place, "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions' >&2; exit 1\n")
    with pytest.raises(ToolFailed, match="SANDBOX_UNAVAILABLE: bwrap: No permissions"):
        await BashTool(TreeProbe()).call({"command": "true"}, ToolContext(tmp_path, confinement=confinement))


@pytest.mark.attack("B18")
async def test_vanished_mount_is_looked_for_again(tmp_path: Path) -> None:
    need_status("bwrap")
    work = tmp_path / "work"
    gone = work / "copy" / ".git"
    place = make_bwrap(tmp_path / "bin", f'rm -rf {gone}\nexec /usr/bin/bwrap "$@"')
    status = Machine(Probe(dirs=(place,), backends=("bwrap",))).look()
    gone.mkdir(parents=True)
    (gone / "HEAD").write_text("ref: refs/heads/main\n")
    (gone / "objects").mkdir()
    (gone / "refs").mkdir()
    (gone / "hooks").mkdir()
    (gone / "config").write_text("")
    confinement = open_sandbox(status, build_writing(work, SandboxSettings(home=str(tmp_path / "home"))))
    context = ToolContext(work, confinement=confinement)
    result = await BashTool(TreeProbe()).call({"command": "echo once >> did"}, context)
    assert (result.is_error, (work / "did").read_text()) == (False, "once\n")


@pytest.mark.attack("B18")
async def test_words_of_a_launcher_start_nothing_twice(tmp_path: Path) -> None:
    need_status("bwrap")
    status = Machine(Probe(backends=("bwrap",))).look()
    confinement = open_sandbox(status, build_writing(tmp_path, SandboxSettings(home=str(tmp_path / "home"))))
    command = f'echo once >> did; echo "bwrap: Can\'t find source path {tmp_path}/x: No such file"; exit 1'
    with pytest.raises(ToolFailed, match="SANDBOX_UNAVAILABLE"):
        await BashTool(TreeProbe()).call({"command": command}, ToolContext(tmp_path, confinement=confinement))
    assert (tmp_path / "did").read_text() == "once\n"


@pytest.mark.attack("B18")
async def test_killed_server_is_replaced(tmp_path: Path) -> None:
    status = need_status("landlock")
    machine = Machine(Probe(backends=("landlock",)))
    confinement = open_sandbox(status, Profile(os.path.realpath(tmp_path)), machine.server)
    context = ToolContext(tmp_path, confinement=confinement)
    tool = BashTool(TreeProbe())
    await tool.call({"command": "true"}, context)
    assert machine.server._process is not None
    machine.server._process.kill()
    machine.server._process.wait()
    result = await tool.call({"command": "echo again; touch pwn"}, context)
    assert result.content[0].text.startswith("again\n")
    assert not (tmp_path / "pwn").exists()
    confinement.close()
    machine.close()


@pytest.mark.attack("A14")
def test_workspace_brings_no_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make_bwrap(tmp_path / "bin", "touch /tmp/never")
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.chdir(place)
    assert Machine(Probe(backends=("bwrap",))).look().program in ("/usr/bin/bwrap", "/bin/bwrap", "")
    assert Machine(Probe(dirs=(".", "bin"), backends=("bwrap",))).look().state == "unavailable"


@pytest.mark.sample(3)
@pytest.mark.attack("B20")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", ["gone", "link", "other"])
async def test_replaced_workspace_is_refused(backend: Backend, change: str, tmp_path: Path) -> None:
    status, work = need_status(backend), tmp_path / "work"
    work.mkdir()
    confinement = open_sandbox(status, Profile(os.path.realpath(work)))
    work.rename(tmp_path / "moved")
    if change == "link":
        work.symlink_to(tmp_path / "moved")
    if change == "other":
        work.mkdir()
    with pytest.raises(ToolFailed, match=r"was removed or replaced|does not exist"):
        await BashTool(TreeProbe()).call({"command": "true"}, ToolContext(work, confinement=confinement))
    confinement.close()


@pytest.mark.attack("B17")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_crowd_is_ended_by_name(backend: Backend, tmp_path: Path) -> None:
    machine = Machine(Probe(backends=(backend,)))
    confinement = open_sandbox(need_status(backend), Profile(os.path.realpath(tmp_path)), machine.server)
    tool = BashTool(TreeProbe(), max_tasks=150)
    began, late_s = time.monotonic(), 0.0

    async def watch() -> None:
        nonlocal late_s
        while True:
            asked = time.monotonic()
            await asyncio.sleep(0.01)
            late_s = max(late_s, time.monotonic() - asked)

    watching = asyncio.ensure_future(watch())
    crowd = "for i in $(seq 400); do sleep 20 & done; wait"
    result = await tool.call({"command": crowd}, ToolContext(tmp_path, confinement=confinement))
    watching.cancel()
    assert "[Ended by the sandbox: more than 150 processes and threads at once]" in result.content[0].text
    assert (time.monotonic() - began < 10, late_s < 1) == (True, True)
    confinement.close()
    machine.close()


@pytest.mark.attack("B17")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_limits_are_named(backend: Backend, tmp_path: Path) -> None:
    machine = Machine(Probe(backends=(backend,)))
    confinement = open_sandbox(need_status(backend), Profile(os.path.realpath(tmp_path)), machine.server)
    context = ToolContext(tmp_path, confinement=confinement)
    tool = BashTool(TreeProbe(), max_printed=1 << 20)
    flood = await tool.call({"command": "yes"}, context)
    assert "[Ended by the sandbox: more than 1.0MB of output]" in flood.content[0].text
    sparse = await tool.call({"command": "exec truncate -s 1T $TMPDIR/big"}, context)
    assert "[Ended by the sandbox: a file of more than 256.0MB]" in sparse.content[0].text
    Path(flood.details["fullOutputPath"]).unlink()
    confinement.close()
    machine.close()


@pytest.mark.parametrize("backend", BACKENDS)
async def test_long_script_runs_inside(backend: Backend, tmp_path: Path) -> None:
    machine = Machine(Probe(backends=(backend,)))
    confinement = open_sandbox(need_status(backend), Profile(os.path.realpath(tmp_path)), machine.server)
    command = f"# {'x' * 150_000}\necho end; ls /proc/self/fd | wc -l"
    result = await BashTool(TreeProbe()).call({"command": command}, ToolContext(tmp_path, confinement=confinement))
    assert result.content[0].text.startswith("end\n")
    confinement.close()
    machine.close()


@pytest.mark.parametrize("backend", BACKENDS)
async def test_streams_times_out_and_exits(backend: Backend, tmp_path: Path) -> None:
    machine = Machine(Probe(backends=(backend,)))
    confinement = open_sandbox(need_status(backend), Profile(os.path.realpath(tmp_path)), machine.server)
    seen: list[str] = []
    context = ToolContext(
        tmp_path, confinement=confinement, progress=lambda part: seen.extend(item.text for item in part.content)
    )
    tool = BashTool(TreeProbe(), grace_s=0.5)
    command = "trap 'echo cleaned; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    late = await tool.call({"command": command, "timeout": 0.6}, context)
    assert late.content[0].text.endswith("cleaned\n\n\nCommand timed out after 0.6 seconds")
    assert "up\n" in seen
    codes = [
        (await tool.call({"command": f"exit {code}"}, context)).content[0].text.split("\n")[-1] for code in (3, 126)
    ]
    assert codes == ["Command exited with code 3", "Command exited with code 126"]
    killed = await tool.call({"command": "kill -9 $$"}, context)
    assert killed.content[0].text.endswith("Command exited with code 137 (SIGKILL)")
    confinement.close()
    machine.close()


async def test_refusal_runs_nothing(tmp_path: Path) -> None:
    status = Machine(Probe(backends=())).look()
    confinement = open_sandbox(status, Profile(str(tmp_path)))
    with pytest.raises(ToolFailed, match="SANDBOX_UNAVAILABLE: there is no sandbox for this system"):
        await BashTool(TreeProbe()).call({"command": "touch pwn"}, ToolContext(tmp_path, confinement=confinement))
    assert list(tmp_path.iterdir()) == []


async def test_early_cancel_leaves_nobody(tmp_path: Path) -> None:
    machine = Machine(Probe(backends=("bwrap",)))
    confinement = open_sandbox(need_status("bwrap"), Profile(os.path.realpath(tmp_path)), machine.server)
    tool, marker = BashTool(TreeProbe()), f"300.{int.from_bytes(os.urandom(3)):09}"
    for step in range(25):
        context = ToolContext(tmp_path, confinement=confinement)
        call = asyncio.ensure_future(tool.call({"command": f"sleep {marker}"}, context))
        await asyncio.sleep(step / 1000)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    deadline = time.monotonic() + 30
    while subprocess.run(["pgrep", "-f", f"sleep {marker}"], check=False, capture_output=True).returncode == 0:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    confinement.close()
    machine.close()


@pytest.mark.sample(5)
@pytest.mark.attack("B19")
@pytest.mark.parametrize(
    "claim",
    [{"sandbox": False}, {"dangerouslyDisableSandbox": True}, {"cwd": "/"}, {"env": {"A": "b"}}, {"timeout": -1}],
)
@pytest.mark.parametrize("backend", BACKENDS)
async def test_call_cannot_widen_rights(backend: Backend, claim: dict, tmp_path: Path) -> None:
    confinement = open_sandbox(need_status(backend), Profile(os.path.realpath(tmp_path)))
    with pytest.raises(ToolFailed, match=r"bash does not take|timeout"):
        await BashTool(TreeProbe()).call({"command": "true", **claim}, ToolContext(tmp_path, confinement=confinement))
    confinement.close()


def test_leftover_private_directories_go(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name in (
        f"retinue-tmp-{dead.pid}-x/deep",
        f"retinue-tmp-{dead.pid}-held",
        f"retinue-tmp-{os.getpid()}-x",
        "retinue-tmp-word-x",
        "other",
    ):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / f"retinue-tmp-{dead.pid}-link").symlink_to("other")
    # Somebody of another container, who has another process of that number.
    held = os.open(tmp_path / f"retinue-tmp-{dead.pid}-held", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    remove_leftovers(str(tmp_path))
    os.close(held)
    kept = [
        f"retinue-tmp-{dead.pid}-held",
        f"retinue-tmp-{os.getpid()}-x",
        "retinue-tmp-word-x",
        "other",
        f"retinue-tmp-{dead.pid}-link",
    ]
    assert sorted(os.listdir(tmp_path)) == sorted(kept)


def test_vanished_directory_changes_nothing_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = need_status("bwrap")
    (tmp_path / "tmp").mkdir(0o755)
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    boundary = open_sandbox(status, build_writing(tmp_path / "work", SandboxSettings()))
    with boundary.wrap(["true"], {}, str(tmp_path / "work")):
        (private,) = (tmp_path / "tmp").glob("*/*")
    private.rmdir()  # as another process does that takes it for a leftover
    boundary.close()
    assert stat.S_IMODE((tmp_path / "tmp").stat().st_mode) == 0o755


LOOK = """
import sys
sys.path[:0] = sys.argv[1:]
from retinue.sandbox.probe import Machine
machine = Machine()
status = machine.look()
print(status.backend, status.state)
machine.close()
"""


@pytest.mark.attack("B18")
@pytest.mark.parametrize("backend", BACKENDS)
def test_nested_machine_tells_what_is_left(backend: Backend) -> None:
    # Who is held by Landlock cannot mount, and who is in a sandbox makes no namespaces: only rules can be added there.
    with open_box(backend, "root" if os.geteuid() == 0 else "user") as box:
        (box.world.workspace / "look.py").write_text(LOOK)
        # Our own files may lie where a sandbox hides everything, as in /tmp.
        own = Path(retinue.__file__).parent
        for package in (own / "core", own / "sandbox"):
            shutil.copytree(package, box.world.workspace / "lib" / "retinue" / package.name)
        shutil.copytree(Path(msgspec.__file__).parent, box.world.workspace / "lib" / "msgspec")
        code, text = box.run(f"{sys.executable} look.py lib && echo x >pwn")
        assert (code, text.splitlines()[0].split()[0] in ("landlock", "none")) == (1, True), text
        assert not (box.world.workspace / "pwn").exists()
