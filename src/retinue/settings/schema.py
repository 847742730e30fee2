"""The supported settings of pi's settings.json; the docstring under a field is its documentation.

Must not know files, layers or who uses a setting.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Struct

from retinue.core.messages import THINKING_LEVELS, ThinkingLevel
from retinue.core.tool_table import BUILTIN_TOOLS
from retinue.models.retry import RetryPolicy
from retinue.sessions.compaction import CompactionConfig
from retinue.settings.checks import (
    USER_ONLY,
    Limit,
    by_model,
    choice,
    count,
    counts,
    flag,
    list_settings,
    names,
    text,
    tools,
)

QueueMode = Literal["all", "one-at-a-time"]
TrustDefault = Literal["ask", "always", "never"]

# Keys that only pi uses: accepted without a warning. `doubleEscapeAction`, `externalEditor`, `theme` and
# `treeFilterMode` are read by settings/user_state.py, only for the terminal UI and only from the user's file.
# fmt: off
PI_KEYS = frozenset((
    "$schema", "autocompleteMaxVisible", "cacheWarming", "codemode", "collapseChangelog", "deviceId",
    "doubleEscapeAction", "editorPaddingX", "enableAnalytics", "enableInstallTelemetry", "enableSkillCommands",
    "extensionChangelogVersions", "extensions", "externalEditor", "fullscreenCopyOnSelect", "fullscreenExitOutput",
    "fullscreenScrollbar", "fullscreenWheelScrollLines", "hideThinkingBlock", "httpProxy", "images.autoResize",
    "lastChangelogVersion", "markdown", "modelThinkingLevels", "npmCommand", "outputPad", "packages", "prompts",
    "queueMode", "quietStartup", "retry.maxDelayMs", "retry.provider.maxRetries", "retry.provider.maxRetryDelayMs",
    "selfUpdateCommand", "sessionShareDestination", "showCacheMissNotices", "showHardwareCursor", "skills",
    "terminal", "theme", "themes", "trackingId", "transport", "treeFilterMode", "tuiMode", "warnings",
    "websocketConnectTimeoutMs", "websockets",
))
# fmt: on


_COMPACTION, _RETRY = CompactionConfig(), RetryPolicy()
_BY_MODEL = by_model(counts("reserveTokens", "keepRecentTokens"))


class CompactionSettings(Struct, frozen=True):
    """When to summarise a conversation, and how much of it to keep."""

    enabled: Annotated[bool, flag()] = _COMPACTION.enabled
    """Summarise automatically when the context gets full."""
    reserve_tokens: Annotated[int, count()] = _COMPACTION.reserve_tokens
    """Summarise when fewer tokens than this are free."""
    keep_recent_tokens: Annotated[int, count()] = _COMPACTION.keep_recent_tokens
    """Number of recent tokens that are kept unchanged."""
    model_overrides: Annotated[Mapping[str, Mapping[str, int]], _BY_MODEL] = {}
    """Different token numbers for single models."""

    def for_model(self, ref: str) -> CompactionConfig:
        own = self.model_overrides.get(ref, {})
        return CompactionConfig(
            self.enabled,
            own.get("reserveTokens", self.reserve_tokens),
            own.get("keepRecentTokens", self.keep_recent_tokens),
        )


class BranchSummaries(Struct, frozen=True):
    """The summary of an abandoned branch."""

    reserve_tokens: Annotated[int, count()] = 16_384
    """Tokens of the model's context window that stay free when an abandoned branch is summarised."""
    skip_prompt: Annotated[bool, flag()] = False
    """Leave branches without a summary and without asking."""


class RetrySettings(Struct, frozen=True):
    """Retries after temporary failures."""

    enabled: Annotated[bool, flag()] = _RETRY.enabled
    """Retry a failed model call automatically."""
    max_retries: Annotated[int, count(1_000)] = _RETRY.max_retries
    """Maximum number of retries of one call."""
    base_delay_ms: Annotated[int, count(86_400_000)] = _RETRY.base_delay_ms
    """The first pause in milliseconds; each following one is twice as long."""
    max_agent_delay_ms: Annotated[int, count(86_400_000)] = _RETRY.max_agent_delay_ms
    """The longest pause in milliseconds."""
    provider_timeout_ms: Annotated[int | None, count(86_400_000), Limit(key="provider.timeoutMs")] = None
    """Timeout of one request; without it only `httpIdleTimeoutMs` applies."""

    def to_policy(self) -> RetryPolicy:
        return RetryPolicy(self.enabled, self.max_retries, self.base_delay_ms, self.max_agent_delay_ms)


class Settings(Struct, frozen=True):
    """The effective settings from settings.json, the environment and flags."""

    default_provider: Annotated[str | None, text()] = None
    """The provider to start with."""
    default_model: Annotated[str | None, text()] = None
    """The model to start with; without a provider it may be `provider/id`."""
    default_thinking_level: Annotated[ThinkingLevel, choice(*THINKING_LEVELS)] = "medium"
    """The thinking level to start with."""
    thinking_budgets: Annotated[Mapping[str, int], counts("minimal", "low", "medium", "high")] = {}
    """Thinking tokens per level, for models that take a number."""
    enabled_models: Annotated[tuple[str, ...], names()] = ()
    """Models to choose from: `defaultModel` is used first if it is among them, else the first usable one. Agents may
    use these as well as models of the main model's provider.
    """
    default_tools: Annotated[tuple[str, ...], tools()] = BUILTIN_TOOLS
    """Tools at the start. Plain names replace the list, `+name` adds one and `-name` removes one."""
    steering_mode: Annotated[QueueMode, choice("all", "one-at-a-time")] = "one-at-a-time"
    """Whether waiting steering messages are delivered all at once or one per turn."""
    follow_up_mode: Annotated[QueueMode, choice("all", "one-at-a-time")] = "one-at-a-time"
    """The same for messages that wait until the agent has finished."""
    compaction: CompactionSettings = CompactionSettings()
    branch_summary: BranchSummaries = BranchSummaries()
    retry: RetrySettings = RetrySettings()
    http_idle_timeout_ms: Annotated[int, count(86_400_000, words={"disabled": 0})] = 300_000
    """How long a provider may be silent before and during its answer (pings do not count); 0 means no limit."""
    session_dir: Annotated[str | None, text()] = None
    """Where sessions are stored, relative to the working directory."""
    shell_path: Annotated[str | None, text(), USER_ONLY] = None
    """The shell for commands; `~` is the home directory."""
    shell_command_prefix: Annotated[str | None, text(), USER_ONLY] = None
    """Put before every shell command, on a line of its own."""
    block_images: Annotated[bool, flag(), Limit(key="images.blockImages")] = False
    """Send no images to any model; a note replaces them."""
    default_project_trust: Annotated[TrustDefault, choice("ask", "always", "never"), USER_ONLY] = "ask"
    """Whether to use the files of a project without a saved decision; without a terminal `ask` means no."""


SETTINGS = tuple(list_settings(Settings))
"""Every setting, in the order of the reference page."""
