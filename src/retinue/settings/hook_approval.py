"""`retinue trust --hook NAME`: one hook of a project, of its files or of its agents, and the user's decision."""

from retinue.core.errors import UsageError, quote
from retinue.settings.entry_approval import Candidate, EntryApproval
from retinue.settings.hooks import FoundHook, load_hooks, load_profile
from retinue.settings.roster import open_registry
from retinue.settings.subagents import load_crew


class HookApproval(EntryApproval):
    """One hook about which is decided."""

    kind = "hooks"

    def look(self) -> Candidate:
        """The project's hook of that name, or the user's when it runs files of the project."""
        known = self._list()
        same = [item for item in known if item.spec.name == self._name]
        found = next((item for item in same if item.is_bound), None)
        if found is not None:
            return Candidate(found.spec.name, found.spec.path, found.state, found.entry)
        if same:
            raise UsageError(f"hook {quote(self._name)} is your own: it needs no approval")
        raise UsageError(self.explain_missing("hook", [item.spec.name for item in known if item.is_bound]))

    def _list(self) -> list[FoundHook]:
        """The hooks of the files, and those of agents; a project's agents have theirs as `agent/hook`."""
        crew = load_crew(self._paths, self._environment, trusted=True).settings
        agents = open_registry(self._paths, crew, trusted=True).read().definitions
        profiles = [each for each in agents if each.hooks]
        return [
            *load_hooks(self._paths, trusted=True).found,
            *(item for each in profiles for item in load_profile(self._paths, each, trusted=True).found),
        ]
