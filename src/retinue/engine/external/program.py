"""Finds the program of a child process and builds its environment.

Nothing is loaded from the workspace, neither a program nor a Python module. MUST NOT know runs.
"""

import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from retinue.core.environment import CHILD, select
from retinue.core.errors import RetinueError, quote
from retinue.core.model import ModelInfo
from retinue.sandbox.profile import is_below
from retinue.tools.process_tree import find_program


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What the child processes of one main agent are started with."""

    environment: Mapping[str, str]
    """Our environment; a child gets a part of it."""
    workspace: Path
    pi_command: str = "pi"
    """A name on PATH or an absolute path."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Variables that tell every child what it may do."""
    export_key: Callable[[ModelInfo], Mapping[str, str]] = lambda info: {}
    """Returns the variables with the key of a model."""
    export_tools: Callable[[Collection[str]], Mapping[str, str]] = lambda tools: {}
    """Returns the variables with the keys of our tools."""
    trusted: bool | None = False
    """Whether the project's configuration is used; None if undecided, then the child decides itself."""
    private_tools: frozenset[str] = frozenset()
    """Tools that exist in this process only."""

    def find_command(self, runner: str, cwd: Path) -> list[str]:
        """Return the start of the command line. Raises RetinueError if there is no such program."""
        if runner == "pi":
            return [self._find_pi(cwd)]
        # `-P`: nothing is imported from the working directory.
        return [sys.executable, "-P", "-m", "retinue"]

    def build_environment(
        self, info: ModelInfo, marks: Mapping[str, str], cwd: Path, tools: Collection[str] = ()
    ) -> dict[str, str]:
        """Return the environment of a child. Its only secrets are the keys of its provider and of its `tools`."""
        path = os.pathsep.join(self._list_folders(cwd))
        return {
            **select(self.environment, CHILD, with_passwords=True),
            "PATH": path,
            "PWD": str(cwd),
            **self.export_key(info),
            **self.export_tools(tools),
            **self.marks,
            **marks,
        }

    def _find_pi(self, cwd: Path) -> str:
        wanted = os.path.expanduser(self.pi_command)
        if os.sep in wanted:
            if not os.path.isabs(wanted):
                raise RetinueError(f"piCommand {quote(wanted)} is a relative path; give a name or an absolute path")
            if not os.access(wanted, os.X_OK) or not os.path.isfile(wanted):
                raise RetinueError(f"piCommand {quote(wanted, 300)} is not an executable program")
            return wanted
        if found := find_program(wanted, self._list_folders(cwd)):
            return found
        raise RetinueError(
            f"there is no program {quote(wanted)} in the absolute directories of PATH outside the workspace; "
            "install pi (npm install -g @earendil-works/pi-coding-agent) or name it by piCommand in subagents.json"
        )

    def _list_folders(self, cwd: Path) -> list[str]:
        """Return the PATH directories into which a repository cannot have put programs."""
        ours = [os.path.realpath(self.workspace), os.path.realpath(cwd)]
        folders = self.environment.get("PATH", os.defpath).split(os.pathsep)
        return [folder for folder in folders if os.path.isabs(folder) and not is_below(os.path.realpath(folder), ours)]
