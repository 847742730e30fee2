"""Where other tools keep agents and the rules that restrict them, and which plugins of Claude Code are installed.

Reads the lists of plugins only.
"""

import os
from pathlib import Path
from typing import NamedTuple

from retinue.core.definition import Foreign
from retinue.core.strictjson import JsonError, parse_json


class ForeignPlace(NamedTuple):
    """Where another tool keeps agents, relative to the project or to the home directory."""

    dialect: Foreign
    path: str
    is_users: bool = False
    suffixes: tuple[str, ...] = (".md",)
    is_deep: bool = False


OPENCODE = ("opencode.json", "opencode.jsonc")
FOREIGN_PLACES = (
    ForeignPlace("claude", ".claude/agents", is_deep=True),
    ForeignPlace("claude", ".claude/agents", is_users=True, is_deep=True),
    ForeignPlace("codex", ".codex/agents", suffixes=(".toml",)),
    ForeignPlace("codex", ".codex/agents", is_users=True, suffixes=(".toml",)),
    *(ForeignPlace("opencode", f".opencode/{name}", is_deep=True) for name in ("agents", "agent")),
    *(ForeignPlace("opencode", path) for name in OPENCODE for path in (name, f".opencode/{name}")),
    *(ForeignPlace("opencode", f".config/opencode/{name}", True, is_deep=True) for name in ("agents", "agent")),
    *(ForeignPlace("opencode", f".config/opencode/{name}", is_users=True) for name in OPENCODE),
    ForeignPlace("cursor", ".cursor/agents"),
    ForeignPlace("cursor", ".cursor/agents", is_users=True),
    ForeignPlace("copilot", ".github/agents"),
    ForeignPlace("copilot", ".copilot/agents", is_users=True),
    ForeignPlace("gemini", ".gemini/agents"),
    ForeignPlace("gemini", ".gemini/agents", is_users=True),
)
"""Within one level, in order of precedence."""
RULE_FILES = (
    ForeignPlace("claude", ".claude/settings.json"),
    ForeignPlace("claude", ".claude/settings.local.json"),
    ForeignPlace("claude", ".claude/settings.json", is_users=True),
    ForeignPlace("claude", "/etc/claude-code/managed-settings.json", is_users=True),
    ForeignPlace("codex", ".codex/config.toml"),
    ForeignPlace("codex", ".codex/config.toml", is_users=True),
    *(ForeignPlace("opencode", path) for name in OPENCODE for path in (name, f".opencode/{name}")),
    *(ForeignPlace("opencode", f".config/opencode/{name}", is_users=True) for name in OPENCODE),
    ForeignPlace("cursor", ".cursor/cli.json"),
    ForeignPlace("cursor", ".cursor/cli-config.json", is_users=True),
    ForeignPlace("gemini", ".gemini/settings.json"),
    ForeignPlace("gemini", ".gemini/settings.json", is_users=True),
)
"""Files whose rules restrict the agents of a tool."""
PLUGINS = ".claude/plugins/installed_plugins.json"
_SETTINGS = (".claude/settings.json", ".claude/settings.local.json")


def list_plugins(home: Path, project: Path) -> list[str]:
    """The folders and files of agents of Claude Code's plugins, except those that settings switch off."""
    installed = _load_object(os.path.join(home, PLUGINS)).get("plugins")
    switches = [
        _load_object(os.path.join(home, _SETTINGS[0])),
        *(_load_object(os.path.join(project, name)) for name in _SETTINGS),
    ]
    off = {
        name
        for settings in switches
        if isinstance(enabled := settings.get("enabledPlugins"), dict)
        for name, is_on in enabled.items()
        if is_on is not True
    }
    found: list[str] = []
    for name, entry in installed.items() if isinstance(installed, dict) else ():
        for item in (entry if isinstance(entry, list) else [entry]) if name not in off else ():
            path = item.get("installPath") if isinstance(item, dict) else None
            if isinstance(path, str) and os.path.isabs(path) and item.get("projectPath") in (None, "", str(project)):
                found += _list_agents(path)
    return list(dict.fromkeys(found))


def _list_agents(plugin: str) -> list[str]:
    """The places of a plugin's agents: `agents`, and what its manifest names inside the plugin."""
    named = _load_object(os.path.join(plugin, ".claude-plugin", "plugin.json")).get("agents")
    words = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    paths = [os.path.normpath(os.path.join(plugin, word)) for word in words if isinstance(word, str)]
    return [os.path.join(plugin, "agents"), *(path for path in paths if path.startswith(f"{plugin.rstrip('/')}/"))]


def _load_object(path: str) -> dict[str, object]:
    if not os.path.isfile(path):
        return {}
    try:
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            return parse_json(file.read(1_000_000), where=path, comments=True)
    except (OSError, JsonError):
        return {}
