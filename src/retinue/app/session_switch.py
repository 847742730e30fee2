"""Opens the first session of a Retinue, and switches to another session, branch or setting while it is open."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import ConfigError, SessionError, UsageError, quote
from retinue.core.messages import AssistantMessage
from retinue.engine.bus import Listener
from retinue.engine.clock import make_uuid
from retinue.engine.inbox import Delivery
from retinue.engine.journal import CREW, RECORD
from retinue.engine.runner import LiveRun
from retinue.engine.setup import RunSetup
from retinue.sessions.entry import check_session_id
from retinue.sessions.files import UnsyncedFiles
from retinue.sessions.log import Session
from retinue.sessions.tree import SessionTree
from retinue.settings.paths import Paths, find_paths, find_session_dir
from retinue.settings.request import SessionWish
from retinue.settings.schema import BranchSummaries, Settings

if TYPE_CHECKING:
    from retinue.app.host import Host
    from retinue.app.open_session import OpenSession
    from retinue.engine.notify import IdleWaker
    from retinue.sessions.compaction import BranchSummary
    from retinue.settings.preferences import Preference


_LONGEST_PATH = 4096
_OWN = (CREW, RECORD)
"""Entries about runs: they belong to the session that started them, not to its forks."""


class Listeners:
    """The listeners of a Retinue, kept when it switches to another session."""

    def __init__(self) -> None:
        self._listeners: dict[int, tuple[Listener, bool]] = {}
        self._stops: dict[int, Callable[[], None]] = {}
        self._number = 0

    def listen(self, main: LiveRun, listener: Listener, *, pieces: bool) -> Callable[[], None]:
        self._number += 1
        number = self._number
        self._listeners[number] = listener, pieces
        self._stops[number] = main.bus.listen(listener, pieces=pieces)
        return lambda: self._forget(number)

    def move(self, main: LiveRun) -> None:
        """Move all listeners to the main agent of another session."""
        for number, (listener, pieces) in self._listeners.items():
            self._stops[number]()
            self._stops[number] = main.bus.listen(listener, pieces=pieces)

    def _forget(self, number: int) -> None:
        if self._listeners.pop(number, None) is not None:
            self._stops.pop(number)()


class Sessions:
    """The other sessions to which a main agent can switch. A failure changes nothing."""

    def __init__(
        self, main: LiveRun, directory: Path, clock: Clock, enter: Callable[[Session], Awaitable[None]]
    ) -> None:
        """`directory` is for new sessions; `enter` switches to an open session."""
        self._main = main
        self._present = main.session
        self._cwd = str(main.setup.cwd)
        """The working directory, whatever the session says."""
        self._directory = directory
        self._clock = clock
        self._enter = enter

    async def begin(self, parent: str | None = None) -> None:
        """Switch to a new session; `parent` is the file it comes from."""
        await self._enter(self._make(parent))

    async def open(self, path: str) -> None:
        """Switch to the session of a file; a missing file is created, as in pi. Raises RetinueError."""
        await self._enter(self._load(path))

    async def fork(self, entry_id: str) -> str:
        """Switch to a copy that ends before a user message; return that message. Raises RetinueError."""
        from retinue.views.history import SessionHistory

        text, before = SessionHistory(self._main).find_prompt(entry_id)
        await self._enter(self._copy(before))
        return text

    async def clone(self) -> None:
        """Switch to a copy. Raises RetinueError if the session is empty."""
        if self._present.leaf_id is None:
            raise SessionError("Cannot clone session: it has no messages yet")
        await self._enter(self._copy(self._present.leaf_id))

    def _load(self, path: str) -> Session:
        if not path.strip() or "\0" in path or len(path) > _LONGEST_PATH:
            raise UsageError(f"{quote(path)} is not the path of a session file")
        present, clock = self._present, self._clock
        file = Path(self._cwd, Path(path).expanduser())
        if not file.exists():
            if not file.parent.is_dir():
                raise SessionError(f"there is no session file {quote(str(file), 300)}, and its folder does not exist")
            return Session.create(cwd=self._cwd, directory=None, path=file, clock=clock, new_id=make_uuid)
        if present.path is not None and present.path.exists() and file.samefile(present.path):
            raise SessionError(f"session {present.id} is already open")
        return Session.open(file, clock=clock, new_id=make_uuid, cwd=self._cwd)

    def _make(self, parent: str | None) -> Session:
        """Create a session; saved only if the current one is."""
        directory = None if self._present.path is None else self._directory
        return Session.create(
            cwd=self._cwd, directory=directory, parent_session=parent, clock=self._clock, new_id=make_uuid
        )

    def _copy(self, leaf_id: str | None) -> Session:
        session = self._make(None if self._present.path is None else str(self._present.path))
        try:
            session.copy_branch(self._present, leaf_id, leave_out=_OWN)
        except BaseException:
            session.close()
            raise
        return session


def resolve_session(
    wish: SessionWish,
    paths: Paths,
    settings: Settings,
    environment: Mapping[str, str],
    clock: Clock,
    say: Callable[[str], None],
) -> Session:
    directory = find_session_dir(paths, environment, flag=wish.directory or None, setting=settings.session_dir)
    found: Path | None = None
    if wish.kind == "newest":
        from retinue.sessions.search import find_recent

        found = find_recent(directory, str(paths.cwd))
        if found is None:
            say("there is no session of this folder to continue; starting a new one")
    elif wish.kind == "named":
        found = _find_named(wish.reference, directory, paths)
    elif wish.kind == "exact":
        check_session_id(wish.reference)
        found = next(directory.glob(f"*_{wish.reference}.jsonl"), None)
    tree = SessionTree(UnsyncedFiles()) if wish.is_fleeting else None
    if found is not None and found.exists():
        cwd = str(paths.cwd)
        return Session.open(found, clock=clock, new_id=make_uuid, cwd=cwd, is_alone=wish.is_alone, tree=tree)
    session = Session.create(
        cwd=wish.cover.cwd or paths.cwd,
        directory=None if wish.kind in ("none", "children") else directory,
        path=found,
        session_id=wish.reference if wish.kind == "exact" else wish.cover.id or None,
        parent_session=wish.cover.parent or None,
        clock=clock,
        new_id=make_uuid,
        tree=tree,
    )
    if wish.cover.name:
        session.append_session_info(wish.cover.name)
    for kind, data in wish.cover.labels.items():
        session.append_custom(kind, data)
    return session


def find_folder(session: Session, environment: Mapping[str, str]) -> Paths:
    """Return the folder in which a session was started. Raises UsageError if it does not exist."""
    try:
        return find_paths(session.cwd, environment)
    except UsageError as error:
        folder = quote(session.cwd, 200)
        raise UsageError(f"session {session.id} works in {folder}, which cannot be entered: {error}") from error


def _find_named(reference: str, directory: Path, paths: Paths) -> Path:
    # A missing path is created, as pi does for its children.
    looks_like_path = os.sep in reference or reference.endswith(".jsonl")
    path = Path(reference).expanduser()
    if looks_like_path and not path.exists():
        return path.absolute()
    from retinue.sessions.search import find_session

    return find_session(reference, directory=directory, agent_dir=paths.agent_dir, cwd=paths.cwd)


_WINDOW = 128_000
"""For models without a known context window."""
_MOST_TOKENS = 4096
"""Maximum length of a summary."""


class SessionBranches:
    """The branches of one main agent's session. A failure changes nothing."""

    def __init__(self, main: LiveRun, reactions: "IdleWaker | None", clock: Clock, settings: BranchSummaries) -> None:
        self._main = main
        self._session = main.session
        self._reactions = reactions
        self._clock = clock
        self._settings = settings

    @property
    def asks(self) -> bool:
        """Whether the user wants to be asked about a summary."""
        return not self._settings.skip_prompt

    def is_here(self, entry_id: str) -> bool:
        """Return whether the session already ends at this entry. Raises SessionError."""
        _, leaf_id = self._find(entry_id)
        is_after = leaf_id == entry_id and self._session.present.passes(entry_id)
        return is_after and not self.leaves_words(entry_id)

    def leaves_words(self, entry_id: str) -> bool:
        """Return whether switching to an entry leaves messages behind that can be summarised. Raises SessionError."""
        from retinue.sessions.compaction import has_words

        self._find(entry_id)
        return has_words(self._session.present.load_beyond(entry_id))

    async def go(self, entry_id: str, *, summarise: bool = False, instructions: str = "") -> str:
        """Continue from an entry; for a user message, from before it, and return its text.

        With `summarise` the model first summarises what is left behind, as the first entry of the new branch. Reports
        of runs wait for the next prompt. Raises RetinueError if the agent works, the entry is unknown, the summary
        fails or cannot be written.
        """
        words, leaf_id = self._find(entry_id)
        self._check()
        with self._reactions.held() if self._reactions is not None else nullcontext():
            summary = await self._sum_up(entry_id, instructions) if summarise else None
            self._move(leaf_id, summary)
        return words

    def _find(self, entry_id: str) -> tuple[str, str | None]:
        """Return the text to send again, and the entry to continue from."""
        try:
            stored = self._session.read_entry(entry_id)
        except KeyError:
            raise SessionError(f"Entry not found: session {self._session.id} has no {quote(entry_id)}") from None
        message = stored.get("message")
        if stored.get("type") == "message" and isinstance(message, dict) and message.get("role") == "user":
            from retinue.views.history import SessionHistory

            return SessionHistory(self._main).find_prompt(entry_id)
        return "", entry_id

    def _check(self) -> None:
        main = self._main
        if main.is_busy:
            raise SessionError("the agent is working; stop it or wait for it before you switch branches")
        main.journal.flush()
        if not main.journal.is_saved:
            # Unsaved entries would later be written to the wrong branch.
            raise SessionError(f"session {self._session.id} cannot be written, so this branch cannot be left")

    async def _sum_up(self, entry_id: str, instructions: str) -> "BranchSummary | None":
        from retinue.engine.compaction import CAREFUL_CHARS_PER_TOKEN
        from retinue.sessions.compaction import has_words, prepare_parting, sum_up

        main = self._main
        left = self._session.present.load_beyond(entry_id)
        if not has_words(left):
            return None
        said = main.journal.last_message_id
        window = main.setup.model.info.context_window or _WINDOW
        room = window - min(self._settings.reserve_tokens, window // 2)
        parting = prepare_parting(left, room)
        summary = await sum_up(parting, self._ask, instructions, room * CAREFUL_CHARS_PER_TOKEN)
        self._check()
        if main.journal.last_message_id != said:
            raise SessionError("a message arrived while the summary was written; nothing was changed")
        return summary

    async def _ask(self, system: str, prompt: str) -> AssistantMessage:
        from retinue.engine.compaction import ask_for_summary

        main, info = self._main, self._main.setup.model.info
        most = min(_MOST_TOKENS, info.max_tokens or _MOST_TOKENS, max(256, info.context_window // 4))
        return await ask_for_summary(main.setup, self._clock, main.bus.publish, system, prompt, most)

    def _move(self, leaf_id: str | None, summary: "BranchSummary | None") -> None:
        main, former = self._main, self._session.leaf_id
        main.branch(leaf_id)
        if summary is None:
            return
        try:
            self._session.append_branch_summary(summary.summary, former, summary.usage, summary.details)
        except SessionError:
            main.branch(former)
            raise


class ModeChanges:
    """Changes modes of one main agent without changing the user's settings."""

    def __init__(self, main: LiveRun) -> None:
        self._main = main

    @property
    def steering_mode(self) -> Delivery:
        """How many steering messages are delivered at once."""
        return self._main.inbox.steering_mode

    @steering_mode.setter
    def steering_mode(self, mode: Delivery) -> None:
        self._main.inbox.steering_mode = mode
        self._main.change(steering_mode=mode)

    @property
    def follow_up_mode(self) -> Delivery:
        """How many follow-ups are delivered at once."""
        return self._main.inbox.follow_up_mode

    @follow_up_mode.setter
    def follow_up_mode(self, mode: Delivery) -> None:
        self._main.inbox.follow_up_mode = mode
        self._main.change(follow_up_mode=mode)

    @property
    def compacts(self) -> bool:
        """Whether the context is summarised when it is long."""
        return self._main.setup.compaction.enabled

    @compacts.setter
    def compacts(self, enabled: bool) -> None:
        self._main.change(compaction=replace(self._main.setup.compaction, enabled=enabled))

    @property
    def retries(self) -> bool:
        """Whether a reply with a temporary failure is retried."""
        return self._main.setup.retry.enabled

    @retries.setter
    def retries(self, enabled: bool) -> None:
        self._main.change(retry=structs.replace(self._main.setup.retry, enabled=enabled))

    def take_over(self, setup: RunSetup) -> None:
        self.steering_mode, self.follow_up_mode = setup.steering_mode, setup.follow_up_mode
        self.compacts, self.retries = setup.compaction.enabled, setup.retry.enabled


class SettingChange(NamedTuple):
    preference: "Preference"
    problem: str = ""
    """Why it was not written and applies to this process only; empty if it was written."""


async def change_setting(
    opened: "OpenSession", host: "Host", key: str, text: str | None, *, accepts_file: bool, for_user: bool
) -> SettingChange:
    """Write a setting, apply it to the session and notify extensions; None removes it. Raises UsageError."""
    from retinue.settings.preferences import Preferences
    from retinue.settings.subagents import load_subagents

    config, problem = opened.config, ""
    values = {name: value for name, value in host.settings.crew.items() if name != key}
    own = Preferences(config.paths, host.environment, config.loaded.trust, values)
    try:
        if text is None:
            await asyncio.to_thread(own.reset, key, for_user=for_user)
        else:
            await asyncio.to_thread(own.change, key, text, accepts_file=accepts_file, for_user=for_user)
    except ConfigError as error:
        problem = str(error)
        values |= {} if text is None else {key: own.read(key, text)[1]}
    host.settings = structs.replace(host.settings, crew=values)
    crew = load_subagents(config.paths, host.environment, trusted=config.is_trusted, flags=values)
    opened.apply_settings(crew, persisted=not problem)
    if key == "approvals":
        opened.parts.guards.choose_mode(crew.settings.approvals)
    own = Preferences(config.paths, host.environment, config.loaded.trust, values)
    return SettingChange(own.find(key), problem)
