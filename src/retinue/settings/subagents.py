"""The settings of subagents.json, and how its three files are merged.

The docstring under a field is its documentation. Must not know who uses a setting.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from msgspec import Struct, structs

from retinue.core.definition import FOREIGN, Dialect, Runner
from retinue.core.diagnostics import Diagnostic
from retinue.core.merge_report import LandingMode
from retinue.core.run import Join
from retinue.core.tool_table import SURFACES
from retinue.engine.limits import Bounds, GuardLimits, Limits
from retinue.sandbox.profile import Sandbox
from retinue.settings.checks import (
    OFF_ONLY,
    USER_ONLY,
    Check,
    Limit,
    Report,
    Setting,
    add_up,
    amount,
    between,
    choice,
    commands,
    flag,
    least,
    list_settings,
    names,
    optional,
    some_of,
    trimmed,
)
from retinue.settings.devkit import (
    CommandsSettings,
    ConvertContent,
    Lsp,
    SubagentToolSettings,
    WebSettings,
    resolve_hook,
)
from retinue.settings.files import bind_project, load_json, may_mention
from retinue.settings.layers import Layer, Scope, merge_layers, read_layer
from retinue.settings.paths import Paths

Surface: TypeAlias = Literal["fleet", "subagent", "dispatch"]
_BOUNDS, _LIMITS = Bounds(), Limits()
Alerts: TypeAlias = Literal["auto", "bell", "desktop", "off"]
Approvals: TypeAlias = Literal["never", "ask", "acceptEdits", "plan", "bypass"]


def _rules() -> Check:
    def convert(value: Any, report: Report) -> tuple[Mapping[str, Any], ...]:
        # An unreadable rule may have been meant to refuse something, so the user is asked about everything.
        doubt = {"action": "ask", "reason": "a rule in approvalRules cannot be read"}
        if not isinstance(value, list):
            report("", value, "a list of objects; until then you are asked about every call")
            return (doubt,)
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                report(f"[{index}]", item, "an object; until then you are asked about every call")
        return tuple(item if isinstance(item, dict) else doubt for item in value)

    return Check("a list of objects", convert)


def _denials() -> Check:
    """Accept tool names; an unreadable list may have been meant to deny anything, so it denies everything."""

    def convert(value: Any, report: Report) -> tuple[str, ...]:
        words = value.split(",") if isinstance(value, str) else value
        if isinstance(words, list) and all(isinstance(word, str) and word.strip() for word in words):
            return tuple(word.strip() for word in words)
        report("", value, "a list of tool names; until then every tool is denied")
        return ("*",)

    return Check("a list of strings", convert)


def _approvals() -> Check:
    """Accept a mode; an invalid one means `ask`, because a typo must not switch approvals off."""
    known = choice(*get_args(Approvals))

    def convert(value: Any, report: Report) -> str:
        if value not in get_args(Approvals):
            report("", value, f"{known.accepts}; ask is used")
            return "ask"
        return str(value)

    return Check(known.accepts, convert, choices=known.choices)


_SANDBOX = {
    "mode": choice("auto", "off"),
    "network": flag(),
    "writable": names(),
    "hidden": names(),
    "environment": names(),
    "memory_mb": optional(between(64)),
}


class RunLimits(Struct, frozen=True):
    """Limits of a background run."""

    wall_seconds: Annotated[float | None, amount()] = None
    """Maximum run time of a background run."""
    idle_seconds: Annotated[float | None, amount()] = 300
    """Maximum time of a background run without any output."""
    tool_seconds: Annotated[float | None, amount()] = 600
    """Maximum time of one tool call of a background run."""
    answer_seconds: Annotated[float | None, amount()] = _BOUNDS.answer_s
    """Maximum time that an agent waits for the answer to its question; then it has to decide itself."""

    def to_limits(self) -> Limits:
        return Limits(wall_s=self.wall_seconds, idle_s=self.idle_seconds, tool_s=self.tool_seconds)


class Budget(Struct, frozen=True):
    """Limits for one prompt including all runs it starts."""

    tokens: Annotated[int | None, least(optional(between(1)))] = None
    """Maximum tokens of one main prompt with all its children. The smaller of your value and the project's applies."""
    cost_usd: Annotated[float | None, least(amount())] = None
    """Maximum US dollars of one main prompt with all its children; the smaller value applies, too."""
    allow_pi: Annotated[bool, flag(), USER_ONLY] = False
    """Allow the runner `pi` under a budget, although pi can exceed the budget by one reply."""


class GuardSettings(Struct, frozen=True):
    """When you are told that one prompt has become expensive."""

    cost_usd: Annotated[float | None, amount()] = 5
    """US dollars of one main prompt with all its children after which you are asked once whether to continue; `-p`
    prints one line. null switches it off."""
    model_calls: Annotated[int | None, optional(between(1))] = 200
    """The same for the number of model calls."""

    def to_guard(self) -> GuardLimits:
        return GuardLimits(self.cost_usd, self.model_calls)


class ClusterSettings(Struct, frozen=True):
    """The queue of the runner `cluster`."""

    database: Annotated[str, trimmed(), USER_ONLY] = ""
    """The address of a Postgres database, such as `postgresql://user@host/name`; RETINUE_DATABASE wins."""
    max_concurrent: Annotated[int, between(1, 10_000), USER_ONLY] = 200
    """Maximum number of runs of one parent in the cluster, including waiting ones."""
    use_remote: Annotated[bool, flag()] = True
    """Let workers fetch from the repository's remote what it has; otherwise everything is sent through the database."""


class WorktreeSettings(Struct, frozen=True):
    """Copies of the repository for runs."""

    setup: Annotated[str, trimmed()] = ""
    """A shell command that prepares each worktree, run in the sandbox of the run. A project's command needs your
    consent: `retinue trust --command worktree.setup --yes`."""
    setup_seconds: Annotated[float, between(1, 86_400)] = 300
    """Maximum time of the setup command."""
    base: Annotated[str, trimmed()] = "HEAD"
    """What a worktree begins with: `HEAD`, `HEAD+changes` for the last commit and your uncommitted changes, or a
    branch."""


class LandingSettings(Struct, frozen=True):
    """The merge queue, `retinue land`."""

    mode: Annotated[LandingMode, choice(*get_args(LandingMode)), Limit(user_values=("auto",))] = "ask"
    """Whether the main agent has the tool `land_branches`, and asks you before it lands anything. It has the tool only
    if `landing.verify` is set. Only the user may choose `auto`."""
    verify: Annotated[tuple[str, ...], commands()] = ()
    """Shell commands, as text or a list, that must succeed on a commit before it lands; run in a copy of that commit,
    in a sandbox. A project's commands need your consent: `retinue trust --command landing.verify --yes`."""
    max_attempts: Annotated[int, between(0, 20)] = 2
    """How often the author of a branch is resumed because of a conflict or a failed check."""


class SubagentsConfig(Struct, frozen=True):
    """Everything subagents.json decides."""

    fallback_models: Annotated[tuple[str, ...], names()] = ()
    """Models (`provider/id`, in this order) that a run asks while a usage limit of its own model lasts. The field
    `fallback_models` of an agent file wins."""
    fallback_after_seconds: Annotated[int, between(0, 604_800)] = 300
    """How long a run waits for the end of a usage limit before it asks a fallback model."""
    warm_first: Annotated[bool, flag()] = False
    """Whether the first of several subagents that begin alike sends its request alone, until its reply begins. The
    others then read the beginning from the provider's prompt cache. Not for subagents in processes of their own."""
    surfaces: Annotated[tuple[Surface, ...], some_of(*SURFACES)] = ("fleet",)
    """The surfaces whose delegation tools the main agent has."""
    fallback_subagent: Annotated[str | None, optional(trimmed(), False, "none")] = None
    """The agent to use for an unknown name instead of an error."""
    agent_sources: Annotated[tuple[Dialect, ...], some_of(*get_args(Dialect)), USER_ONLY] = FOREIGN
    """The tools whose agents are read; `pi`, `codingcode` and `sticky` are always read."""
    max_spawns_per_tree: Annotated[int, between(1, 100_000)] = _BOUNDS.max_spawns
    """Maximum number of runs that one main prompt may start."""
    max_concurrent_scheduled: Annotated[int, between(1, 1024)] = 4
    """Maximum number of scheduled runs at the same time."""
    limits: RunLimits = RunLimits()
    budget: Budget = Budget()
    guard: GuardSettings = GuardSettings()
    worktree: WorktreeSettings = WorktreeSettings()
    landing: LandingSettings = LandingSettings()
    verify: Annotated[tuple[str, ...], add_up(commands())] = ()
    """Shell commands, as text or a list, that must succeed before a run that may change files is done; run where it
    works, in its sandbox. The commands of all files count. A project's commands need your consent:
    `retinue trust --command verify --yes`."""
    verify_seconds: Annotated[float, between(1, 86_400)] = 600
    """Maximum time of each of these commands, also of those that an agent file, a call or `landing.verify` names."""
    runner: Annotated[Runner, choice(*get_args(Runner)), Limit(user_values=("pi", "cluster"))] = "inprocess"
    """Where children run: in this process, in this process with a record for resuming after a crash, each in its own
    process, as a real pi, or on cluster workers. Only the user may choose the last two. A definition's `runner` wins.
    """
    pi_command: Annotated[str, trimmed(), USER_ONLY] = "pi"
    """The program for the runner `pi`: a name on `PATH`, or an absolute path."""
    cluster: ClusterSettings = ClusterSettings()
    approvals: Annotated[Approvals, _approvals(), USER_ONLY] = "never"
    """Whether calls need approval; see the guide to approvals."""
    approval_rules: Annotated[tuple[Mapping[str, Any], ...], _rules(), USER_ONLY] = ()
    """Rules about calls, each with `action`, `tool`, `pattern`, `priority` and `reason`."""
    sandbox: Annotated[Sandbox, _SANDBOX] = Sandbox()
    deny_tools: Annotated[tuple[str, ...], _denials(), USER_ONLY] = ()
    """Tools that no agent has, including the main agent and everything it starts."""
    redact_secrets: Annotated[bool, flag(), USER_ONLY] = False
    """Remove what looks like a key or password from prompts and tool results, in addition to the keys in use."""
    always_exposed_extensions: Annotated[tuple[str, ...], names(), USER_ONLY] = ()
    """Extensions whose tools an agent's tool list cannot hide; denials still do."""
    max_concurrent: Annotated[int, between(1, 1024)] = _BOUNDS.max_concurrent
    """Maximum number of runs of one parent at the same time."""
    default_max_turns: Annotated[int, between(0, 10_000)] = 0
    """Maximum turns of a run if neither its file nor its call sets a limit; 0 means no limit."""
    grace_turns: Annotated[int, between(1, 1_000)] = _LIMITS.grace_turns
    """Turns to wrap up after the turn limit."""
    default_join_mode: Annotated[Join, choice("async", "group", "smart")] = "async"
    """Whether the ends of several runs are reported one by one or together."""
    scheduling_enabled: Annotated[bool, flag(), OFF_ONLY] = True
    """Allow agents to be scheduled."""
    scope_models: Annotated[bool, flag()] = False
    """Allow calls to choose only models in `enabledModels`."""
    disable_default_agents: Annotated[bool, flag()] = False
    """Hide the built-in `general-purpose`, `Explore` and `Plan`."""
    tool_description_mode: Annotated[Literal["full", "compact", "custom"], choice("full", "compact", "custom")] = "full"
    """Length of the description of the `Agent` tool; `custom` reads it from a file."""
    wait_timeout_seconds: Annotated[int, between(30, 3_600)] = 270
    """Maximum time to wait for a result."""
    abort_resend_key: Annotated[str, trimmed()] = "f9"
    """The key that aborts and sends waiting messages. `PI_ABORT_RESEND_KEY` wins."""
    widget_display_mode: Annotated[Literal["auto", "rich", "compact"], choice("auto", "rich", "compact")] = "auto"
    """How much detail the list of agents shows."""
    fleet_view: Annotated[bool, flag()] = True
    """List runs in the foreground too, and let the arrow keys select one in the list."""
    widget_mode: Annotated[Literal["all", "background", "off"], choice("all", "background", "off")] = "background"
    """Which runs the list of agents shows."""
    notifications: Annotated[Alerts, choice(*get_args(Alerts))] = "auto"
    """How you are notified that work has ended or a question waits; see the guide to the terminal UI."""
    detached_seconds: Annotated[float | None, amount(), USER_ONLY] = None
    """How long a session in the background stays open without a window, even if it is working; default: until its work
    is done. It can be resumed.
    """
    checkpoints: Annotated[bool, flag(), USER_ONLY] = True
    """Take checkpoints of the workspace, for `retinue rewind` and `retinue undo`."""
    output_transcript: Annotated[bool, flag()] = True
    """Write a transcript of each background run to `.pi/output`."""
    rollup_child_usage: Annotated[bool, flag()] = False
    """Count the usage of children as their parent's."""
    enabled: Annotated[bool, flag(), OFF_ONLY] = True
    """Offer the `subagent`, web, convert and LSP tools and the `/toolkit` command."""
    subagents: SubagentToolSettings = SubagentToolSettings()
    web: WebSettings = WebSettings()
    convert_content: ConvertContent = ConvertContent()
    lsp: Lsp = Lsp()
    commands: CommandsSettings = CommandsSettings()

    @property
    def has_child_lsp(self) -> bool:
        own, lsp = self.subagents, self.lsp
        return own.allow_lsp_tools and bool(own.allowed_lsp_actions) and lsp.enabled and lsp.tool.enabled

    @property
    def has_subagent(self) -> bool:
        return self.enabled and self.subagents.enabled

    def limit_call(self) -> Limits:
        """Return the limits of one run of the `subagent` tool; only finished output resets its idle timer."""
        own = self.subagents
        return Limits(wall_s=own.timeout_ms / 1000, idle_s=own.idle_timeout_ms / 1000, strict_idle=True)

    def allows_surface(self, surface: str, *, is_child: bool) -> bool:
        """Return whether a main agent may have the tools of a surface; a child process gets no foreground ones."""
        if surface == "fleet":
            return True
        return not is_child and (surface != "subagent" or self.has_subagent)


class LoadedSubagents(Struct, frozen=True):
    settings: SubagentsConfig
    diagnostics: tuple[Diagnostic, ...] = ()
    layers: tuple[Layer, ...] = ()


SUBAGENT_SETTINGS = tuple(list_settings(SubagentsConfig))
"""Every setting, in the order of the reference page."""
# fmt: off
IGNORED = frozenset((
    "$schema", "backgroundByDefault", "herdrReportWorking", "strictAgentFiles", "agentMentions", "rememberAgents",
    "worktreeIsolation", "maxSubagentDepth", "reportUsage", "showCost", "subagents.projectAgentPolicy",
    "subagents.nonInteractivePolicy", "web.connectionPool", "convertContent.provider", "guards",
))
# fmt: on
"""Keys of other versions of the extensions: accepted, but without effect."""
_LOCKS = ("denyTools", "approval", "sandbox")
"""Keys with which only the user can restrict agents."""
_DEVKIT_TABLE = tuple(
    item
    for item in SUBAGENT_SETTINGS
    if item.key.partition(".")[0] in ("enabled", "subagents", "web", "convertContent", "lsp", "commands")
)


def load_subagents(
    paths: Paths, environment: Mapping[str, str], *, trusted: bool, flags: Mapping[str, Any] | None = None
) -> LoadedSubagents:
    """Read all layers: devkit-pi's own file, the user's, the trusted project's, the environment; `flags` win."""
    layers: list[Layer] = []
    diagnostics: list[Diagnostic] = []

    def add_file(path: Path, scope: Scope, table: tuple[Setting, ...] = SUBAGENT_SETTINGS, *, sha256: str = "") -> None:
        raw, problems = load_json(path, bound=bind_project(paths) if scope == "project" else None, sha256=sha256)
        if problems and scope == "user" and may_mention(path, _LOCKS):
            # The file may have denied any tool.
            layers.append(Layer(scope, {"denyTools": ("*",)}, str(path)))
            text = f"{problems[-1].message}; since the file restricts agents, every tool is denied until it is fixed"
            problems[-1] = structs.replace(problems[-1], message=text)
        if problems and scope == "user" and may_mention(path, ("budget",)):
            problems[-1] = structs.replace(problems[-1], field="budget")
        diagnostics.extend(problems)
        if raw is not None:
            layer, problems = read_layer(table, raw, scope, str(path), ignore=IGNORED)
            layers.append(layer)
            diagnostics.extend(problems)

    add_file(find_devkit_file(paths), "user", _DEVKIT_TABLE)
    add_file(find_user_file(paths), "user")
    if trusts_project_file(paths, trusted=trusted):
        add_file(find_project_file(paths), "project")
    elif sha256 := find_accepted(paths):
        add_file(find_project_file(paths), "project", sha256=sha256)
    layers.append(Layer("environment", _read_environment(environment)))
    layers += [Layer("flag", flags)] if flags else []
    settings = merge_layers(SubagentsConfig(), SUBAGENT_SETTINGS, layers)
    settings = structs.replace(settings, lsp=resolve_hook(settings.lsp))
    return LoadedSubagents(settings, tuple(diagnostics), tuple(layers))


def find_user_file(paths: Paths) -> Path:
    return paths.agent_dir / "subagents.json"


def find_project_file(paths: Paths) -> Path:
    return paths.project / ".pi" / "subagents.json"


def trusts_project_file(paths: Paths, *, trusted: bool) -> bool:
    """Return whether the project's file applies, whatever it contains."""
    return trusted and ".pi" in paths.configs and find_project_file(paths) != find_user_file(paths)


def find_accepted(paths: Paths) -> str:
    """Return the hash of the project's file that the user accepted, even in an untrusted folder; empty if none."""
    path = find_project_file(paths)
    if path == find_user_file(paths) or not path.is_file():
        return ""
    from retinue.settings.consent import load_accepted

    return load_accepted(paths).get(str(path), "")


def find_devkit_file(paths: Paths) -> Path:
    return paths.agent_dir / "extensions" / "devkit-pi" / "config.json"


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if key := environment.get("PI_ABORT_RESEND_KEY", "").strip():
        values["abortResendKey"] = key
    depth = environment.get("PI_SUBAGENT_MAX_DEPTH", "").strip()
    if depth.isascii() and depth.isdigit() and len(depth) < 10:
        values["subagents.maxDepth"] = int(depth)
    return values
