"""Which sessions nobody else could have written: only there what is said of runs is more than text.

A session that is opened goes on with the runs it tells of: where they work, where they keep their files. One that
somebody else wrote would choose all of that. Must not know what the entries mean.
"""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from retinue.sessions.files import make_private
from retinue.settings.paths import Paths

_MOST, _KEPT_S = 500, 90 * 86_400


class Vouchers:
    """Ours are those in the agent's directory, which no agent can write, and where the user has sessions kept.

    One by its path elsewhere is ours when we saw it before anything was in it that could be believed; in the project
    never, since its agents write there and a clone may bring one.
    """

    def __init__(self, paths: Paths, directory: Path) -> None:
        """`directory` is where new sessions go."""
        self._folder = paths.own_dir / "sessions-elsewhere"
        self._project = os.path.realpath(paths.project)
        self._stores = [os.path.realpath(paths.agent_dir)]
        if not Path(os.path.realpath(directory)).is_relative_to(self._project):
            self._stores.append(os.path.realpath(directory))

    def judge(self, path: Path, session_id: str, *, is_fresh: bool) -> bool:
        """Whether a session is ours; one that is `fresh` has nothing to believe yet, and will be."""
        real = Path(os.path.realpath(path))
        if any(real.is_relative_to(store) for store in self._stores):
            return True
        if real.is_relative_to(self._project):
            return is_fresh
        record = self._folder / hashlib.sha256(os.fsencode(real)).hexdigest()[:32]
        if is_fresh:
            self._note(record, session_id)
            return True
        with suppress(OSError):
            return record.read_text(encoding="utf-8") == session_id
        return False

    def _note(self, record: Path, session_id: str) -> None:
        # Without a record the session works all the same; its runs are not taken over later.
        with suppress(OSError):
            make_private(self._folder)
            self._forget_old()
            handle = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(handle, "w", encoding="utf-8") as file:
                file.write(session_id)

    def _forget_old(self) -> None:
        records = list(self._folder.iterdir())
        for each in records if len(records) >= _MOST else ():
            if time.time() - each.stat().st_mtime > _KEPT_S:
                each.unlink(missing_ok=True)
