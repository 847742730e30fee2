"""Decides which session files may be trusted with what they say about folders and runs.

Resuming a session continues in the folder it names and with the runs it lists, including their paths. A session written
by someone else would choose all of that. Must not know what the entries mean.
"""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from retinue.sessions.files import make_private

_MOST, _KEPT_S = 500, 90 * 86_400


class TrustedSessions:
    """Trusts sessions in the agent directory, which no agent can write, and in the user's session directory.

    A session elsewhere is trusted if it was seen before it contained anything to trust. One inside the project never
    is: its agents write there, and a clone may bring a session.
    """

    def __init__(self, own_dir: Path, agent_dir: Path, project: Path, directory: Path) -> None:
        """`directory` holds new sessions; `own_dir` records which sessions elsewhere were seen."""
        self._folder = own_dir / "sessions-elsewhere"
        self._project = os.path.realpath(project)
        self._stores = [os.path.realpath(agent_dir)]
        if not Path(os.path.realpath(directory)).is_relative_to(self._project):
            self._stores.append(os.path.realpath(directory))

    def judge(self, path: Path, session_id: str, folder: Path, *, is_fresh: bool) -> bool:
        """Return whether a session is trusted; a fresh one has no runs yet and is recorded as trusted.

        `folder` is the actual working folder, whatever the session says.
        """
        real = Path(os.path.realpath(path))
        if _is_foreign(real) or self._is_kept(real):
            return not _is_foreign(real)
        if real.is_relative_to(self._project):
            return is_fresh
        if is_fresh:
            self._note(self._find_record(real), f"{session_id}\n{folder}")
            return True
        return self._read(real).partition("\n")[0] == session_id

    def believes_folder(self, path: Path, session_id: str, folder: str) -> bool:
        """Return whether a session may choose its folder: a trusted session, or one seen at work in that folder."""
        real = Path(os.path.realpath(path))
        return not _is_foreign(real) and (self._is_kept(real) or self._read(real) == f"{session_id}\n{folder}")

    def _is_kept(self, real: Path) -> bool:
        return any(real.is_relative_to(store) for store in self._stores)

    def _find_record(self, real: Path) -> Path:
        return self._folder / hashlib.sha256(os.fsencode(real)).hexdigest()[:32]

    def _read(self, real: Path) -> str:
        with suppress(OSError, UnicodeDecodeError):
            return "" if real.is_relative_to(self._project) else self._find_record(real).read_text(encoding="utf-8")
        return ""

    def _note(self, record: Path, text: str) -> None:
        # Without a record the session still works, but its runs are not resumed later.
        with suppress(OSError):
            make_private(self._folder)
            self._forget_old()
            handle = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)

    def _forget_old(self) -> None:
        records = list(self._folder.iterdir())
        for each in records if len(records) >= _MOST else ():
            if time.time() - each.stat().st_mtime > _KEPT_S:
                each.unlink(missing_ok=True)


def _is_foreign(real: Path) -> bool:
    """Return whether another user owns a file; root and missing files do not count."""
    with suppress(OSError):
        return os.stat(real).st_uid not in (os.geteuid(), 0)
    return False
