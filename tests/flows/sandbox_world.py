"""A workspace, a home and a user to attack them as, for tests of the sandbox."""

import fcntl
import grp
import hashlib
import os
import pwd
import select
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from msgspec import structs

from retinue.core.launch import Launch, Stdio
from retinue.sandbox.confinement import OpenConfinement, open_sandbox
from retinue.sandbox.probe import Probe, find_status
from retinue.sandbox.profile import SandboxSettings, build_readonly, build_writing
from retinue.sandbox.server import PROGRAM, ForkServer
from retinue.sandbox.status import Backend, SandboxStatus
from tests.needs import need_backend

DATA = Path(__file__).resolve().parent.parent / "data" / "attack"
FREE_USERS = range(61200, 61900)
"""Numbers that systems keep for users who are made for a while."""
# A program of our environment may be out of reach for other users; then the system's are all there are.
PATH = f"/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:{Path(sys.executable).parent}"
BACKENDS: tuple[Backend, ...] = ("bwrap", "landlock")
WHO = ("root", "user")
_FS_IOC_GETFLAGS = 0x80086601
LIMIT_S = 20.0

Who = Literal["root", "user"]


def find_free_user() -> int:
    """The number of an ordinary user who exists for these tests only: nobody else has files or processes of it."""
    taken = {entry.pw_uid for entry in pwd.getpwall()} | {entry.gr_gid for entry in grp.getgrall()}
    return next(number for number in FREE_USERS if number not in taken)


STRANGER = find_free_user()


def list_users() -> list[Who]:
    """Root tries everything twice; an ordinary user only as itself."""
    return ["root", "user"] if os.geteuid() == 0 else ["user"]


def become(who: Who) -> list[str]:
    """What starts a program as that user."""
    if who == "root" or os.geteuid():
        return []
    return ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "--"]


def need_status(backend: Backend) -> SandboxStatus:
    """What works here. Where the machine could do it and ours does not hold, that is a hole and no lack."""
    need_backend(backend)
    server = ForkServer()
    status = find_status(Probe(backends=(backend,)), server)
    server.close()
    if not status.is_usable:
        pytest.fail(f"{backend} works here, and our use of it does not: {status.reason}")
    return status


def become_server(who: Who) -> list[str]:
    """The fork server as that user, who may not reach our own Python."""
    if not become(who):
        return []
    return [*become(who), "/usr/bin/python3", "-I", "-S", str(PROGRAM)]


@dataclass
class World:
    """One tree: w is the workspace, h the home; the shared ones are names in the system's temporary directories."""

    root: Path
    who: Who
    canary: str = field(default_factory=lambda: f"retinue-canary-{os.urandom(6).hex()}")

    @property
    def shared(self) -> dict[str, Path]:
        return {"T": Path("/tmp", self.canary), "V": Path("/var/tmp", self.canary), "M": Path("/dev/shm", self.canary)}

    @property
    def workspace(self) -> Path:
        return self.root / "w"

    @property
    def home(self) -> Path:
        return self.root / "h"

    @property
    def environment(self) -> dict[str, str]:
        places = {"W": str(self.workspace), "H": str(self.home), "HOME": str(self.home)}
        places |= {name: str(path) for name, path in self.shared.items()}
        return {**places, "PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb", "USER": "x"}

    @property
    def wishes(self) -> SandboxSettings:
        return SandboxSettings(home=str(self.home), environment=("W", "H", *self.shared))

    def digest(self) -> dict[str, tuple[object, ...]]:
        """Content, mode, owner, time, attributes and flags of everything that must stay as it is."""
        found: dict[str, tuple[object, ...]] = {
            name: (describe(str(path)) if os.path.lexists(path) else "absent",) for name, path in self.shared.items()
        }
        for folder, folders, files in os.walk(self.root):
            for name in [".", *folders, *files]:
                path = os.path.normpath(os.path.join(folder, name))
                found[os.path.relpath(path, self.root)] = describe(path)
        return found

    def run_bare(self, command: str, *, own_mounts: bool = False) -> None:
        """Without any boundary, in this throw-away tree; with mounts of its own it leaves those of others alone."""
        with tempfile.TemporaryDirectory() as tmp:
            os.chmod(tmp, 0o777)
            env = {**self.environment, "TMPDIR": tmp, "CANARY_KEY": "CANARY"}
            apart = ["unshare", "--mount", "--"] if own_mounts else []
            argv = [*become(self.who), *apart, "/bin/bash", "-c", command]
            with subprocess.Popen(
                argv,
                cwd=self.workspace,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                close_fds=False,
            ) as process:
                try:
                    process.wait(LIMIT_S)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, 9)
                # What the command left in the background changes this tree too.
                deadline = time.monotonic() + 2
                while is_group_alive(process.pid) and time.monotonic() < deadline:
                    time.sleep(0.005)

    def remove_shared(self) -> None:
        for path in self.shared.values():
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            path.unlink(missing_ok=True)


def is_group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def describe(path: str) -> tuple[object, ...]:
    """One node, as far as anybody could have changed it."""
    found = os.lstat(path)
    content: object = ""
    flags: object = ""
    if stat.S_ISREG(found.st_mode):
        with open(path, "rb") as file:
            content = hashlib.sha256(file.read()).hexdigest()
            with suppress(OSError):  # not every file system has them
                flags = struct.unpack("l", fcntl.ioctl(file, _FS_IOC_GETFLAGS, bytes(8)))
    elif stat.S_ISLNK(found.st_mode):
        content = os.readlink(path)
    attributes = sorted(
        (name, os.getxattr(path, name, follow_symlinks=False)) for name in os.listxattr(path, follow_symlinks=False)
    )
    return found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns, found.st_nlink, content, flags, attributes


def build_template(root: Path) -> None:
    """The tree that every attack begins with."""
    work, home = root / "w", root / "h"
    work.mkdir(parents=True)
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("PRIVATE KEY\n")
    (home / ".bashrc").write_text("# mine\n")
    for name, text in {"a.txt": "one\n", "del.txt": "x\n", "ren.txt": "x\n", "mod.py": "answer = 42\n"}.items():
        (work / name).write_text(text)
    (work / "prog").write_text('#!/bin/sh\ntouch "$W/pwn"\ncat\n')
    (work / "prog").chmod(0o755)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    for command in (
        ["tar", "cf", "t.tar", "a.txt"],
        ["git", *identity, "init", "-q"],
        ["git", "config", "user.email", "a@b"],
        ["git", "config", "user.name", "a"],
        ["git", "add", "a.txt"],
        ["git", *identity, "commit", "-qm", "one"],
        ["git", "add", "."],
        ["git", *identity, "commit", "-qm", "two"],
    ):
        subprocess.run(command, cwd=work, check=True, env={"PATH": PATH, "HOME": str(home)})
    shutil.rmtree(work / ".git" / "hooks")
    (work / ".git" / "hooks").mkdir()


@contextmanager
def open_world(who: Who) -> Iterator[World]:
    """A fresh tree that the user owns, somewhere that every user can reach."""
    root = Path(tempfile.mkdtemp(prefix="retinue-world-"))
    try:
        root.chmod(0o755)
        build_template(root)
        if become(who):
            subprocess.run(["chown", "-R", f"{STRANGER}:{STRANGER}", str(root)], check=True)
        world = World(root, who)
        yield world
        world.remove_shared()
    finally:
        subprocess.run(["chattr", "-R", "-i", str(root)], check=False, capture_output=True)
        shutil.rmtree(root)


@contextmanager
def copy_world(world: World) -> Iterator[World]:
    """A throw-away copy, owners and times included."""
    root = Path(tempfile.mkdtemp(prefix="retinue-copy-"))
    try:
        root.chmod(0o755)
        subprocess.run(["cp", "-a", f"{world.root}/w", f"{world.root}/h", str(root)], check=True)
        copy = World(root, world.who)
        yield copy
        copy.remove_shared()
    finally:
        subprocess.run(["chattr", "-R", "-i", str(root)], check=False, capture_output=True)
        shutil.rmtree(root)


class Box:
    """A boundary around a world, and how commands run in it as the world's user."""

    def __init__(
        self, world: World, status: SandboxStatus, *, writing: bool = False, extra: tuple[str, ...] = ()
    ) -> None:
        """`extra` is what the user names in `sandbox.writable`."""
        self.world = world
        self.status = status
        build = build_writing if writing else build_readonly
        self.profile = build(world.workspace, structs.replace(world.wishes, writable=("~/.cache", *extra)))
        self.server = ForkServer(become_server(world.who))
        given = self.server if status.backend == "landlock" else None
        self.confinement: OpenConfinement = open_sandbox(status, self.profile, given)

    def run(self, command: str, *, shell: str = "/bin/bash", fds: tuple[int, ...] = ()) -> tuple[int, str]:
        """The status and all output of one command."""
        argv, env = [shell, "-c", command], self.world.environment
        with self.confinement.wrap(argv, env, str(self.world.workspace), pass_fds=fds) as launch:
            return self._finish(launch)

    def _finish(self, launch: Launch) -> tuple[int, str]:
        if become(self.world.who):
            tmp = getattr(self.confinement, "_tmp", "")
            if tmp:
                os.chown(tmp, STRANGER, STRANGER)
        with tempfile.TemporaryFile() as output:
            if launch.spawner is None:
                done = subprocess.run(
                    [*become(self.world.who), *launch.argv],
                    env=dict(launch.env),
                    cwd=launch.cwd,
                    pass_fds=launch.pass_fds,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=LIMIT_S,
                    check=False,
                )
                code = done.returncode
            else:
                code = self._wait(launch, output.fileno())
            output.seek(0)
            return code, output.read().decode("utf-8", "replace")

    def _wait(self, launch: Launch, output: int) -> int:
        assert launch.spawner is not None
        held, lifeline = os.pipe()
        remote = launch.spawner.spawn(launch, Stdio(output, output, held))
        os.close(held)
        deadline = time.monotonic() + LIMIT_S
        while (code := remote.poll()) is None and time.monotonic() < deadline:
            select.select([remote.fileno()], [], [], 0.5)
        os.close(lifeline)
        remote.close()
        return -1 if code is None else code

    def close(self) -> None:
        self.confinement.close()
        self.server.close()


@contextmanager
def open_box(backend: Backend, who: Who, *, writing: bool = False) -> Iterator[Box]:
    """A world with a boundary around it."""
    status = need_status(backend)
    with open_world(who) as world:
        box = Box(world, status, writing=writing)
        try:
            yield box
        finally:
            box.close()


def load_lines(name: str, columns: int) -> list[tuple[str, ...]]:
    """The lines of a data file, as columns."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("\t", columns - 1)) for line in lines if line and not line.startswith("#")]


def is_here(need: str, who: Who, *, inside: bool = False) -> bool:
    """Whether a command can be tried by that user; inside a sandbox everybody tries what only root could do."""
    if need == "-":
        return True
    word, _, file = need.partition(":")
    if word in ("root", "mounts"):
        return (inside or who == "root") and (not file or os.path.exists(file))
    found = subprocess.run(
        [*become(who), "/bin/sh", "-c", 'command -v "$0"', need], env={"PATH": PATH}, capture_output=True, check=False
    )
    return found.returncode == 0
