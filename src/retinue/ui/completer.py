"""Connects the editor with the completion popup: finds completions for the text and inserts the chosen one."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from retinue.app import list_sessions
from retinue.core.errors import RetinueError
from retinue.core.figures import format_tokens
from retinue.ui.completion import CompletionSources, FileIndex, Token, complete, find_token, is_complete
from retinue.ui.formats import describe_session
from retinue.ui.themes import AUTO, THEMES
from retinue.views.catalogue import list_files

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp
    from retinue.ui.widgets.completion import CompletionPopup
    from retinue.ui.widgets.editor import Editor

STALE_S = 10.0
"""Maximum age in seconds of the file list when the user starts to type a file name."""
KEPT_S = 2.0
"""Seconds for which lists read from files are cached, so that not every key reads them again."""
Item = TypeVar("Item")


class Completer:
    """Completion for one editor and one popup."""

    def __init__(self, app: "RetinueApp", editor: "Editor", popup: "CompletionPopup") -> None:
        self._app = app
        self._editor = editor
        self._popup = popup
        commands = _keep(lambda: self._app.commands.list())
        self._sources = CompletionSources(commands, self._list_arguments, _keep(self._list_agents), self._find_families)
        self._token: Token | None = None
        self._listed_s = -STALE_S
        self._sessions: list[tuple[str, str]] = []
        self._sessions_s = -STALE_S
        self._is_asked = False
        self._seen: str | None = None
        self._closed_for: str | None = None
        """The text for which the user has closed the popup."""

    def look(self, *, is_asked: bool = False) -> bool:
        """Update the popup for the text before the cursor; returns whether there are completions."""
        before = self._editor.before_cursor
        if not is_asked and before in (self._closed_for, self._seen):
            return self._popup.is_open
        self._closed_for, self._seen = None, before
        self._is_asked = is_asked or (self._is_asked and self._popup.is_open)
        token = self._token = find_token(before, is_asked=self._is_asked)
        if token is None:
            self.close()
            return False
        if token.kind in ("mention", "path"):
            self._refresh_files()
        elif token.command == "resume":
            self._refresh_sessions()
        # An argument is optional, so none is preselected.
        self._popup.show(complete(token, self._sources), is_lit=token.kind != "argument")
        return self._popup.is_open

    def close(self) -> None:
        self._token, self._is_asked, self._seen = None, False, None
        self._popup.close()

    def take_key(self, key: str) -> bool:
        """Handle a key for the popup; False if it is not for it."""
        keys, popup = self._app.keys, self._popup
        self.look()  # keys can arrive before the message that the text has changed
        if not popup.is_open:
            return keys.means(key, "tui.input.tab") and self._begin()
        if keys.means(key, "tui.select.cancel"):
            self._closed_for = self._editor.before_cursor
            self.close()
        elif step := keys.step(key, "tui.select.up", "tui.select.down"):
            popup.move(step)
        elif step := keys.step(key, "tui.select.pageUp", "tui.select.pageDown"):
            popup.move(8 * step)
        elif keys.means(key, "tui.input.tab"):
            self.take_lit()
        elif keys.means(key, "tui.select.confirm"):
            return self._confirm()
        else:
            return False
        return True

    def _begin(self) -> bool:
        """Complete on request; if there is only one possibility, insert it at once."""
        if not self._editor.text.strip():
            return True
        if self.look(is_asked=True) and len(self._popup.rows) == 1:
            self.take_lit()
        return True

    def _confirm(self) -> bool:
        """Enter inserts the highlighted row, unless the text is already complete: then it is sent."""
        lit, token = self._popup.lit, self._token
        if lit is None or token is None or (is_complete(token, lit) and not lit.goes_on):
            self.close()
            return False
        self.take_lit()
        return True

    def take_lit(self) -> None:
        """Insert the highlighted row, or else the first one."""
        rows, token = self._popup.rows, self._token
        chosen = self._popup.lit or (rows[0] if rows else None)
        if chosen is None or token is None:
            return
        self.close()
        self._editor.replace_before(token.length, chosen.text)
        if not chosen.goes_on and token.kind != "command":  # after a command, its arguments can be completed
            self._closed_for = self._editor.before_cursor

    def _list_agents(self) -> Sequence[tuple[str, str]]:
        link = self._app.link
        return link.crew.catalogue.list_agents() if link.is_open else ()

    def _find_families(self) -> Mapping[str, str]:
        link = self._app.link
        return link.crew.catalogue.find_families() if link.is_open else {}

    def _list_arguments(self, command: str) -> Sequence[tuple[str, str]]:
        """List only values that are cheap to get."""
        if not self._app.link.is_open:
            return ()
        selection = self._app.link.crew.selection
        match command:
            case "model":
                infos = selection.list_models()
                return [(info.ref, f"{info.name} · {format_tokens(info.context_window)}") for info in infos]
            case "thinking":
                return [(level, "current" if level == selection.thinking else "") for level in selection.levels]
            case "theme":
                return [(AUTO, ""), *((name, "current" if name == self._app.theme else "") for name in THEMES)]
            case "resume":
                return [*self._sessions, ("all", "sessions of all folders")]
            case _:
                return ()

    def _refresh_sessions(self) -> None:
        if time.monotonic() - self._sessions_s > STALE_S:
            self._sessions_s = time.monotonic()
            self._app.run_worker(self._list_sessions(), group="sessions", exclusive=True)

    async def _list_sessions(self) -> None:
        """Runs beside the UI because it reads files."""
        try:
            found = await asyncio.to_thread(list_sessions, self._app.request, everything=False)
        except (OSError, RetinueError):
            return
        self._sessions = [(each["id"], " · ".join(describe_session(each))) for each in found]
        if self._token is not None and self._token.command == "resume":
            self._seen = None
            self.look()

    def _refresh_files(self) -> None:
        link = self._app.link
        if link.is_open and time.monotonic() - self._listed_s > STALE_S:
            self._listed_s = time.monotonic()
            self._app.run_worker(self._list_files(), group="files", exclusive=True)

    async def _list_files(self) -> None:
        try:
            names = await list_files(self._app.link.crew.catalogue.folder)
        except (OSError, RetinueError):
            return
        self._listed_s = time.monotonic()
        self._sources.files = await asyncio.to_thread(FileIndex, names)
        if self._token is not None and self._token.kind in ("mention", "path"):
            self._seen = None
            self.look()


def _keep(read: Callable[[], Sequence[Item]]) -> Callable[[], Sequence[Item]]:
    """Cache the result of `read` for KEPT_S seconds."""
    found: Sequence[Item] = ()
    read_s = -KEPT_S

    def give() -> Sequence[Item]:
        nonlocal found, read_s
        if time.monotonic() - read_s > KEPT_S:
            found, read_s = read(), time.monotonic()
        return found

    return give
