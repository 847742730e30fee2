"""Commands that a real fork server starts."""

import os
import resource
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.core.launch import Launch, Stdio
from retinue.sandbox import forkserver
from retinue.sandbox.cgroup import ControlGroup
from retinue.sandbox.landlock import (
    EXECUTE,
    IOCTL_DEV,
    READ,
    READ_DIR,
    READ_FILE,
    SCOPE,
    TRUNCATE,
    WRITE_FILE,
    LandlockPlan,
    list_rights,
    read_abi,
)
from retinue.sandbox.seccomp import Filter, build_filter, find_architecture
from retinue.sandbox.server import ForkedProcess, ForkServer, ServerSpawner
from tests.needs import need_backend


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    found = ForkServer(control_group=ControlGroup(str(tmp_path_factory.mktemp("groups")), is_root=False))
    yield found
    found.close()


def wait_for(remote: ForkedProcess) -> int | None:
    deadline = time.monotonic() + 10
    while (code := remote.poll()) is None and time.monotonic() < deadline:
        select.select([remote.fileno()], [], [], 0.1)
    return code


def run(
    errand: ServerSpawner, *argv: str, cwd: str = "/", fds: tuple[int, ...] = (), source: int = -3
) -> tuple[int, str, int]:
    """The status, the output, and the number of the process around it."""
    held, lifeline = os.pipe()
    with tempfile.TemporaryFile() as output:
        launch = Launch(argv, {"MARK": "x", "PATH": "/usr/bin:/bin"}, cwd, fds)
        remote = errand.spawn(launch, Stdio(output.fileno(), output.fileno(), held, source))
        os.close(held)
        code = wait_for(remote)
        pid = remote.pid
        remote.close()
        os.close(lifeline)
        output.seek(0)
        assert code is not None
        return code, output.read().decode(), pid


def test_command_runs_as_it_is_told(server: ForkServer, tmp_path: Path) -> None:
    code, text, pid = run(
        ServerSpawner(server), "/bin/sh", "-c", "echo $PPID $MARK $(pwd); env | wc -l; exit 3", cwd=str(tmp_path)
    )
    lines = text.splitlines()
    assert (code, lines[0]) == (3, f"{pid} x {tmp_path}")
    assert int(lines[1]) <= 5


@pytest.mark.parametrize(("kind", "code"), [("missing", 127), ("no program", 126)])
def test_program_that_cannot_be_started(kind: str, code: int, server: ForkServer, tmp_path: Path) -> None:
    path = tmp_path / "program"
    if kind != "missing":
        path.touch()
    assert run(ServerSpawner(server), str(path))[:2] == (code, f"{path}: {os.strerror(2 if code == 127 else 13)}\n")


def test_missing_directory_is_a_failure(server: ForkServer, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"{tmp_path}/missing No such file"):
        run(ServerSpawner(server), "/bin/true", cwd=str(tmp_path / "missing"))


def test_only_named_descriptors_are_there(server: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    with open(tmp_path / "file", "rb") as file, open(tmp_path / "file", "rb") as other:
        number = file.fileno()
        command = f"cat /dev/fd/{number}; echo; cat; echo; ls /proc/self/fd"
        code, text, _ = run(ServerSpawner(server), "/bin/sh", "-c", command, fds=(number,), source=other.fileno())
    content, given, *numbers = text.split()
    assert (code, content, given) == (0, "content", "content")
    # One more is the listing's own.
    assert len(numbers) == 5
    assert {"0", "1", "2", str(number)} < {*numbers}


def test_nothing_to_read_unless_given(server: ForkServer) -> None:
    assert run(ServerSpawner(server), "/bin/cat")[:2] == (0, "")


def test_command_is_bounded(server: ForkServer) -> None:
    text = run(
        ServerSpawner(server, limits={"RLIMIT_FSIZE": 4096}),
        "/bin/sh",
        "-c",
        "cat /proc/self/limits /proc/self/oom_score_adj",
    )[1]
    row = next(line for line in text.splitlines() if line.startswith("Max file size"))
    assert (row.split()[3:5], int(text.splitlines()[-1]) >= 500) == (["4096", "4096"], True)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096


def test_command_has_usual_signals(server: ForkServer) -> None:
    text = run(ServerSpawner(server), "/bin/cat", "/proc/self/status")[1]
    found = dict(line.split(":\t", 1) for line in text.splitlines())
    # INT, HUP, TERM, QUIT, PIPE, XFSZ
    wanted = sum(1 << number - 1 for number in (2, 1, 15, 3, 13, 25, 17))
    assert int(found["SigIgn"], 16) & wanted == 0


def test_command_leads_its_own_session(server: ForkServer) -> None:
    _, text, pid = run(ServerSpawner(server), "/bin/sh", "-c", "cat /proc/$$/stat; cat /proc/$PPID/stat")
    own, around = (line.rpartition(")")[2].split() for line in text.splitlines())
    assert own[2] == own[3] != around[3]
    assert (around[2], around[3]) == (str(pid), str(pid))


def test_nothing_outlives_the_command(server: ForkServer) -> None:
    command = "setsid sleep 60 >/dev/null 2>&1 & sleep 0.2; echo $!; exit 4"
    code, text, warden = run(ServerSpawner(server), "/bin/sh", "-c", command)
    assert code == 4
    for pid in (int(text), warden):
        deadline = time.monotonic() + 5
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not os.path.exists(f"/proc/{pid}")


def test_closed_lifeline_ends_the_command(server: ForkServer) -> None:
    held, lifeline = os.pipe()
    reading, writing = os.pipe()
    remote = ServerSpawner(server).spawn(Launch(["/bin/sleep", "60"], {}, "/"), Stdio(writing, writing, held))
    os.close(held)
    os.close(writing)
    assert remote.poll() is None
    os.close(lifeline)
    assert wait_for(remote) == 137
    assert os.read(reading, 1) == b""  # nobody holds the output any longer
    remote.close()
    os.close(reading)


def test_command_dies_with_its_warden(server: ForkServer) -> None:
    held, lifeline = os.pipe()
    reading, writing = os.pipe()
    launch = Launch(["/bin/sh", "-c", "echo x; exec /bin/sleep 60"], {}, "/")
    remote = ServerSpawner(server).spawn(launch, Stdio(writing, writing, held))
    os.close(held)
    os.close(writing)
    assert os.read(reading, 2) == b"x\n"
    os.kill(remote.pid, 9)
    assert wait_for(remote) == -9
    assert select.select([reading], [], [], 5)[0] == [reading]
    assert os.read(reading, 1) == b""
    for handle in (reading, lifeline):
        os.close(handle)
    remote.close()


def test_killed_command_is_told(server: ForkServer) -> None:
    assert run(ServerSpawner(server), "/bin/sh", "-c", "kill -9 $$")[0] == -9


def test_plan_is_enforced(server: ForkServer, tmp_path: Path) -> None:
    need_backend("landlock")
    (tmp_path / "open").mkdir()
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "file").write_text("text\n")
    handled = list_rights(read_abi())
    rules = (
        *(
            (path, READ | READ_DIR)
            for path in ("/usr", "/proc", *(os.path.realpath(each) for each in ("/bin", "/lib")))
        ),
        *((os.path.realpath(each), READ | READ_DIR) for each in ("/lib64", "/etc/ld.so.cache")),
        (str(tmp_path / "missing"), handled),
        (str(tmp_path / "link"), handled),
        (str(tmp_path / "file"), READ | READ_DIR),
        (str(tmp_path / "open"), handled),
    )
    program = build_filter(find_architecture(), Filter(metadata=False, namespaces=False, apart=False))
    command = """exec 2>&-; cd "$0"; cat file; echo a > open/new && echo made
        cat /etc/passwd && echo read; echo a > beside && echo beside; chmod 700 open && echo changed
        grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp)' /proc/self/status"""
    errand = ServerSpawner(server, LandlockPlan(handled, 0, rules), program)
    code, text, _ = run(errand, "/bin/sh", "-c", command, str(tmp_path), cwd=str(tmp_path))
    lines = text.split()
    bounding = "0000000000000000" if os.geteuid() == 0 else lines[lines.index("CapBnd:") + 1]
    assert (code, lines[:2]) == (0, ["text", "made"])
    wanted = ["CapEff:", "0000000000000000", "CapBnd:", bounding, "NoNewPrivs:", "1", "Seccomp:", "2"]
    assert lines[2:10] == wanted


def test_scoped_command_gets_no_more_rights(server: ForkServer) -> None:
    need_backend("landlock")
    if read_abi() < 6:
        pytest.skip(f"this kernel has no {SCOPE}")
    for scoped in (False, True):
        text = run(ServerSpawner(server, scoped=scoped), "/bin/grep", "NoNewPrivs", "/proc/self/status")[1]
        assert text.split()[-1] == str(int(scoped))


def test_killed_server_is_started_again(tmp_path: Path) -> None:
    server = ForkServer(control_group=ControlGroup(str(tmp_path), is_root=False))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        assert run(ServerSpawner(server), "/bin/true")[0] == 0
        process = server._process
        assert process is not None
        process.kill()
        process.wait()
    server.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_missing_server_is_told(tmp_path: Path) -> None:
    server = ForkServer(["/missing/python"], ControlGroup(str(tmp_path), is_root=False))
    before = len(os.listdir("/proc/self/fd"))
    held, lifeline = os.pipe()
    with pytest.raises(OSError, match="the fork server does not answer"):
        ServerSpawner(server).spawn(Launch(["/bin/true"], {}, "/"), Stdio(1, 1, held))
    os.close(held)
    os.close(lifeline)
    assert len(os.listdir("/proc/self/fd")) == before
    server.close()


def test_server_ends_when_it_is_closed(tmp_path: Path) -> None:
    server = ForkServer(control_group=ControlGroup(str(tmp_path), is_root=False))
    assert run(ServerSpawner(server), "/bin/true")[0] == 0
    process = server._process
    server.close()
    assert isinstance(process, subprocess.Popen)
    assert process.returncode == 0  # nobody killed it


def test_numbers_are_those_of_the_kernel() -> None:
    # asm/unistd.h and linux/prctl.h
    assert forkserver._CAPSET == {"x86_64": 126, "aarch64": 91}
    assert (forkserver._PR_CAP_AMBIENT, forkserver._AMBIENT_CLEAR) == (47, 4)
    assert forkserver._FILE_RIGHTS == EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
    assert (
        *(1, 24),
        0x20080522,
    ) == (forkserver._PR_SET_PDEATHSIG, forkserver._PR_CAPBSET_DROP, forkserver._CAPABILITY_VERSION)


def test_ended_commands_leave_no_zombies(server: ForkServer) -> None:
    wardens = [run(ServerSpawner(server), "/bin/true")[2] for _ in range(3)]
    deadline = time.monotonic() + 5
    while any(os.path.exists(f"/proc/{pid}") for pid in wardens) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [pid for pid in wardens if os.path.exists(f"/proc/{pid}")] == []


def test_many_descriptors_are_passed(server: ForkServer, tmp_path: Path) -> None:
    numbers = tuple(os.open(tmp_path, os.O_RDONLY) for _ in range(56))
    code, text, _ = run(ServerSpawner(server), "/bin/ls", "/proc/self/fd", fds=numbers)
    for number in numbers:
        os.close(number)
    assert (code, {*map(str, numbers)} - {*text.split()}) == (0, set())


def test_warden_has_no_way_to_the_server(server: ForkServer) -> None:
    held, lifeline = os.pipe()
    reading, writing = os.pipe()
    launch = Launch(["/bin/sh", "-c", "echo x; exec /bin/sleep 60"], {}, "/")
    remote = ServerSpawner(server).spawn(launch, Stdio(writing, writing, held))
    assert os.read(reading, 2) == b"x\n"
    folder = f"/proc/{remote.pid}/fd"
    targets = [os.readlink(f"{folder}/{name}") for name in os.listdir(folder)]
    assert [target for target in targets if target.startswith("socket:")] == []
    for handle in (held, lifeline, reading, writing):
        os.close(handle)
    assert wait_for(remote) == 137
    remote.close()
