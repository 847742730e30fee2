"""Session: the append-only, durable record of one run.

When an append returns, the entry is on disk; when it raises, nothing has changed. Must not know models, tools or the
engine.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from retinue.core.clock import Clock
from retinue.core.errors import SessionError, SessionUnsaved, quote
from retinue.core.jsonline import encode_json
from retinue.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
    Usage,
    UserContent,
    UserMessage,
)
from retinue.sessions.entry import (
    VERSION,
    Entry,
    EntryIds,
    EntryLine,
    NewEntry,
    TimestampFormat,
    check_session_id,
    decode_object,
    make_header,
    render_notes,
)
from retinue.sessions.history import Branch, History
from retinue.sessions.scan import Damage, Scan
from retinue.sessions.store import FileStore, LineStore, MemoryStore, mend_tail, open_descriptor, scan_session
from retinue.sessions.tree import SessionTree, find_main
from retinue.sessions.view import Context, replay_system, to_entry, to_messages

NewId = Callable[[], str]
_WORDS = (SystemMessage, UserMessage)
"""Messages to the model, which may wait until the model replies."""
_stamp = TimestampFormat()


class Session:
    """A session, open for reading and, unless `read_only`, for appending by this process alone."""

    def __init__(
        self, header: dict[str, Any], path: Path | None, store: LineStore, clock: Clock, new_id: NewId
    ) -> None:
        self.header = header
        self.path = path
        self.damage = Damage()
        self.read_only = ""
        """Why the session cannot be written; empty if it can."""
        self.tree: SessionTree | None = None
        self._owns_tree = False
        self._record = History(store)
        self._waiting: list[NewEntry] = []
        """Entries of a child that has not replied yet; not encoded until they are needed."""
        self._clock = clock
        self._ids = EntryIds(new_id())
        self._leaf = -1
        self._is_header_saved = False
        self._may_wait = False
        """Whether this is a child's session without a file."""
        self._settled = 0
        self._context: Context | None = None

    @classmethod
    def create(
        cls,
        *,
        cwd: str | Path,
        directory: Path | None,
        path: Path | None = None,
        session_id: str | None = None,
        parent_session: str | None = None,
        clock: Clock,
        new_id: NewId,
        tree: SessionTree | None = None,
    ) -> "Session":
        """Create a session; in memory if neither `directory` nor `path` is given, else the first append creates its
        file.

        With the tree of a main session it is a child's session, protected by the main session's lock. Entries before
        its first reply are also in the main session, so their writing waits for the reply. A session in memory passes
        the tree on to its children; the first session of a tree owns it.
        """
        identity = new_id() if session_id is None else check_session_id(session_id)
        now_ms = clock.now_ms()
        header = make_header(identity, _stamp.render(now_ms), str(cwd), parent_session)
        if path is None and directory is not None:
            path = directory / f"{header['timestamp'].replace(':', '-').replace('.', '-')}_{identity}.jsonl"
        if path is None:
            session = cls(header, None, MemoryStore(), clock, new_id)
            session.tree, session._context = tree, Context()
            return session
        path = path.absolute()
        owns = tree is None or tree.main is None
        tree = tree or SessionTree()
        tree.main = tree.main or path
        session = cls(header, path, FileStore(path, tree, is_made=False), clock, new_id)
        session.tree, session._owns_tree, session._context = tree, owns, Context()
        session._may_wait = tree.main != path
        return session

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        clock: Clock,
        new_id: NewId,
        tree: SessionTree | None = None,
        read_only: bool = False,
        is_alone: bool = False,
        cwd: str = "",
    ) -> "Session":
        """Open a session file: lock it, read it once, repair its end.

        `is_alone` locks the file itself even if it lies below a main session, whose lock another process holds. Raises
        SessionNotFound, SessionLocked (names the process), or SessionError if it is not a session. A file of a newer
        format version, or one that cannot be written, is opened read-only. `cwd` is used if the file names none.
        """
        path = Path(path).absolute()
        owns = tree is None or tree.main is None
        tree = tree or SessionTree()
        was_locked = tree.is_locked
        try:
            reason = "it was opened for reading" if read_only else ""
            session = cls._open(path, tree, clock, new_id, cwd, reason, lock=path if is_alone else find_main(path))
        except BaseException as error:
            tree.forget(path)
            if not was_locked:
                tree.unlock()
            if isinstance(error, OSError):
                raise SessionError(f"cannot open session {path}: {error.strerror}") from error
            raise
        session._owns_tree = owns
        return session

    @classmethod
    def _open(
        cls, path: Path, tree: SessionTree, clock: Clock, new_id: NewId, cwd: str, read_only: str, *, lock: Path
    ) -> "Session":
        reason = open_descriptor(path, tree, read_only)
        if not reason and not tree.is_locked:
            tree.lock(lock)
        scan = scan_session(path, tree)
        session = cls._from_scan(path, tree, scan, clock, new_id, cwd)
        if scan.version > VERSION and not reason:
            reason = f"its format version {scan.version} is newer than {VERSION}"
        session.read_only = reason
        if not reason:
            session._history.store = mend_tail(path, tree, scan)
        return session

    @classmethod
    def _from_scan(cls, path: Path, tree: SessionTree, scan: Scan, clock: Clock, new_id: NewId, cwd: str) -> "Session":
        header = scan.header
        if header is None or not isinstance(header.get("id"), str):
            identity = path.stem.rpartition("_")[2] if path.name != "session.jsonl" else path.parent.name
            header = make_header(identity, _stamp.render(clock.now_ms()), cwd, None) | (header or {}) | {"id": identity}
        session = cls(header, path, FileStore(path, tree, read_only=True), clock, new_id)
        session.tree = tree
        session.damage = scan.damage
        session._history.index = scan.index
        session._history.version = scan.version
        session._leaf = len(scan.index) - 1
        session._settled = len(scan.index)
        session._is_header_saved = scan.header is not None or len(scan.index) > 0
        scan.damage.missing_header = scan.header is None and len(scan.index) > 0
        return session

    @property
    def id(self) -> str:
        return str(self.header["id"])

    @property
    def cwd(self) -> str:
        cwd = self.header.get("cwd")
        return cwd if isinstance(cwd, str) else ""

    @property
    def parent_session(self) -> str | None:
        """The session file of the parent run, or the file this one was forked from."""
        parent = self.header.get("parentSession")
        return parent if isinstance(parent, str) else None

    @property
    def leaf_id(self) -> str | None:
        """The parent of the next entry; None before the first."""
        if self._waiting:
            return self._waiting[-1].entry_id
        return None if self._leaf < 0 else self._history.index.ids[self._leaf]

    def __len__(self) -> int:
        """Return the number of entries on all branches."""
        return len(self._history.index)

    @property
    def name(self) -> str:
        """The name that the user gave; empty without one."""
        entry = self._history.find_last("session_info")
        return entry.name.strip() if entry is not None and isinstance(entry.name, str) else ""

    def append_message(self, message: Message, *, sync: bool = False) -> str:
        entry_id = self._append("message", {"message": message}, sync=sync, waits=type(message) in _WORDS)
        context = self._context
        if context is not None:
            context.messages.append(message)
            context.entry_ids.append(entry_id)
            if type(message) is SystemMessage:
                context.system = replay_system(context.messages)
            elif type(message) is AssistantMessage:
                context.model = (message.provider, message.model)
        return entry_id

    def append_model_change(self, provider: str, model_id: str) -> str:
        entry_id = self._append("model_change", {"provider": provider, "modelId": model_id}, waits=True)
        if self._context is not None:
            self._context.model = (provider, model_id)
        return entry_id

    def append_thinking_level(self, level: str) -> str:
        entry_id = self._append("thinking_level_change", {"thinkingLevel": level}, waits=True)
        if self._context is not None:
            self._context.thinking = level
        return entry_id

    def append_compaction(
        self,
        summary: str,
        first_kept_entry_id: str | None,
        tokens_before: int,
        usage: Usage | None = None,
        details: Any = None,
        system_message: SystemMessage | None = None,
    ) -> str:
        """Replace what is before the first kept entry (None: everything) by a summary, with a system checkpoint."""
        system = system_message or self.context().system
        entry_id = self._make_entry_id()
        fields: dict[str, Any] = {
            "summary": summary,
            "firstKeptEntryId": entry_id if first_kept_entry_id is None else first_kept_entry_id,
            "tokensBefore": tokens_before,
            "details": details,
            "usage": usage,
            "systemMessage": system,
        }
        self._append("compaction", _drop_none(fields), sync=True, entry_id=entry_id)
        self._context = None
        return entry_id

    def append_context_edit(self, target_id: str, replacement: dict[str, Any] | None) -> str:
        """Replace the content of an earlier message (`{"content": …}`) or hide it (None), for the model only."""
        if target_id not in self._history.index.by_id:
            raise SessionError(f"session {self.id} has no entry {quote(target_id)} to edit")
        entry_id = self._append("context_edit", {"targetId": target_id, "replacement": replacement})
        self._context = None
        return entry_id

    def append_branch_summary(
        self, summary: str, from_id: str | None, usage: Usage | None = None, details: Any = None
    ) -> str:
        fields = {"fromId": from_id or "root", "summary": summary, "details": details, "usage": usage}
        entry_id = self._append("branch_summary", _drop_none(fields), sync=True)
        self._context = None
        return entry_id

    def append_custom(self, custom_type: str, data: Any, *, sync: bool = False) -> str:
        """Append data that the model does not see."""
        return self._append("custom", {"customType": custom_type, "data": data}, sync=sync)

    def append_customs(self, facts: Iterable[tuple[str, Any]]) -> str:
        """Append several custom entries, each a type and its data; all of them or none."""
        entries = [("custom", {"customType": custom_type, "data": data}) for custom_type, data in facts]
        return self._append_all(entries, waits=False)

    def append_custom_message(
        self,
        custom_type: str,
        content: str | list[UserContent],
        *,
        display: bool = True,
        details: Any = None,
        sync: bool = False,
    ) -> str:
        """Append content that the model sees as a user message."""
        fields = {"customType": custom_type, "content": content, "display": display, "details": details}
        entry_id = self._append("custom_message", _drop_none(fields), sync=sync)
        if self._context is not None:
            # Reading the whole session again for each notification would cost more the longer it is.
            shown = to_messages(self._history.load_one(self._leaf))
            self._context.messages += shown
            self._context.entry_ids += [entry_id] * len(shown)
        return entry_id

    def append_session_info(self, name: str) -> str:
        """Name the session; an empty name removes it."""
        return self._append("session_info", {"name": " ".join(name.split())})

    def append_opening(self, name: str, model: tuple[str, str], thinking: str) -> str:
        """Append name, model and thinking level of a new session in one write."""
        entry_id = self._append_all(
            (
                ("session_info", {"name": " ".join(name.split())}),
                ("model_change", {"provider": model[0], "modelId": model[1]}),
                ("thinking_level_change", {"thinkingLevel": thinking}),
            ),
            waits=True,
        )
        if self._context is not None:
            self._context.model, self._context.thinking = model, thinking
        return entry_id

    def append_fork(
        self, system: SystemMessage, messages: Sequence[Message], facts: dict[str, Any], *, waits: bool
    ) -> None:
        """Begin an empty session with the conversation of another one; `facts` about it are stored in the header."""
        now_ms, notes = self._clock.now_ms(), list[NewEntry]()
        for message in (system, *messages):
            entry_id = self._make_entry_id()
            notes.append(NewEntry(entry_id, *to_entry(message, entry_id, system), now_ms))
        self.header["fork"] = {**facts, "entryId": notes[-1].entry_id}
        self._add(notes, waits=waits)
        self._context = None
        if all(note.kind == "message" for note in notes):
            self._context = Context([system, *messages], [note.entry_id for note in notes], system=system)

    @property
    def fork(self) -> dict[str, Any] | None:
        """What `append_fork` stored; None if the session did not begin with another conversation."""
        fork = self.header.get("fork")
        return fork if isinstance(fork, dict) and isinstance(fork.get("entryId"), str) else None

    def drop_inherited(self, entries: list[Entry]) -> list[Entry]:
        """Return the entries without those that were taken over from another session."""
        last = None if self.fork is None else self.fork["entryId"]
        place = next((place for place, entry in enumerate(entries, 1) if entry.id == last), 0)
        return entries[place:]

    def find_before(self, call_id: str) -> Context | None:
        """Return the context that was answered with a tool call; None if no reply on this branch has that call."""
        index = self._history.index
        places = index.path(self._leaf)
        for number in reversed(range(len(places))):
            if index.kinds[places[number]] == "message":
                message = self._history.load_one(places[number]).message
                if isinstance(message, AssistantMessage) and any(call.id == call_id for call in message.calls):
                    return Branch(self._history, places[number - 1] if number else -1, self._settled).read_context()
        return None

    def append_label(self, target_id: str, label: str | None) -> str:
        """Label an entry; None or an empty label removes it."""
        if target_id not in self._history.index.by_id:
            raise SessionError(f"session {self.id} has no entry {quote(target_id)} to label")
        return self._append("label", _drop_none({"targetId": target_id, "label": label or None}))

    def branch(self, entry_id: str | None) -> None:
        """Continue from an earlier entry (None: from the start); the next append begins a new branch."""
        if self._history.version < 2:
            raise SessionError(f"session {self.path} is of format version 1, which has no branches; fork it first")
        place = -1 if entry_id is None else self._history.index.by_id.get(entry_id)
        if place is None:
            raise SessionError(f"session {self.id} has no entry {quote(entry_id)}")
        # Results that calls on this branch got later are on another branch, so open calls get none here.
        self._leaf, self._settled = place, len(self)
        self._context = None

    def context(self) -> Context:
        """Return what the model sees at the current leaf."""
        if self._context is None:
            self._context = self.present.read_context()
        return self._context.copy()

    @property
    def present(self) -> Branch:
        return Branch(self._history, self._leaf, self._settled)

    @property
    def choice(self) -> tuple[tuple[str, str] | None, str | None]:
        """Model and thinking level, without reading the conversation."""
        context = self._context
        return self.present.read_choice() if context is None else (context.model, context.thinking)

    def keep_context(self, branch: Branch, context: Context) -> None:
        """Store a context that was read elsewhere, unless something was appended since."""
        if self._context is None and branch == self.present:
            self._context = context

    def settle(self) -> list[ToolResultMessage]:
        """Append results for the last reply's unanswered tool calls, so that the conversation can continue."""
        context = self.context()
        known = self._written_results()
        added = []
        for message in reversed(context.messages):
            if not isinstance(message, ToolResultMessage):
                break
            if message.tool_call_id not in known:
                added.append(message)
        added.reverse()
        self._context = None
        for message in added:
            self.append_message(message, sync=True)
        return added

    def entries(self) -> list[Entry]:
        """Return the current branch from root to leaf."""
        return self._history.load(self._history.index.path(self._leaf))

    def all_entries(self) -> list[Entry]:
        return self._history.load(list(range(len(self))))

    def stored_entries(self, since: str | None = None) -> list[dict[str, Any]]:
        """Return all entries as stored, or those after `since`. Raises SessionError."""
        index = self._history.index
        if since is not None and since not in index.by_id:
            raise SessionError(f"Entry not found: session {self.id} has no {quote(since)}")
        first = 0 if since is None else index.by_id[since] + 1
        return [self._read_stored(place) for place in range(first, len(index))]

    def copy_branch(self, other: "Session", leaf_id: str | None, *, leave_out: Collection[str] = ()) -> None:
        """Append the branch of another session that ends at `leaf_id`, with the same entry ids.

        Labels are not copied, nor custom entries of the types in `leave_out`.
        """
        index = other._history.index
        for place in index.path(-1 if leaf_id is None else index.by_id[leaf_id]):
            stored, kind = other._read_stored(place), index.kinds[place]
            if kind == "label" or (kind == "custom" and stored.get("customType") in leave_out):
                continue
            if kind == "compaction" and other._history.version < 2:
                stored["firstKeptEntryId"] = other._history.load_one(place).first_kept_entry_id
            head = {"type": kind, "id": index.ids[place], "parentId": self.leaf_id}
            self._write([EntryLine(index.ids[place], kind, encode_json({**head, **stored, **head}) + b"\n")])
        self._settled, self._context = len(self), None

    def customs(self, custom_type: str) -> Iterator[Any]:
        """Yield the data of all custom entries of one type on any branch, in file order."""
        return (entry.data for entry in self._load_custom("custom", custom_type))

    def custom_details(self, custom_type: str) -> Iterator[Any]:
        """Yield the details of all custom messages of one type on any branch, in file order."""
        return (entry.details for entry in self._load_custom("custom_message", custom_type))

    def _load_custom(self, kind: str, custom_type: str) -> Iterator[Entry]:
        places = [place for place, each in enumerate(self._history.index.kinds) if each == kind]
        return (entry for entry in self._history.load(places) if entry.custom_type == custom_type)

    def read_entry(self, entry_id: str) -> dict[str, Any]:
        """Return one entry exactly as stored."""
        return self._read_stored(self._history.index.by_id[entry_id])

    def close(self) -> None:
        """Close the file, and free the lock if this is a main session."""
        self._record.store.close()
        self.read_only = self.read_only or "it is closed"
        if self.tree is not None and self._owns_tree:
            self.tree.close()

    def _read_stored(self, place: int) -> dict[str, Any]:
        index = self._history.index
        stored = decode_object(self._history.read(place)) or {}
        # Version 1 has no ids, and a line may name a missing parent.
        parent = index.parents[place]
        return {**stored, "id": index.ids[place], "parentId": None if parent < 0 else index.ids[parent]}

    def _append(
        self, kind: str, fields: dict[str, Any], *, sync: bool = False, waits: bool = False, entry_id: str | None = None
    ) -> str:
        note = NewEntry(entry_id or self._make_entry_id(), kind, fields, self._clock.now_ms())
        return self._add([note], sync=sync, waits=waits)

    def _append_all(self, entries: Iterable[tuple[str, dict[str, Any]]], *, waits: bool) -> str:
        """Append a chain of entries, all or none; returns the last one's id."""
        now_ms = self._clock.now_ms()
        return self._add(
            [NewEntry(self._make_entry_id(), kind, fields, now_ms) for kind, fields in entries], waits=waits
        )

    def _add(self, notes: list[NewEntry], *, sync: bool = False, waits: bool) -> str:
        if waits and self._may_wait and not self.read_only:
            # Encoding takes longer than keeping the entry, and a hundred runs that start together have no time for it.
            self._waiting += notes
            return notes[-1].entry_id
        history = self._history
        leaf_id = None if self._leaf < 0 else history.index.ids[self._leaf]
        entry_id = self._write(render_notes(notes, leaf_id), sync=sync)
        self._may_wait = False
        return entry_id

    @property
    def _history(self) -> History:
        """The history including waiting entries; these are encoded now but not yet written to a file."""
        if self._waiting:
            notes, self._waiting = self._waiting, []
            self._write(render_notes(notes, self.leaf_id), waits=True)
        return self._record

    def _write(self, lines: Sequence[EntryLine], *, sync: bool = False, waits: bool = False) -> str:
        """Append encoded entries and return the last id; with `waits` a missing file is not created yet."""
        if self.read_only:
            raise SessionUnsaved(f"cannot write session {self.path or self.id}: {self.read_only}")
        first = b"" if self._is_header_saved else encode_json(self.header) + b"\n"
        data = b"".join([first, *[line for _, _, line in lines]])
        # A child's task and report are also in the main session, which is synced; so children need no sync.
        offset = self._record.store.append(data, sync=sync and self._is_main, waits=waits) + len(first)
        self._is_header_saved = True
        for entry_id, kind, line in lines:
            self._leaf = self._record.index.add(entry_id, self._leaf, kind, offset, len(line) - 1)
            offset += len(line)
        return lines[-1][0]

    @property
    def _is_main(self) -> bool:
        return self._owns_tree or self.tree is None or self.tree.main == self.path

    def _make_entry_id(self) -> str:
        return self._ids.make(self._record.index.by_id)

    def _written_results(self) -> set[str]:
        messages = [m for entry in self._history.load_branch(self._leaf) for m in to_messages(entry)]
        return {message.tool_call_id for message in messages if isinstance(message, ToolResultMessage)}


def _drop_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
