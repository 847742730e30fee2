"""What was read for one Retinue: settings, trust, prompt files, and the agents of the folder when somebody asks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retinue.settings.context import PromptFiles
from retinue.settings.layers import Loaded
from retinue.settings.paths import Paths
from retinue.settings.subagents import LoadedCrew

if TYPE_CHECKING:
    from retinue.app.guarding import Guarding
    from retinue.settings.roster import Roster


@dataclass(slots=True)
class World:
    """Everything the user has configured that matters here."""

    paths: Paths
    loaded: Loaded
    crew: LoadedCrew
    files: PromptFiles
    keeps_children: bool = True
    """Whether runs leave a session although the main agent leaves none."""
    has_session: bool = True
    """Whether the main agent keeps a session; what belongs to one, such as schedules, is not offered without."""
    surfaces: Sequence[str] = ()
    """Those whose tools the main agent and its crew may have."""
    _roster: "Roster | None" = None
    _guarding: "Guarding | None" = None

    @property
    def is_trusted(self) -> bool:
        """Whether the project's own configuration counts."""
        return self.loaded.trust.trusted

    @property
    def guarding(self) -> "Guarding":
        """What stands around the runs."""
        assert self._guarding is not None, "nobody guards this world"
        return self._guarding

    @guarding.setter
    def guarding(self, guarding: "Guarding") -> None:
        self._guarding = guarding

    @property
    def roster(self) -> "Roster":
        """The agents of this folder, read when first asked for."""
        if self._roster is None:
            from retinue.settings.roster import Roster

            self._roster = Roster(self.paths, self.loaded, self.crew.settings)
        return self._roster
