"""Creates, copies, edits, enables, disables and deletes agent files at the user's request.

The roster decides which agents exist and what they may use.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from retinue.core.definition import FOREIGN, Definition, Dialect, FieldReport
from retinue.core.errors import ConfigError, RetinueError, UsageError, quote
from retinue.core.pattern import late_pattern
from retinue.core.tool_table import BUILTIN_TOOLS
from retinue.definitions.discover import PARSERS
from retinue.definitions.edit import (
    FieldValue,
    check_name,
    delete_definition,
    render_definition,
    set_enabled,
    write_definition,
)
from retinue.definitions.tools_field import list_unknown
from retinue.settings.consent import load_accepted
from retinue.settings.entry_approval import accept_file, is_agent_file
from retinue.settings.files import read_text
from retinue.settings.roster import Roster
from retinue.settings.switches import load_switches
from retinue.tools.atomic_write import replace_file

MAX_BYTES = 500_000
_FENCED = late_pattern(r"```[a-z]*\n(---\n.*?\n)```", re.DOTALL)


def read_agent_file(path: str) -> str:
    """Read an agent file. Raises ConfigError."""
    if not Path(path).exists():
        raise ConfigError(f"{path}: no longer exists")
    return read_text(Path(path), MAX_BYTES)


def write_agent_file(path: str, text: str) -> None:
    """Replace a file atomically; through a link, the file it points to. Raises ConfigError."""
    try:
        replace_file(str(Path(path).resolve()), text.encode(), sync=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {(error.strerror or 'unknown').lower()}") from None


def check_agent_file(text: str, path: str, dialect: Dialect) -> list[str]:
    """Return warnings about the text of an agent file. Raises ConfigError if it is not an agent file."""
    definition, problems = PARSERS[dialect](text, path, "user")
    if definition is None:
        reason = problems[0].message if problems else f"{path}: is not an agent file"
        raise ConfigError(f"{reason}; expected frontmatter between two lines of ---, and instructions below")
    return [problem.message for problem in problems]


def find_agent_file(answer: str) -> str:
    """Extract the agent file from a model's answer; empty if there is none."""
    fenced = _FENCED.search(answer)
    text = fenced[1] if fenced else answer.strip()
    start = text.find("---\n")
    if start < 0 or text.count("\n---", start) < 1:
        return ""
    return text[start:].strip() + "\n"


_STUB = "Switched off. `retinue agents enable {name}` removes this file."


class AgentFiles:
    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._paths = roster.paths
        self._trust = roster.trust
        self._made: set[str] = set()
        """Files created by this object."""

    def read_text(self, name: str) -> str:
        """Return the text of an agent's file. Raises RetinueError."""
        return read_agent_file(self._roster.find(name).path)

    def rewrite(self, name: str, text: str) -> list[str]:
        """Replace the text of an agent's file and return warnings about it. Raises RetinueError."""
        definition = self._find_changeable(name)
        if definition.source == "builtin":
            remedy = f"to change it, first run: retinue agents eject {definition.name}"
            raise UsageError(f"{quote(definition.name)} is built in; {remedy}")
        remarks = check_agent_file(text, definition.path, definition.dialect)
        self._change(definition.path, lambda: write_agent_file(definition.path, text))
        return remarks

    def check_new(self, name: str, *, in_project: bool) -> None:
        """Raises UsageError if an agent of this name cannot be created."""
        check_name(name)
        folder = self._find_folder(in_project=in_project)
        if (folder / f"{name}.md").exists():
            raise UsageError(f"{folder / name}.md exists already; edit or delete it")

    def check_tools(self, text: str) -> None:
        """Raises UsageError if one of these names, separated by commas, is that of no tool."""
        names = [word.strip() for word in text.split(",")]
        if unknown := list_unknown(name for name in names if name.lower() not in ("", "*", "all", "none")):
            raise UsageError(f"{unknown[0]}; the builtin tools are {', '.join(BUILTIN_TOOLS)}")

    def adopt(self, name: str, text: str, *, in_project: bool) -> str:
        """Write a text as a new agent file and return its path. Raises RetinueError if it is not an agent file."""
        check_name(name)
        folder = self._find_folder(in_project=in_project)
        check_agent_file(text, str(folder / f"{name}.md"), "pi")
        return self._write(str(folder), name, text)

    def create(self, name: str, fields: Mapping[str, FieldValue | None], prompt: str, *, in_project: bool) -> str:
        """Write a new agent file from fields and prompt; returns its path. Raises RetinueError."""
        check_name(name)
        if not prompt.strip():
            raise UsageError("the agent has no instructions; give them with --prompt, or --prompt - for standard input")
        self.check_tools(str(fields.get("tools") or ""))
        return self._write(str(self._find_folder(in_project=in_project)), name, render_definition(fields, prompt))

    def eject(self, name: str, *, in_project: bool) -> str:
        """Copy a packaged agent to where the user can edit it; returns the path. Raises RetinueError."""
        definition = self._roster.find(name)
        if definition.source != "builtin":
            raise UsageError(f"{quote(definition.name)} already has a file: {definition.path}")
        folder = self._find_home(definition.dialect, in_project=in_project)
        return self._write(str(folder), definition.name, Path(definition.path).read_text(encoding="utf-8"))

    def convert(self, name: str, target: str, *, in_project: bool) -> tuple[str, tuple[FieldReport, ...]]:
        """Write an agent's file for another tool; returns its path and a report. Never replaces a file.

        Raises RetinueError.
        """
        from retinue.definitions.convert import TARGETS, convert_agent

        if target not in TARGETS:
            problem = f"unknown dialect {quote(target)}" if target else "the dialect to convert to is missing"
            raise UsageError(f"{problem}; give --to one of {', '.join(TARGETS)}")
        definition = self._roster.find(name)
        made = convert_agent(definition, target)
        folder = self._find_foreign(target, in_project=in_project)
        try:
            path = write_definition(str(folder), definition.name, made.text, made.suffix)
        except UsageError as error:
            raise RetinueError(str(error)) from None
        self._made.add(path)
        return path, made.reports

    def _find_foreign(self, target: str, *, in_project: bool) -> Path:
        if target == "pi":
            return self._find_folder(in_project=in_project)
        if in_project:
            self._check_trust()
            folder = ".github" if target == "copilot" else f".{target}"
            return _check_links(self._paths.project / folder / "agents")
        if self._paths.home is None:
            raise UsageError("there is no home directory; set HOME, or use --project")
        return self._paths.home / (".config/opencode" if target == "opencode" else f".{target}") / "agents"

    def enable(self, name: str) -> str:
        """Enable an agent; returns the file that was changed or removed. Raises RetinueError."""
        definition = self._find_changeable(name)
        if definition.enabled:
            raise UsageError(f"{quote(definition.name)} is already enabled")
        switches, _ = load_switches(self._paths, trusted=self._trust.trusted)
        if switches.is_agent_off(definition.name):
            reason = switches.broken or "see disabledAgents there"
            raise UsageError(f"{quote(definition.name)} is disabled in .codingcode/config.yaml ({reason})")
        if _is_stub(definition):
            delete_definition(definition)
        else:
            self._change(definition.path, lambda: set_enabled(definition, enabled=True))
        if not self._roster.find(name).enabled:
            raise ConfigError(f"{definition.path}: {quote(name)} is still disabled; see retinue agents show {name}")
        return definition.path

    def disable(self, name: str, *, in_project: bool) -> str:
        """Disable an agent in its file, or a packaged or foreign one by a stub file; returns that file.

        Raises RetinueError.
        """
        definition = self._roster.find(name)
        if definition.dialect in FOREIGN:
            # A file of ours at the same level hides the other tool's.
            in_project = definition.source == "project"
        else:
            definition = self._find_changeable(name)
        if not definition.enabled:
            raise UsageError(f"{quote(definition.name)} is already disabled")
        if definition.source != "builtin" and definition.dialect not in FOREIGN:
            self._change(definition.path, lambda: set_enabled(definition, enabled=False))
            return definition.path
        if definition.dialect == "codingcode":
            raise UsageError(
                f"{quote(definition.name)} can only be disabled in .codingcode/config.yaml (disabledAgents)"
            )
        own: dict[str, FieldValue | None] = {
            "name": definition.name,
            "description": definition.description,
            "enabled": False,
        }
        text = render_definition(own, _STUB.format(name=definition.name))
        return self._write(str(self._find_folder(in_project=in_project)), definition.name, text)

    def delete(self, name: str) -> str:
        """Delete an agent's file; returns its path. Raises RetinueError."""
        definition = self._find_changeable(name)
        delete_definition(definition)
        return definition.path

    def _find_changeable(self, name: str) -> Definition:
        definition = self._roster.find(name)
        if definition.dialect in FOREIGN:
            remedy = f"change it there, or run: retinue agents convert {definition.name} --to pi"
            raise UsageError(f"{quote(definition.name)} is an agent of another tool ({definition.path}); {remedy}")
        if definition.source == "project":
            self._check_trust()
        return definition

    def _find_folder(self, *, in_project: bool) -> Path:
        if not in_project:
            return self._paths.agent_dir / "agents"
        self._check_trust()
        # The folder that this project already uses, else pi's.
        folders = (self._paths.project / ".pi" / "agents", self._paths.project / ".agents")
        return _check_links(next((folder for folder in folders if folder.is_dir()), folders[0]))

    def needs_consent(self, path: str) -> bool:
        """Return whether a file that was just created needs the user's acceptance to be used after the next start."""
        if path not in self._made or not is_agent_file(self._paths, path):
            return False
        is_read = any(item.path == path for item in self._roster.read().definitions)
        return not is_read or self._trust.reason == "--approve"

    def accept(self, path: str) -> None:
        """Accept a file's current content, although the project is not trusted. Raises RetinueError."""
        accept_file(self._paths, Path(path))

    def is_accepted(self, path: str) -> bool:
        return path in load_accepted(self._paths)

    def _write(self, folder: str, name: str, text: str) -> str:
        path = write_definition(folder, name, text)
        self._made.add(path)
        return path

    def _change(self, path: str, change: Callable[[], object]) -> None:
        """Change a file; one that the user had accepted stays accepted."""
        was_accepted = self.is_accepted(path)
        change()
        if was_accepted:
            self.accept(path)

    def _check_trust(self) -> None:
        if not (self._trust.trusted or self._trust.is_open):
            folder = quote(str(self._paths.project), 200)
            raise UsageError(f"{folder} is not trusted, so its agents are not changed; see retinue trust --help")

    def _find_home(self, dialect: Dialect, *, in_project: bool) -> Path:
        """Return the folder for files of a dialect, because the folder decides how a file is parsed."""
        if dialect == "pi":
            return self._find_folder(in_project=in_project)
        if dialect == "sticky":
            if in_project:
                raise UsageError("a sticky agent cannot be in a project; use --user")
            return self._paths.agent_dir / "subagents"
        if in_project:
            self._check_trust()
        base = self._paths.project if in_project else self._paths.home
        if base is None:
            raise UsageError("there is no home directory; set HOME, or use --project")
        folder = base / ".codingcode" / "agents"
        return _check_links(folder) if in_project else folder


def _check_links(folder: Path) -> Path:
    """Refuse a linked folder in a project: an agent could have made the link to choose where we write."""
    # The parent of `.agents` is the project itself.
    parts = (folder,) if folder.name.startswith(".") else (folder.parent, folder)
    if link := next(filter(Path.is_symlink, parts), None):
        raise UsageError(f"{link} is a link, and agents are not written through links; replace it with a folder")
    return folder


def _is_stub(definition: Definition) -> bool:
    """Return whether a file only disables a packaged agent: our stub, or one of pi's extension."""
    try:
        text = Path(definition.path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    body = text.rpartition("\n---")[2].strip()
    is_ours = body == _STUB.format(name=definition.name)
    return set(definition.lines) <= {"name", "description", "enabled"} and (is_ours or not body)
