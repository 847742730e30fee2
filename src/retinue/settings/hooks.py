"""Loads command hooks: the user's and, in a trusted folder, the project's hooks that the user approved.

Starts nothing; `features.hooks.spec` parses an entry. A project can add hooks but never remove a guard of the user.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from retinue.core.definition import Definition
from retinue.core.diagnostics import Diagnostic, suggest
from retinue.core.errors import quote
from retinue.features.approved import digest_file, digest_files
from retinue.features.hooks.points import ANYWHERE, NO_NAME, HookSpec, Scope, parse_hook, stand_in
from retinue.settings.consent import Consents, State, find_ground, tell_waiting
from retinue.settings.files import BrokenFile, FileBound, bind_project, load_entries
from retinue.settings.paths import Paths

MAX_HOOKS = 200


class FoundHook(Struct, frozen=True):
    spec: HookSpec
    state: State
    entry: dict[str, Any]
    """What an approval is bound to: the entry, and the project's files that it names."""

    @property
    def is_bound(self) -> bool:
        """Whether the hook needs the user's approval: a project's hook, or one that runs files of the project."""
        return not self.spec.is_own or "files" in self.entry

    @property
    def is_guarding(self) -> bool:
        """Whether an unapproved hook still guards: it is not run and refuses everything.

        True for the user's own guards, and for an approved guard that now contains an error.
        """
        is_ours = self.spec.is_own or (bool(self.spec.fault) and self.state == "changed")
        return is_ours and self.spec.is_guard and self.state in ("unapproved", "changed")

    @property
    def notice(self) -> str:
        """A line about a hook that waits for approval; else empty."""
        if not (what := tell_waiting(self.state)):
            return ""
        name = self.spec.name
        shown = name if name.isidentifier() else quote(name)
        whose = "of yours runs a file of this project and" if self.spec.is_own else "of this project"
        then = "it does not run, and every call that it guards is refused" if self.is_guarding else "skipped"
        return f"hook {quote(name)} {whose} {what}: {then} (to see and approve it: retinue trust --hook {shown})"


class LoadedHooks(Struct, frozen=True):
    found: tuple[FoundHook, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def ready(self) -> tuple[HookSpec, ...]:
        """Hooks that are run, and the user's guards that refuse until they are approved."""
        return tuple(item.spec for item in self.found if item.state == "ready" or item.is_guarding)

    @property
    def notices(self) -> tuple[str, ...]:
        return tuple(item.notice for item in self.found if item.notice)

    def find(self, name: str) -> FoundHook | None:
        """Return the project's hook of that name, else the user's."""
        same = [item for item in self.found if item.spec.name == name]
        return next((item for item in same if not item.spec.is_own), same[0] if same else None)


def list_files(paths: Paths, *, trusted: bool) -> list[tuple[Path, Scope]]:
    """List the files that may contain hooks, the user's first."""
    folders: list[tuple[Path | None, Scope]] = [(paths.home, "global")]
    if trusted and ".codingcode" in paths.configs and paths.project != paths.home:
        folders.append((paths.project, "project"))
    return [
        (folder / ".codingcode" / name, scope)
        for folder, scope in folders
        if folder is not None
        for name in ("hooks.yaml", "hooks.yml")
    ]


def load_hooks(
    paths: Paths, *, trusted: bool, disabled: Mapping[str, bool] | None = None, muted: Mapping[str, bool] | None = None
) -> LoadedHooks:
    """Load all hooks from files. `disabled` are the user's switches by name, `muted` the project's.

    A broken file or entry is reported and affects no other. If it may have contained a guard, a stand-in refuses
    everything; otherwise it is left out.
    """
    problems: list[Diagnostic] = []
    own: list[HookSpec] = []
    theirs: list[HookSpec] = []
    for path, scope in list_files(paths, trusted=trusted):
        known = own if scope == "global" else theirs
        bound = bind_project(paths) if scope == "project" else None
        for number, spec in enumerate(_load_file(path, scope, problems, bound)):
            if number == MAX_HOOKS:
                text = f"more than {MAX_HOOKS} hooks in one file"
                problems.append(Diagnostic(f"{path}: {text}", str(path), None, "error", "hooks"))
                known.append(_stand_in(path, scope, text))
                break
            first = next((each for each in known if each.name == spec.name), None)
            if first is not None:
                how = "both are asked" if spec.is_guard else f"the one in {first.path} is used"
                problems.append(_tell(spec, f"has the same name as another hook; {how}", "warning"))
            if first is None or spec.is_guard:
                known.append(spec)
    approvals = _Approvals(paths, problems, trusted=trusted)

    def judge(spec: HookSpec) -> FoundHook:
        return approvals.judge(_switch(spec, disabled or {}, muted or {}, problems))

    # An unreadable hook that was never approved is not ours; its diagnostic is enough.
    found = [item for item in map(judge, theirs) if item.spec.point != ANYWHERE or item.state != "unapproved"]
    replacing = {item.spec.name: item.spec for item in found if item.state == "ready"}
    kept = []
    for spec in own:
        if spec.name in replacing and not spec.is_guard:
            continue  # the project's hook of this name runs instead
        if spec.name in replacing:
            text = "cannot replace the user's guard of this name; both are asked"
            problems.append(_tell(replacing[spec.name], text, "warning"))
        kept.append(judge(spec))
    return LoadedHooks((*kept, *found), tuple(problems))


def load_profile(paths: Paths, definition: Definition, *, trusted: bool) -> LoadedHooks:
    """Load the hooks of an agent file; those of a project's agent are approved one by one, as `agent/hook`."""
    problems: list[Diagnostic] = []
    approvals = _Approvals(paths, problems, trusted=trusted)
    is_own = definition.source != "project"
    found = []
    for index, raw in enumerate(definition.hooks):

        def report(field: str, text: str, place: str = f"hooks[{index}]") -> None:
            name = f"{place}.{field}" if field else place
            line = definition.lines.get("hooks")
            problems.append(
                Diagnostic(f"{definition.path}: {name}: {text}", definition.path, line, "error", "hooks", name)
            )

        spec = parse_hook(raw, report)
        if spec is not None:
            name = spec.name if is_own else f"{definition.name}/{spec.name}"
            folder = paths.project if not is_own else Path(definition.path).parent
            fault = _place_fault(spec.fault, f"{definition.path}: hooks[{index}]")
            own = {"name": name, "scope": "session", "is_own": is_own, "path": definition.path, "fault": fault}
            found.append(approvals.judge(structs.replace(spec, folder=str(folder), **own)))
    return LoadedHooks(tuple(found), tuple(problems))


def _switch(
    spec: HookSpec, disabled: Mapping[str, bool], muted: Mapping[str, bool], problems: list[Diagnostic]
) -> HookSpec:
    """Switch a hook off if a switch says so; the project's switch wins, but cannot remove a guard."""
    is_off = disabled.get(spec.name, False)
    if spec.name in muted:
        if spec.is_own and spec.is_guard and muted[spec.name] and not is_off:
            problems.append(_tell(spec, "is a guard of the user; a project cannot disable it", "warning"))
        elif spec.is_own and is_off and not muted[spec.name]:
            problems.append(_tell(spec, "is disabled by the user; a project cannot enable it", "warning"))
        else:
            is_off = muted[spec.name]
    return structs.replace(spec, enabled=False) if is_off else spec


class _Approvals:
    """Decides for each hook whether it is run."""

    def __init__(self, paths: Paths, problems: list[Diagnostic], *, trusted: bool) -> None:
        self._paths = paths
        self._consents = Consents(paths, "hooks", problems, trusted=trusted)

    def judge(self, spec: HookSpec) -> FoundHook:
        files = find_ground(self._paths).find_files(spec.command, spec.args, Path(spec.folder or self._paths.project))
        entry = {**describe_entry(spec), **({"files": digest_files(files)} if files else {})}
        if not spec.enabled:
            return FoundHook(spec, "disabled", entry)
        if spec.is_own and not files:
            return FoundHook(spec, "ready", entry)
        # If anything in a file was approved, the unreadable part may have been approved too.
        is_lost = spec.fault and spec.name.endswith((NO_NAME, Path(spec.path).name)) and self._consents.given
        found = FoundHook(spec, "ready" if is_lost else self._consents.judge(spec.name, entry), entry)
        if found.is_guarding:
            return FoundHook(structs.replace(spec, fault=spec.fault or found.notice), found.state, entry)
        # The project's hook runs in the sandbox of its run; the user's does not, so its files are verified each time.
        held = {str(path): digest_file(path) for path in files.values()} if spec.is_own else {}
        return FoundHook(structs.replace(spec, files=held), found.state, entry)


def describe_entry(spec: HookSpec) -> dict[str, Any]:
    """Return everything that decides what is run and when."""
    return {
        "point": spec.point,
        "type": spec.kind,
        "command": spec.command,
        "args": list(spec.args),
        "env": dict(sorted(spec.env.items())),
        "priority": spec.priority,
        **({"fault": spec.fault} if spec.fault else {}),
    }


_HARMLESS = ("version", "$schema")
"""Unknown top-level keys in a hook file that cannot have been a guard."""


def _load_file(path: Path, scope: Scope, problems: list[Diagnostic], bound: FileBound | None) -> Iterator[HookSpec]:
    try:
        lines = load_entries(path, "hooks", bound)
    except BrokenFile as error:
        problems.append(error.problem)
        yield _stand_in(path, scope, str(error))
        return
    if not lines:
        return
    from retinue.definitions.fields import to_plain
    from retinue.definitions.frontmatter import FrontmatterField, Items, Scalar

    def fail(text: str, line: int | None = None, field: str = "") -> None:
        place = path if line is None else f"{path}:{line}"
        problems.append(Diagnostic(f"{place}: {text}", str(path), line, "error", "hooks", field))

    entries: dict[str, FrontmatterField] = {}
    for entry in lines:
        if entry.key != "hooks":
            text = f"{quote(entry.key)}: unknown{suggest(entry.key, ('hooks',))}; hooks go under hooks"
            fail(text, entry.line)
            if entry.key not in _HARMLESS:
                yield _stand_in(path, scope, text)
        elif entry.key in entries:
            fail(
                f"hooks: given twice, first on line {entries[entry.key].line}; put all hooks into one list",
                entry.line,
            )
            yield _stand_in(path, scope, "hooks: given twice")
        entries.setdefault(entry.key, entry)
    value = entries["hooks"].value if "hooks" in entries else None
    if value is None or (isinstance(value, Scalar) and value.is_null):
        return
    if not isinstance(value, Items):
        fail("hooks: expected a list of hooks, each with name, point, type and command", value.line)
        yield _stand_in(path, scope, "hooks: expected a list of hooks")
        return
    for index, item in enumerate(value.values):

        def report(field: str, text: str, line: int = item.line, place: str = f"hooks[{index}]") -> None:
            name = f"{place}.{field}" if field else place
            fail(f"{name}: {text}", line, name)

        spec = parse_hook(to_plain(item), report)
        if spec is not None:
            is_own = scope == "global"
            # A relative program belongs to the file's owner, whatever the working folder is.
            folder = path.parent if is_own else path.parent.parent
            fault = _place_fault(spec.fault, f"{path}:{item.line}: hooks[{index}]")
            yield structs.replace(spec, scope=scope, is_own=is_own, path=str(path), folder=str(folder), fault=fault)


def _stand_in(path: Path, scope: Scope, fault: str) -> HookSpec:
    """Return a guard in place of those that a broken file may have contained."""
    is_own = scope == "global"
    fault = f"{fault if str(path) in fault else f'{path}: {fault}'}; fix the file or move it away"
    return structs.replace(
        stand_in(path.name, fault), scope=scope, is_own=is_own, path=str(path), folder=str(path.parent)
    )


def _place_fault(fault: str, place: str) -> str:
    """Add the place and a remedy to what is wrong with an entry."""
    what = ("." if fault.partition(":")[0].isidentifier() else ": ") + fault
    return f"{place}{what}; fix the entry or disable it with enabled: false" if fault else ""


def _tell(spec: HookSpec, text: str, severity: Literal["error", "warning"] = "error") -> Diagnostic:
    return Diagnostic(f"{spec.path}: hook {quote(spec.name)} {text}", spec.path, None, severity, "hooks", spec.name)
