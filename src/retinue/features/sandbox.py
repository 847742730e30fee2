"""Draws the boundary of each run's commands: read-only or its workspace, by what this machine can enforce.

Nothing is tried before somebody needs to know. A read-only run never goes without; a writing one does where the user
says so, or where the machine can enforce nothing, and its record tells.
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

if TYPE_CHECKING:  # a run that starts no command pays for none of it
    from retinue.sandbox.confinement import OpenConfinement
    from retinue.sandbox.probe import Machine
    from retinue.sandbox.profile import Sandbox, SandboxWishes
    from retinue.sandbox.status import SandboxStatus
    from retinue.sandbox.survey import Survey

OFF = "off (sandbox.mode)"
UNUSED = "no command was run"


class Boundaries:
    """What this machine can enforce for this user; one object for all runs of a process."""

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
        """`withheld` is hidden whatever the settings say, but for what is `exposed` in it.

        `tell` hears it, maybe more than once, when somebody who may write goes without a boundary that nobody has
        switched off.
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
        """Whether the user has switched it off."""
        return bool(self._settings.mode == "off")

    @property
    def passed(self) -> tuple[str, ...]:
        """Names of variables that the user lets commands have."""
        return tuple(self._settings.environment)

    @property
    def status(self) -> "SandboxStatus":
        """What was found out; the first who asks waits some milliseconds."""
        return self.machine.look()

    def judge(self) -> tuple[bool, str]:
        """Whether read-only commands can be run, and why not."""
        if self.is_off:
            return False, "sandbox.mode is off in the user's settings"
        return self.status.is_usable, self.status.reason

    def foretell(self, *, readonly: bool) -> tuple[bool, str]:
        """Whether commands of a run will have a boundary, and which, for a person."""
        if self.is_off or not self.status.is_usable:
            return False, f"its commands have no boundary: {self.judge()[1]}"
        network = "with" if self._settings.network and not readonly else "without"
        where = "in $TMPDIR only" if readonly else "in the workspace"
        return True, f"its commands write {where}, {network} network: {self.status.sentence}"

    def describe(self) -> dict[str, Any]:
        """For programs."""
        return {"mode": "off" if self.is_off else "auto", **self.status.to_json()}

    def surround(self, *, readonly: bool) -> "Confined":
        """The boundary of one run."""
        return Confined(self, readonly=readonly)

    def surround_place(self, cwd: Path, *, readonly: bool) -> "Confined":
        """The boundary of what is started in a place for more than one run. Close it."""
        return Confined(self, readonly=readonly, cwd=cwd)

    def find_territory(self, cwd: Path, *, readonly: bool) -> Territory:
        """Where the file tools of a run that works somewhere may go; worked out once for each place."""
        if self.is_off and not readonly:
            return ANYWHERE
        # A reader has no command that could go where its tools may not: what is hidden stays so, whatever is off.
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
        # What the user names may be changed also where it would be protected; what lies in it and is, may not.
        granted = tuple(path for path in named if is_below(path, profile.protected))
        roots = (profile.workspace, *named)
        guarded = partial(self.survey.list_guarded, profile.grounds, profile.home)
        return Territory(roots, profile.secrets, profile.protected, granted, profile.exposed, self.survey.made, guarded)

    async def draw(self, cwd: Path, *, readonly: bool) -> "tuple[OpenConfinement | None, str]":
        """The boundary of what works somewhere, for whoever closes it, and what it is in a few words.

        None where somebody who may write has none.
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
        """Say that commands would have no boundary, although none was run; nothing is tried where Landlock is."""
        from retinue.sandbox.landlock import LEAST_ABI, read_abi

        if not self.is_off and read_abi() < LEAST_ABI:
            self._warn(await self.machine.find())

    def _warn(self, status: "SandboxStatus") -> None:
        if not self.is_off and not status.is_usable:
            self._tell(
                "there is no sandbox on this machine: commands of agents that may write have all your rights "
                f"({' '.join(status.reason.split())}); retinue doctor says more"
            )

    def build_wishes(self) -> "SandboxWishes":
        """What the user settled, for a profile."""
        from retinue.sandbox.profile import SandboxWishes

        own = self._settings
        return SandboxWishes(
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
    """One that belongs to whoever asks; it MUST be closed when it has opened boundaries."""
    from retinue.sandbox.probe import Machine

    return Machine()


def try_machine() -> "Machine":
    """One that has tried what it can do, and holds nothing: for reports, which start no commands."""
    machine = open_machine()
    machine.look()
    machine.close()
    return machine


class Confined:
    """The boundary of one run, opened with its first command and closed with the run."""

    name = "sandbox"

    def __init__(self, boundaries: Boundaries, *, readonly: bool, cwd: Path | None = None) -> None:
        """`cwd` is known beforehand where it is entered by no run."""
        self._boundaries = boundaries
        self._readonly = readonly
        self._cwd = cwd or Path()
        self._granted: tuple[str, ...] = ()
        self._opened: OpenConfinement | None = None
        self._reading: OpenConfinement | None = None
        self._summary = UNUSED
        self._draw = asyncio.Lock()
        """Calls of one reply come at once, and what two of them opened would be closed once."""

    @property
    def passed(self) -> tuple[str, ...]:
        """What the user names in `sandbox.environment`, which counts without a boundary too."""
        return self._boundaries.passed

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Remember where the run works: a private copy is entered before."""
        self._cwd, self._granted = setup.cwd, setup.writable
        self._summary = OFF if self._boundaries.is_off else UNUSED
        return setup.change(confinement=self, find_territory=self.find_territory)

    def find_territory(self) -> Territory:
        """Where the file tools of the run may go: as far as its commands."""
        territory = self._boundaries.find_territory(self._cwd, readonly=self._readonly)
        private = () if self._opened is None else self._opened.private
        if not self._granted and not private:
            return territory
        granted, exposed = (*territory.granted, *self._granted), (*territory.exposed, *private)
        return structs.replace(territory, granted=granted, exposed=exposed)

    async def leave(self, outcome: Outcome) -> Outcome:
        """Remove what was private to the run, and put on record what it ran in."""
        self.close()
        if self._summary == UNUSED and not self._readonly:
            await self._boundaries.look_ahead()
        # A run in a process of its own says itself what it was confined by.
        return structs.replace(outcome, sandbox=outcome.sandbox or self._summary)

    def close(self) -> None:
        """Remove what was private to it."""
        for opened in (self._opened, self._reading):
            if opened is not None:
                opened.close()
        self._opened = self._reading = None

    async def open(self) -> Confinement | None:
        """The boundary for a command; None where a writing run has none."""
        async with self._draw:
            if self._opened is None:
                self._opened, self._summary = await self._boundaries.draw(self._cwd, readonly=self._readonly)
            return self._opened

    async def open_readonly(self) -> Confinement | None:
        """The boundary of what reads for the run and has nothing to change; None where this machine draws none."""
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
    """Whether a checkout above a directory is by its owner: anybody can make one in a folder that all may write."""
    return folder == here or os.lstat(folder / ".git").st_uid in (os.geteuid(), os.lstat(here).st_uid)


def find_workspace(cwd: Path, home: Path | None) -> Path:
    """The checkout that a directory is in, or itself: git must be able to write its own directory.

    A home directory that is a checkout is not the workspace of what lies in it.
    """
    from retinue.sandbox.stubs import is_stub

    here, top = Path(os.path.realpath(cwd)), None if home is None else Path(os.path.realpath(home))
    for folder in (here, *here.parents):
        if folder != here and (folder.parent == folder or (top is not None and top.is_relative_to(folder))):
            break
        if os.path.lexists(folder / ".git") and not is_stub(str(folder / ".git")) and _is_ours(here, folder):
            return folder
    return here
