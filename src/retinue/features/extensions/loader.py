"""Load extensions: import each wanted one at most once, call its `register`, and report failures.

A failing extension disables only itself. Must not know settings or runs; what is wanted is passed in.
"""

import asyncio
import hashlib
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from msgspec import Struct

from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import RetinueError, quote
from retinue.core.tool_table import KNOWN_TOOLS
from retinue.engine.setup import Feature
from retinue.features.extensions.candidates import (
    MAX_SOURCE_BYTES,
    Candidate,
    ExtensionFolders,
    FoundExtensions,
    Source,
    WantedExtensions,
    choose_extensions,
    find_extensions,
    find_path,
    read_source,
)
from retinue.features.extensions.channels import Channels
from retinue.features.extensions.contained import ExtensionPoint, ExtensionTool
from retinue.features.extensions.foreign import ForeignFailed, await_limited, call_in_thread, find_place
from retinue.features.extensions.registrar import Api, Registrations, close_api
from retinue.features.hooks.hook_table import Hook
from retinue.features.hooks.points import ANYWHERE
from retinue.tools.selectors import Offer

LOAD_LIMIT_S = 10.0
"""For the import and a plain `register`; again for an async one."""
_READY = "ready"


class Extension(Struct, frozen=True):
    name: str
    source: Source
    place: str
    registrations: Registrations = Registrations()


_Loaded: TypeAlias = tuple[Extension | None, tuple[Diagnostic, ...]]
"""An extension, None if it could not be loaded, and problems with it."""


class LoadedExtensions(Struct, frozen=True):
    """The extensions of one run, highest precedence first, and diagnostics."""

    extensions: tuple[Extension, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    tools: Mapping[str, ExtensionTool] = {}
    """By name; the first extension wins if several have a tool of the same name."""
    failed: tuple[str, ...] = ()
    """Names of wanted extensions that could not be loaded."""

    @property
    def offers(self) -> dict[str, Offer]:
        """The tools in the form that the tool policy needs."""
        approved = {extension.name for extension in self.extensions if extension.source == "path"}
        return {
            name: Offer(each.effect, each.extension, is_approved=each.extension in approved, is_deferred=each.deferred)
            for name, each in self.tools.items()
        }

    def collect(self, verb: str) -> tuple[Any, ...]:
        """Return all registrations of one kind, named by the field of `Registrations`, in order."""
        return tuple(item for extension in self.extensions for item in getattr(extension.registrations, verb))

    def list_points(self) -> tuple[Hook, ...]:
        """Return the hook point functions, marked as the user's or a project's."""
        return tuple(
            point.to_hook(is_own=extension.source != "project")
            for extension in self.extensions
            for point in extension.registrations.points
        )

    def make_features(self) -> tuple[Feature, ...]:
        return tuple(make() for make in self.collect("features"))


class ExtensionLibrary:
    """The extensions of one program: found once, loaded when a run first needs them, and kept."""

    def __init__(
        self,
        places: ExtensionFolders,
        found: FoundExtensions | None = None,
        *,
        reserved: Collection[str] = KNOWN_TOOLS,
        limit_s: float = LOAD_LIMIT_S,
        channels: Channels | None = None,
        judge: Callable[[str, bytes], str] = lambda path, source: "",
    ) -> None:
        """`found` is an earlier search result; `reserved` are tool names that extensions may not use.

        `judge` returns why a file with this content must not be loaded, or an empty string.
        """
        self._places = places
        self._channels = channels
        self._judge = judge
        self.found = find_extensions(places) if found is None else found
        """All extensions that exist; none of their code has run."""
        self._reserved = reserved
        self._limit_s = limit_s
        self._loaded: dict[Candidate, _Loaded] = {}
        self._lock = asyncio.Lock()

    async def load(self, wanted: WantedExtensions | None = None) -> LoadedExtensions:
        """Load the wanted extensions; no code of others runs."""
        wanted = wanted or WantedExtensions()
        if wanted.is_none:
            return LoadedExtensions()
        named, problems = self._find_named(wanted)
        extensions: list[Extension] = []
        failed: list[str] = []
        for candidate in choose_extensions((*named, *self.found.candidates), wanted):
            async with self._lock:
                if candidate not in self._loaded:
                    self._loaded[candidate] = await self._load(candidate)
                extension, found = self._loaded[candidate]
            problems += found
            if extension is not None:
                extensions.append(extension)
            if extension is None or any(point.fault for point in extension.registrations.points):
                failed.append(candidate.name)
        tools, clashes = merge_tools(extensions)
        return LoadedExtensions(tuple(extensions), (*problems, *clashes), tools, tuple(failed))

    def _find_named(self, wanted: WantedExtensions) -> tuple[list[Candidate], list[Diagnostic]]:
        """Return the files that a list names, even outside of the extension folders."""
        by_path = {candidate.path: candidate for candidate in self.found.candidates if candidate.path}
        by_name = {candidate.name.lower(): candidate for candidate in self.found.candidates}
        named: list[Candidate] = []
        problems: list[Diagnostic] = []
        for found in (find_path(entry, self._places) for entry in wanted.paths):
            if isinstance(found, Diagnostic):
                problems.append(found)
                continue
            named.append(by_path.get(found.path, found))
            hidden = by_name.get(found.name)
            if hidden is not None and hidden.path != found.path:
                text = f"{hidden.place}: hidden by {found.path}, which an agent lists by its path"
                problems.append(Diagnostic(text, hidden.place, severity="warning", code="extension-shadowed"))
        return named, problems

    async def _load(self, candidate: Candidate) -> _Loaded:
        api = Api(
            candidate.name, self._places.cwd, path=candidate.path, reserved=self._reserved, channels=self._channels
        )
        source = b"hook" if candidate.source == "user" else b""
        try:
            source = b"" if candidate.entry else read_source(candidate, self._places)
            if len(source) > MAX_SOURCE_BYTES:
                raise RetinueError(f"has more than {MAX_SOURCE_BYTES} bytes")
            # The user's own folder may contain links to files that agents can change.
            is_asked_about = candidate.source in ("path", "user") and candidate.path not in self._places.chosen
            if is_asked_about and (problem := self._judge(candidate.path, source)):
                raise RetinueError(problem)
            pending = await call_in_thread(lambda: _register(candidate, source, api), self._limit_s)
            if pending is not None:
                await await_limited(lambda: pending, self._limit_s)
        except OSError as error:
            return _give_up(candidate, _tell_failure(candidate, (error.strerror or str(error)).lower(), None), source)
        except RetinueError as error:
            kept = close_api(api)[0]
            api.events.close()
            seen = b"hook" if kept.points or kept.hooks else source
            return _give_up(candidate, _tell_failure(candidate, str(error), error), seen)
        registrations, problems = close_api(api)
        return Extension(candidate.name, candidate.source, candidate.place, registrations), problems


def merge_tools(extensions: Collection[Extension]) -> tuple[dict[str, ExtensionTool], list[Diagnostic]]:
    """Merge the tools of several extensions; the first one of each name wins."""
    tools: dict[str, ExtensionTool] = {}
    clashes: list[Diagnostic] = []
    owners: dict[str, str] = {}
    for extension in extensions:
        for tool in extension.registrations.tools:
            owner = owners.setdefault(tool.spec.name.lower(), extension.name)
            if owner == extension.name:
                tools[tool.spec.name] = tool
                continue
            text = (
                f"{extension.place}: extension {quote(extension.name)}: its tool {quote(tool.spec.name)} is not used: "
                f"extension {quote(owner)} has a tool of the same name"
            )
            clashes.append(Diagnostic(text, extension.place, severity="warning", code="extension-tool"))
    return tools, clashes


def import_source(name: str, path: str, source: bytes) -> ModuleType:
    """Import a file as a module with a unique name; one module per path and content in this process."""
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape") + b"\0" + source).hexdigest()[:16]
    base = f"retinue_extension_{re.sub(r'[^a-zA-Z0-9]', '_', name)}_{digest}"
    for number in count():
        full = f"{base}_{number}" if number else base
        module = sys.modules.get(full)
        if module is None:
            break
        # Another thread may still be importing it, or hang there forever; then create a separate module.
        if module.__spec__ is not None and module.__spec__.loader_state == _READY:
            return module
    spec = ModuleSpec(full, None, origin=path)
    module = ModuleType(full)
    module.__file__, module.__spec__, module.__package__ = path, spec, ""
    sys.modules[full] = module
    try:
        # Compiled here because the import system would write bytecode beside the file.
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        sys.modules.pop(full, None)
        raise
    spec.loader_state = _READY
    return module


def _register(candidate: Candidate, source: bytes, api: Api) -> Awaitable[Any] | None:
    """In a thread: import the extension and call `register`; returns the awaitable of an async `register`."""
    register = _find_register(candidate, source)
    if not callable(register):
        raise RetinueError("has no function register(api)")
    pending = register(api)
    return pending if inspect.isawaitable(pending) else None


def _find_register(candidate: Candidate, source: bytes) -> Callable[[Api], Any] | None:
    if candidate.path:
        return getattr(import_source(candidate.name, candidate.path, source), "register", None)
    from importlib.metadata import EntryPoint

    target = EntryPoint(candidate.name, candidate.entry, "").load()
    return getattr(target, "register", None) if isinstance(target, ModuleType) else target


def _tell_failure(candidate: Candidate, problem: str, error: RetinueError | None) -> Diagnostic:
    cause = error.cause if isinstance(error, ForeignFailed) else None
    file, line = find_place(cause, candidate.path) if cause is not None else (candidate.path, None)
    where = f"{file}:{line}" if line is not None else candidate.place
    text = f"{where}: extension {quote(candidate.name)} is not loaded: {problem}{_hint(candidate, cause)}"
    return Diagnostic(text, file or candidate.place, line, code="extension")


def _give_up(candidate: Candidate, problem: Diagnostic, source: bytes) -> _Loaded:
    """Drop an extension that cannot be loaded; if it mentions hooks, replace it by a guard that denies."""
    if b"hook" not in source:
        return None, (problem,)
    point = ExtensionPoint(candidate.name, candidate.path, ANYWHERE, print, fault=problem.message)
    return Extension(candidate.name, candidate.source, candidate.place, Registrations(points=(point,))), (problem,)


def _hint(candidate: Candidate, cause: BaseException | None) -> str:
    """Return a hint about imports that authors may not know."""
    if not isinstance(cause, ImportError) or not candidate.path:
        return ""
    beside = Path(candidate.path).with_name(f"{(cause.name or '').partition('.')[0]}.py")
    if "relative import" in str(cause) or (cause.name and beside.exists()):
        return " (an extension is one file: it can import what is installed, not files beside it)"
    return ""
