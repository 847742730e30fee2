"""`retinue trust --mcp NAME`: one server of a project, and the user's decision."""

from retinue.core.errors import UsageError, quote
from retinue.settings.entry_approval import Candidate, EntryApproval
from retinue.settings.mcp import load_servers


class ServerApproval(EntryApproval):
    """One server about which is decided."""

    kind = "mcp"

    def look(self) -> Candidate:
        """The project's server of that name, or the user's when it runs files of the project."""
        servers = load_servers(self._paths, self._environment, trusted=True)
        found = servers.find(self._name)
        if found is None:
            broken = next((each.message for each in servers.diagnostics if each.field.split(".")[0] == self._name), "")
            names = [item.server.name for item in servers.found if item.server.level == "project"]
            raise UsageError(broken or self.explain_missing("MCP server", names))
        if not found.is_bound:
            raise UsageError(f"server {quote(self._name)} is your own ({found.server.path}): it needs no approval")
        return Candidate(found.server.name, found.server.path, found.state, found.entry)
