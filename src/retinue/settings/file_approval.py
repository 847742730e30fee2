"""`retinue trust --file PATH` and `--extension PATH`: one file that is used only as the user has seen it."""

import os
from pathlib import Path

from msgspec.structs import replace

from retinue.core.errors import UsageError, quote
from retinue.settings.consent import Consents, Kind, State, describe_content, save_consent
from retinue.settings.entry_approval import Candidate, EntryApproval
from retinue.settings.paths import Paths, expand_path

MAX_BYTES = 1 << 20
AGENT_FOLDERS = (".pi/agents", ".agents", ".codingcode/agents")
SETTINGS_FILE = os.path.join(".pi", "subagents.json")


class FileApproval(EntryApproval):
    """One agent or settings file of the project, which may be used although the project is not trusted."""

    kind: Kind = "files"
    _text = ""

    def look(self) -> Candidate:
        """The file as it is now."""
        path = self._find_path()
        name = os.path.relpath(path, self._paths.project)
        if not is_agent_file(self._paths, path) and name != SETTINGS_FILE:
            places = ", ".join(AGENT_FOLDERS)
            text = f"is neither an agent file of this project ({places}) nor {SETTINGS_FILE}"
            raise UsageError(f"{quote(self._name, 200)} {text}")
        return self._describe_file(name, path)

    def describe(self) -> tuple[str, list[str]]:
        """A line about it, and what is in it."""
        return super().describe()[0], self._text.splitlines()

    def _find(self) -> Candidate:
        return self.look()

    def _find_path(self) -> Path:
        return expand_path(self._name, self._paths.home, self._paths.cwd, f"--{self.kind[:-1]}")

    def _describe_file(self, name: str, path: Path) -> Candidate:
        data = read_file(path)
        self._text = data.decode("utf-8", "replace")
        entry = describe_content(data)
        return Candidate(name, str(path), Consents(self._paths, self.kind, []).judge(name, entry), entry)


class ExtensionApproval(FileApproval):
    """One extension that an agent file names by its path."""

    kind: Kind = "extensions"

    def look(self) -> Candidate:
        """The file as it is now."""
        path = Path(os.path.realpath(self._find_path()))
        self._paths = find_owner(self._paths, path)
        return self._describe_file(str(path), path)

    def _find(self) -> Candidate:
        if self._trust.trusted or not _is_inside(self._find_path(), self._paths.project):
            return self.look()
        return super(FileApproval, self)._find()  # which says what to do first


def judge_extension(paths: Paths, path: str, data: bytes) -> str:
    """Why an extension that an agent file names by its path is not loaded as it is; empty when it is."""
    place = Path(os.path.realpath(path))
    # Agents cannot write there, but for what is ours.
    if _is_inside(place, paths.agent_dir) and not _is_inside(place, paths.own_dir):
        return ""
    state: State = Consents(find_owner(paths, place), "extensions", []).judge(str(place), describe_content(data))
    if state == "ready":
        return ""
    problem = "has changed since you approved it" if state == "changed" else "is not approved"
    return f"{problem}; read it, then: retinue trust --extension {quote(str(place), 400)} --yes"


def find_owner(paths: Paths, path: Path) -> Paths:
    """Where an approval of a file is kept: with its project, or for a file from elsewhere with its own folder."""
    return paths if _is_inside(path, paths.project) else replace(paths, project=path.parent)


def is_agent_file(paths: Paths, path: str | Path) -> bool:
    """Whether a file lies where agents of the project do."""
    return os.path.relpath(os.path.dirname(path), paths.project) in AGENT_FOLDERS


def accept_file(paths: Paths, path: Path) -> None:
    """Use an agent file of the project as it is now. Raises UsageError or ConfigError."""
    save_consent(paths, "files", os.path.relpath(path, paths.project), describe_content(read_file(path)))


def read_file(path: Path) -> bytes:
    """What a regular file holds, which is no link. Raises UsageError."""
    shown = quote(str(path), 200)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
        with open(handle, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{shown} has more than {MAX_BYTES} bytes")
    return data


def _is_inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
