"""Opens the sandbox of each run's commands: read-only, or writable in the workspace.

The machine is probed on first use. A read-only run never runs without a sandbox; a writing run does if the user turned
it off or the machine supports none, and its outcome records that.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from retinue.core.launch import ANYWHERE, Confinement, Territory
from retinue.core.run import Outcome
from retinue.engine.setup import RunSetup

if TYPE_CHECKING:  # a run that starts no command needs none of these imports
    from retinue.sandbox.confinement import OpenConfinement
    from retinue.sandbox.probe import Machine
    from retinue.sandbox.profile import Sandbox, SandboxSettings
    from retinue.sandbox.status import SandboxStatus
    from retinue.sandbox.survey import Survey

OFF = "off (sandbox.mode)"
UNUSED = "no command was run"


class Boundaries:
    """The sandbox of this machine and user, shared by all runs of a process."""

    def __init__(
        self,
        settings: "Sandbox",
        *,
        home: Path | None,
        agent_dir: Path,
        find_machine: "Callable[[], Machine] | None" = None,
        withheld: Sequence[str] = (),
        exposed: Sequence[str] = (),
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`withheld` is hidden whatever the settings say, except what is `exposed` in it.

        `tell` receives a warning, maybe repeatedly, if a writing run has no sandbox although the user did not turn it
        off.
        """
        self._settings = settings
        self.home = home
        self._agent_dir = agent_dir
        self._withheld = tuple(withheld)
        self._exposed = tuple(exposed)
        self._find_machine = find_machine or open_machine
        self._tell = tell
        self._territories: dict[tuple[str, bool], Territory] = {}

    @cached_property
    def machine(self) -> "Machine":
        return self._find_machine()

    @cached_property
    def survey(self) -> "Survey":
        from retinue.sandbox.survey import Survey

        return Survey()

    @property
    def is_off(self) -> bool:
        return bool(self._settings.mode == "off")

    @property
    def passed(self) -> tuple[str, ...]:
        """Names of environment variables that the user lets commands have."""
        return tuple(self._settings.environment)

    @property
    def status(self) -> "SandboxStatus":
        """The probed status; the first access takes some milliseconds."""
        return self.machine.look()

    def judge(self) -> tuple[bool, str]:
        """Return whether read-only commands can run, and if not, why."""
        if self.is_off:
            return False, "sandbox.mode is off in the user's settings"
        return self.status.is_usable, self.status.reason

    def foretell(self, *, readonly: bool) -> tuple[bool, str]:
        """Return whether commands of a run will be confined, and a description for the user."""
        if self.is_off or not self.status.is_usable:
            return False, f"its commands have no boundary: {self.judge()[1]}"
        network = "with" if self._settings.network and not readonly else "without"
        where = "in $TMPDIR only" if readonly else "in the workspace"
        return True, f"its commands write {where}, {network} network: {self.status.sentence}"

    def describe(self) -> dict[str, Any]:
        return {"mode": "off" if self.is_off else "auto", **self.status.to_json()}

    def surround(self, *, readonly: bool) -> "Confined":
        return Confined(self, readonly=readonly)

    def surround_place(self, cwd: Path, *, readonly: bool) -> "Confined":
        """Return a sandbox for programs that several runs share. The caller must close it."""
        return Confined(self, readonly=readonly, cwd=cwd)

    def find_territory(self, cwd: Path, *, readonly: bool) -> Territory:
        """Return where the file tools of a run may read and write; cached per directory."""
        if self.is_off and not readonly:
            return ANYWHERE
        # Secrets stay hidden from read-only runs even if the sandbox is off: they have no commands to bypass it.
        key = (str(cwd), readonly)
        if (known := self._territories.get(key)) is None:
            known = self._territories[key] = self._survey(cwd, readonly=readonly)
        return known

    def _survey(self, cwd: Path, *, readonly: bool) -> Territory:
        from retinue.sandbox.profile import build_readonly, build_writing, expand, is_below

        wishes, workspace = self.build_wishes(), find_workspace(cwd, self.home)
        if readonly:
            reading = build_readonly(workspace, wishes)
            return Territory((), reading.secrets, exposed=reading.exposed)
        profile = build_writing(workspace, wishes)
        named = tuple(os.path.realpath(expand(path, wishes.home)) for path in wishes.writable)
        # A protected path that the user lists may be changed; protected paths inside it may not.
        granted = tuple(path for path in named if is_below(path, profile.protected))
        roots = (profile.workspace, *named)
        guarded = partial(self.survey.list_guarded, profile.grounds, profile.home)
        return Territory(roots, profile.secrets, profile.protected, granted, profile.exposed, self.survey.made, guarded)

    async def draw(self, cwd: Path, *, readonly: bool) -> "tuple[OpenConfinement | None, str]":
        """Open a sandbox and describe it in a few words; the caller must close it.

        None for a writing run without a sandbox.
        """
        from retinue.sandbox.confinement import open_sandbox
        from retinue.sandbox.profile import build_readonly, build_writing
        from retinue.sandbox.status import SandboxStatus

        status = SandboxStatus("unavailable", reason=self.judge()[1]) if self.is_off else await self.machine.find()
        if not readonly and not status.is_usable:
            self._warn(status)
            return None, OFF if self.is_off else f"none: {status.sentence}"
        build = build_readonly if readonly else build_writing
        profile = build(find_workspace(cwd, self.home), self.build_wishes())
        if profile.grounds and status.backend != "landlock":
            await asyncio.to_thread(self.survey.look, profile.grounds)
        opened = open_sandbox(status, profile, self.machine.server, self.survey)
        return opened, "; ".join((opened.summary, *opened.notes))

    async def look_ahead(self) -> None:
        """Warn if commands would have no sandbox, although none was run; skips the probe if the kernel has Landlock."""
        from retinue.sandbox.landlock import LEAST_ABI, read_abi

        if not self.is_off and read_abi() < LEAST_ABI:
            self._warn(await self.machine.find())

    def _warn(self, status: "SandboxStatus") -> None:
        if not self.is_off and not status.is_usable:
            self._tell(
                "there is no sandbox on this machine: commands of agents that may write have all your rights "
                f"({' '.join(status.reason.split())}); see retinue doctor"
            )

    def build_wishes(self) -> "SandboxSettings":
        """Return the user's settings in the form that profiles need."""
        from retinue.sandbox.profile import SandboxSettings

        own = self._settings
        return SandboxSettings(
            mode=own.mode,
            network=own.network,
            writable=tuple(own.writable),
            secrets=(*own.hidden, *self._withheld),
            exposed=self._exposed,
            environment=tuple(own.environment),
            home=str(self.home or ""),
            agent_dir=str(self._agent_dir),
            max_memory=(own.memory_mb or 0) << 20,
        )


def open_machine() -> "Machine":
    """Return a new Machine; the caller MUST close it if it opened sandboxes."""
    from retinue.sandbox.probe import Machine

    return Machine()


def try_machine() -> "Machine":
    """Return a probed and closed Machine, for reports that start no commands."""
    machine = open_machine()
    machine.look()
    machine.close()
    return machine


class Confined:
    """The sandbox of one run, opened with its first command and closed with the run."""

    name = "sandbox"

    def __init__(self, boundaries: Boundaries, *, readonly: bool, cwd: Path | None = None) -> None:
        """`cwd` is given if no run enters this feature."""
        self._boundaries = boundaries
        self._readonly = readonly
        self._cwd = cwd or Path()
        self._granted: tuple[str, ...] = ()
        self._opened: OpenConfinement | None = None
        self._reading: OpenConfinement | None = None
        self._summary = UNUSED
        self._draw = asyncio.Lock()
        """Concurrent calls of one reply must not open two sandboxes, because only one would be closed."""

    @property
    def passed(self) -> tuple[str, ...]:
        """Names from `sandbox.environment`, which apply without a sandbox, too."""
        return self._boundaries.passed

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Record where the run works; its worktree was entered before."""
        self._cwd, self._granted = setup.cwd, setup.writable
        self._summary = OFF if self._boundaries.is_off else UNUSED
        return setup.change(confinement=self, find_territory=self.find_territory)

    def find_territory(self) -> Territory:
        """Return where the file tools of the run may read and write: the same as its commands."""
        territory = self._boundaries.find_territory(self._cwd, readonly=self._readonly)
        private = () if self._opened is None else self._opened.private
        if not self._granted and not private:
            return territory
        granted, exposed = (*territory.granted, *self._granted), (*territory.exposed, *private)
        return structs.replace(territory, granted=granted, exposed=exposed)

    async def leave(self, outcome: Outcome) -> Outcome:
        """Close the sandbox and record in the outcome what the run was confined by."""
        self.close()
        if self._summary == UNUSED and not self._readonly:
            await self._boundaries.look_ahead()
        # A run in a separate process reports its sandbox itself.
        return structs.replace(outcome, sandbox=outcome.sandbox or self._summary)

    def close(self) -> None:
        for opened in (self._opened, self._reading):
            if opened is not None:
                opened.close()
        self._opened = self._reading = None

    async def open(self) -> Confinement | None:
        """Return the sandbox for a command; None if a writing run has none."""
        async with self._draw:
            if self._opened is None:
                self._opened, self._summary = await self._boundaries.draw(self._cwd, readonly=self._readonly)
            return self._opened

    async def open_readonly(self) -> Confinement | None:
        """Return a read-only sandbox for programs that only read; None if this machine supports none."""
        own = self._boundaries
        if own.is_off or not (await own.machine.find()).is_usable:
            return None
        if self._readonly:
            return await self.open()
        async with self._draw:
            if self._reading is None:
                self._reading, _ = await own.draw(self._cwd, readonly=True)
            return self._reading


def _is_ours(here: Path, folder: Path) -> bool:
    """Return whether the same user made the checkout: anyone can create one in a world-writable parent folder."""
    return folder == here or os.lstat(folder / ".git").st_uid in (os.geteuid(), os.lstat(here).st_uid)


def find_workspace(cwd: Path, home: Path | None) -> Path:
    """Return the checkout that contains a directory, or the directory itself: git must be able to write `.git`.

    A home directory that is a checkout is not the workspace of directories inside it.
    """
    from retinue.sandbox.stubs import is_stub

    here, top = Path(os.path.realpath(cwd)), None if home is None else Path(os.path.realpath(home))
    for folder in (here, *here.parents):
        if folder != here and (folder.parent == folder or (top is not None and top.is_relative_to(folder))):
            break
        if os.path.lexists(folder / ".git") and not is_stub(str(folder / ".git")) and _is_ours(here, folder):
            return folder
    return here
