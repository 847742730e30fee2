"""The sandbox of one run: wraps commands so that they start inside it.

If the machine cannot enforce the profile, the sandbox refuses every command. Must not know which tools start commands.
"""

import errno
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import structs

from retinue.core.errors import ToolFailed, quote
from retinue.core.launch import Confinement, Launch, SpawnThread
from retinue.sandbox import bwrap, landlock, seatbelt
from retinue.sandbox.cgroup import find_bound
from retinue.sandbox.hints import Hints
from retinue.sandbox.open_beneath import remove_file, remove_tree
from retinue.sandbox.profile import PRIVATE_DIRS, TMP_PREFIX, Profile, build_environment, find_private_root, is_below
from retinue.sandbox.seccomp import Filter, Sockets, build_filter, find_architecture
from retinue.sandbox.server import ForkServer, ServerSpawner
from retinue.sandbox.sockets import list_foreign
from retinue.sandbox.status import SandboxStatus, explain_unavailable
from retinue.sandbox.stubs import KeptStubs
from retinue.sandbox.survey import Survey

UNGUARDED = ("hooks, configuration and agents in the workspace are not protected", "file modes are not guarded")
"""What Landlock cannot protect in runs that may write."""
_RESOLVER = "/etc/resolv.conf"
_TRIES = 100
_MOVED_TRIES = 5
_PROTECTED_LINK = "is a link, which cannot be protected"


class OpenConfinement(Confinement, Protocol):
    """A sandbox that holds resources until it is closed."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Limitations that the user should know."""
        ...

    @property
    def private(self) -> tuple[str, ...]:
        """The run's own temporary directory; empty until it exists."""
        ...

    @property
    def passed(self) -> tuple[str, ...]:
        """Always empty: the profile has already selected the variables."""
        ...

    async def open(self) -> "Confinement | None": ...

    async def open_readonly(self) -> "Confinement | None":
        """Return itself if it is read-only, else None."""
        ...

    def close(self) -> None: ...


def open_sandbox(
    status: SandboxStatus, profile: Profile, server: ForkServer | None = None, survey: Survey | None = None
) -> OpenConfinement:
    """Open the sandbox of a run; close it when the run ends.

    `server` starts commands where bubblewrap cannot; without it the sandbox starts its own. `survey` knows what agents
    of other runs created.
    """
    if not status.is_usable:
        return NoConfinement(profile, status.reason)
    match status.backend:
        case "bwrap":
            return BwrapConfinement(status, profile, server, survey)
        case "landlock":
            return LandlockConfinement(status, profile, server)
        case "seatbelt":
            return SeatbeltConfinement(status, profile, survey)
        case _:
            return NoConfinement(profile, status.reason or "no backend")


class NoConfinement:
    """Refuses every command because this machine cannot enforce a sandbox."""

    notes: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    private: tuple[str, ...] = ()

    def __init__(self, profile: Profile, reason: str) -> None:
        self._profile = profile
        self._reason = reason

    @property
    def summary(self) -> str:
        return f"unavailable: {self._reason}"

    @property
    def is_readonly(self) -> bool:
        return self._profile.is_readonly

    def wrap(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        *,
        pass_fds: tuple[int, ...] = (),
        visible: Sequence[str] = (),
    ) -> Launch:
        """Raises ToolFailed."""
        raise ToolFailed(explain_unavailable(self._reason))

    def explain(self, output: str) -> str:
        return ""

    async def open(self) -> Confinement:
        return self

    async def open_readonly(self) -> Confinement | None:
        return None

    def close(self) -> None: ...


class _Boundary:
    """Shared by all backends: checks the workspace's identity and owns the private temporary directory."""

    passed: tuple[str, ...] = ()

    def __init__(self, status: SandboxStatus, profile: Profile, survey: Survey | None = None) -> None:
        self._status = status
        self._profile = profile
        self._survey = survey or Survey()
        self._closed: tuple[str, ...] = ()
        self._tmp = ""
        self._tmp_lock: int
        self._identity = _identify(profile.workspace)
        self._hints = Hints(profile, has_mounts=status.backend == "bwrap")

    @property
    def private(self) -> tuple[str, ...]:
        return (self._tmp,) if self._tmp else ()

    @property
    def summary(self) -> str:
        profile = self._profile
        what = "read-only" if profile.is_readonly else f"workspace, {'network' if profile.network else 'no network'}"
        return f"{what}, {self._status.backend}{'' if self._is_whole else ' (partial)'}"

    @property
    def _is_whole(self) -> bool:
        return self._status.state == "enforced"

    @property
    def is_readonly(self) -> bool:
        return self._profile.is_readonly

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def explain(self, output: str) -> str:
        """Return a hint if the sandbox may have caused a command's error output."""
        return self._hints.explain(output, self._closed)

    async def open(self) -> Confinement:
        assert isinstance(self, BwrapConfinement | LandlockConfinement | SeatbeltConfinement)
        return self

    async def open_readonly(self) -> Confinement | None:
        return await self.open() if self.is_readonly else None

    def close(self) -> None:
        if self._tmp:
            with suppress(OSError):
                remove_tree(self._tmp)
            with suppress(OSError):  # directories of other runs may be in it
                os.rmdir(os.path.dirname(self._tmp))
            os.close(self._tmp_lock)
            self._tmp = ""

    def _open_tmp(self) -> str:
        if not self._tmp:
            root = find_private_root()
            remove_leftovers(os.path.dirname(root))
            remove_leftovers(root)
            self._tmp = _make_private(root)
            self._tmp_lock = os.open(self._tmp, os.O_RDONLY | os.O_CLOEXEC)
            _lock(self._tmp_lock, is_alone=False)
        return self._tmp

    def _begin(self) -> Profile:
        """Return the profile for a command that starts, including the protected paths found just now."""
        profile = self._profile
        if not profile.grounds:
            return profile
        found = self._survey.begin(profile.grounds, profile.home)
        self._closed = found.closed
        return structs.replace(
            profile,
            protected=tuple(dict.fromkeys((*profile.protected, *found.protected))),
            forbidden=(*profile.forbidden, *found.forbidden),
        )

    def _end(self, profile: Profile) -> None:
        remove_forbidden(profile)
        self._survey.end(profile.grounds)

    def _check_workspace(self, cwd: str) -> str:
        """Return the real working directory. Raises ToolFailed if the workspace was replaced since the run began."""
        workspace = self._profile.workspace
        if self._identity is None or _identify(workspace) != self._identity:
            raise ToolFailed(
                f"The workspace {quote(workspace, 200)} was removed or replaced since the run began; "
                "commands do not run anywhere else."
            )
        real = os.path.realpath(cwd)
        if not os.path.isdir(real):
            raise ToolFailed(f"The working directory {quote(cwd, 200)} does not exist, so no command can run in it.")
        return real


class BwrapConfinement(_Boundary):
    def __init__(
        self, status: SandboxStatus, profile: Profile, server: ForkServer | None = None, survey: Survey | None = None
    ) -> None:
        super().__init__(status, profile, survey)
        self._standby = KeptStubs()
        self._spawn_thread: SpawnThread | None = None
        self._spawner: ServerSpawner | None = None
        scoped = landlock.SCOPE in status.features
        if server is not None and server.control_group.is_useful and not server.control_group.takes_threads:
            self._spawner = ServerSpawner(server, limits=list_limits(profile), scoped=scoped)
        elif server is not None and (scoped or server.control_group.takes_threads):
            self._spawn_thread = server.find_thread(scoped=scoped)

    def close(self) -> None:
        super().close()
        self._standby.close()

    @property
    def notes(self) -> tuple[str, ...]:
        covers = bwrap.sort_protected(self._profile)
        return tuple(f"{quote(path, 200)} {_PROTECTED_LINK}" for path in covers.links)

    def wrap(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        *,
        pass_fds: tuple[int, ...] = (),
        visible: Sequence[str] = (),
    ) -> Launch:
        real = self._check_workspace(cwd)
        profile, covers = self._hold_protected()
        # A directory that is not hidden anyway must exist, and continue to exist, to be covered.
        is_private = is_below(find_private_root(), PRIVATE_DIRS)
        tmp = self._open_tmp() if not (profile.is_readonly and is_private) else ""
        handle = _write_filter(to_filter(profile, namespaces="disable-userns" in self._status.features))

        def release() -> None:
            os.close(handle)
            self._standby.let_go()
            self._end(profile)

        arguments = bwrap.build_arguments(
            self._status.program,
            profile,
            real,
            features=self._status.features,
            seccomp_fd=handle,
            tmp="" if profile.is_readonly else tmp,
            covers=covers if profile.is_readonly else structs.replace(covers, sockets=list_foreign(profile)),
            visible=(*visible, *([_RESOLVER] if profile.network else ())),
        )
        # bwrap's own environment becomes that of the first process inside, which any command can read.
        env = build_environment(profile, environment)
        layers = 1 if self._spawner is None else 2
        return Launch(
            [*arguments, *argv],
            env,
            real,
            (*pass_fds, handle),
            self._spawner,
            layers,
            release,
            self._spawn_thread,
            find_bound(profile.max_memory),
        )

    def _hold_protected(self) -> tuple[Profile, bwrap.CoveredPaths]:
        """Return the profile for a command that starts and its protected paths; stubs are created for missing ones."""
        tries_left = _MOVED_TRIES
        while True:
            profile = self._begin()
            covers = bwrap.sort_protected(profile)
            try:
                self._standby.hold(covers.files, covers.folders)
            except OSError as error:
                self._end(profile)
                # Agents that work concurrently create and remove worktrees.
                if isinstance(error, FileNotFoundError) and tries_left:
                    tries_left -= 1
                    continue
                path = quote(error.filename or profile.workspace, 200)
                text = f"{path} cannot be protected: {error.strerror or error}"
                raise ToolFailed(explain_unavailable(text)) from error
            return profile, covers


class LandlockConfinement(_Boundary):
    """Landlock and seccomp, applied by a fork server."""

    def __init__(self, status: SandboxStatus, profile: Profile, server: ForkServer | None = None) -> None:
        super().__init__(status, profile)
        self._server = server or ForkServer()
        self._owns_server = server is None
        self._abi = landlock.read_abi()

    @property
    def _is_whole(self) -> bool:
        return super()._is_whole and self._profile.is_readonly

    @property
    def notes(self) -> tuple[str, ...]:
        if self._profile.is_readonly:
            return ()
        parted = (
            f"files cannot be created directly in {quote(path, 200)}" for path in landlock.list_parted(self._profile)
        )
        return (*UNGUARDED, "unix sockets are refused", *parted)

    def wrap(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        *,
        pass_fds: tuple[int, ...] = (),
        visible: Sequence[str] = (),
    ) -> Launch:
        profile, real, tmp = self._profile, self._check_workspace(cwd), self._open_tmp()
        plan = landlock.plan_rules(profile, self._abi, tmp=tmp, visible=visible)
        rules = Filter(
            sockets=_choose_sockets(profile, has_netns=False),
            tracing=not profile.is_readonly,
            metadata=not profile.is_readonly,
            namespaces=False,
            apart=False,
        )
        spawner = ServerSpawner(self._server, plan, build_filter(find_architecture(), rules), list_limits(profile))
        env = build_environment(profile, environment, tmp)
        bound = find_bound(profile.max_memory)
        return Launch(argv, env, real, pass_fds, spawner, 0, lambda: remove_forbidden(profile), max_memory=bound)

    def close(self) -> None:
        super().close()
        if self._owns_server:
            self._server.close()


class SeatbeltConfinement(_Boundary):
    """The macOS sandbox. Follows its documentation; not tested on macOS."""

    def wrap(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        *,
        pass_fds: tuple[int, ...] = (),
        visible: Sequence[str] = (),
    ) -> Launch:
        real, tmp, profile = self._check_workspace(cwd), self._open_tmp(), self._begin()
        text = seatbelt.render_profile(profile, tmp=tmp)
        env = build_environment(profile, environment, tmp)
        return Launch(
            [self._status.program, "-p", text, "--", *argv], env, real, pass_fds, release=lambda: self._end(profile)
        )


def to_filter(profile: Profile, *, namespaces: bool) -> Filter:
    """Return the seccomp filter used with bubblewrap, for what mounts and namespaces do not stop."""
    return Filter(
        sockets=_choose_sockets(profile, has_netns=True), tracing=not profile.is_readonly, namespaces=namespaces
    )


def list_limits(profile: Profile) -> dict[str, int]:
    """Return resource limits that are set before a command starts."""
    return {"RLIMIT_FSIZE": profile.tmp_bytes} if profile.is_readonly else {}


def remove_forbidden(profile: Profile) -> None:
    """Remove files that no command may create and that cannot be covered by a mount."""
    for path in profile.forbidden:
        with suppress(OSError):
            remove_file(path)


def _choose_sockets(profile: Profile, *, has_netns: bool) -> Sockets:
    if profile.is_readonly:
        return "none"
    # A network namespace is empty, so a server and its client may connect there, and mounts hide socket files. Without
    # mounts a command would reach sockets of container engines, which run whatever they are asked to run.
    if has_netns:
        return "all"
    return "internet" if profile.network else "none"


def _write_filter(rules: Filter) -> int:
    handle = os.memfd_create("filter", os.MFD_CLOEXEC)
    os.write(handle, build_filter(find_architecture(), rules))
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _make_private(root: str) -> str:
    """Create a private directory in `root`. Raises OSError, or ToolFailed if other users can write to `root`."""
    for _ in range(_TRIES):
        with suppress(FileExistsError):
            os.mkdir(root, 0o711)
        # Another run that ends removes `root` when it is empty.
        with suppress(FileNotFoundError):
            found = os.lstat(root)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
                text = f"{quote(root, 200)} belongs to other users too; remove it, or set TMPDIR to another place"
                raise ToolFailed(explain_unavailable(text))
            return tempfile.mkdtemp(prefix=f"{TMP_PREFIX}{os.getpid()}-", dir=root)
    raise OSError(errno.EBUSY, "another program keeps removing it", root)


def _identify(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def remove_leftovers(folder: str) -> None:
    """Remove private directories of killed processes; only those of this user, and no links."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            owner = entry.name.removeprefix(TMP_PREFIX).partition("-")[0]
            if not entry.name.startswith(TMP_PREFIX) or not owner.isdigit() or os.path.exists(f"/proc/{owner}"):
                continue
            if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                _remove_abandoned(entry.path)


def _remove_abandoned(path: str) -> None:
    """Remove a directory unless it is locked: an unknown pid may belong to a container that shares the directory."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if _lock(handle, is_alone=True):
                remove_tree(path)
        finally:
            os.close(handle)


def _lock(handle: int, *, is_alone: bool) -> bool:
    import fcntl

    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
