"""The settings we honour in pi's settings.json, one frozen dataclass; the docstring under a field is its documentation.

This file must not know files, layers or who uses a setting.
"""
# `setting` declares a field, as dataclasses.field does.
# ruff: noqa: RUF009

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from retinue.core.messages import THINKING_LEVELS, ThinkingLevel
from retinue.settings.checks import by_model, choice, count, counts, flag, names, setting, text, tools

QueueMode = Literal["all", "one-at-a-time"]
TrustDefault = Literal["ask", "always", "never"]
BUILTIN_TOOLS = ("read", "bash", "edit", "write", "grep", "find", "ls")

# Keys that mean something to pi and nothing to us: right in the file, and not worth a word.
# fmt: off
PI_KEYS = frozenset((
    "$schema", "autocompleteMaxVisible", "branchSummary", "cacheWarming", "codemode", "collapseChangelog", "deviceId",
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


@dataclass(frozen=True, slots=True)
class Compaction:
    """When and how far a conversation is summarised."""

    enabled: bool = setting("compaction.enabled", flag(), True)
    """Summarise by itself when the context gets full."""
    reserve_tokens: int = setting("compaction.reserveTokens", count(), 16_384)
    """Summarise when fewer tokens than this are free."""
    keep_recent_tokens: int = setting("compaction.keepRecentTokens", count(), 20_000)
    """The last tokens of the conversation, which stay as they are."""
    model_overrides: Mapping[str, Mapping[str, int]] = setting(
        "compaction.modelOverrides", by_model(counts("reserveTokens", "keepRecentTokens")), {}
    )
    """Other token numbers for single models."""

    def for_model(self, ref: str) -> tuple[int, int]:
        """`(reserve_tokens, keep_recent_tokens)` of one model."""
        own = self.model_overrides.get(ref, {})
        return own.get("reserveTokens", self.reserve_tokens), own.get("keepRecentTokens", self.keep_recent_tokens)


@dataclass(frozen=True, slots=True)
class Retry:
    """What happens after a failure that may pass."""

    enabled: bool = setting("retry.enabled", flag(), True)
    """Repeat a failed model call by itself."""
    max_retries: int = setting("retry.maxRetries", count(1_000), 3)
    """How often one call is repeated."""
    base_delay_ms: int = setting("retry.baseDelayMs", count(86_400_000), 2_000)
    """The first pause; each further one is twice as long."""
    max_agent_delay_ms: int = setting("retry.maxAgentDelayMs", count(86_400_000), 60_000)
    """The longest pause."""
    provider_timeout_ms: int | None = setting("retry.provider.timeoutMs", count(86_400_000))
    """How long one request may take; without it, `httpIdleTimeoutMs` decides alone."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything settings.json, the environment and flags decide."""

    default_provider: str | None = setting("defaultProvider", text())
    """Provider to start with."""
    default_model: str | None = setting("defaultModel", text())
    """Model to start with; alone it may also be `provider/id`."""
    default_thinking_level: ThinkingLevel = setting("defaultThinkingLevel", choice(*THINKING_LEVELS), "medium")
    """How much the model thinks at the start."""
    thinking_budgets: Mapping[str, int] = setting("thinkingBudgets", counts("minimal", "low", "medium", "high"), {})
    """Tokens for thinking per level, for models that are given a number."""
    enabled_models: tuple[str, ...] = setting("enabledModels", names(), ())
    """Models to choose from; the first usable one is the start when `defaultModel` is not set."""
    default_tools: tuple[str, ...] = setting("defaultTools", tools(), BUILTIN_TOOLS)
    """Tools at the start. Plain names replace the list, `+name` adds one and `-name` removes one."""
    steering_mode: QueueMode = setting("steeringMode", choice("all", "one-at-a-time"), "one-at-a-time")
    """Whether waiting steering messages are given to the model together or one in each turn."""
    follow_up_mode: QueueMode = setting("followUpMode", choice("all", "one-at-a-time"), "one-at-a-time")
    """The same for messages that wait until the agent is done."""
    compaction: Compaction = field(default_factory=Compaction)
    retry: Retry = field(default_factory=Retry)
    http_idle_timeout_ms: int = setting("httpIdleTimeoutMs", count(86_400_000, words={"disabled": 0}), 300_000)
    """How long a connection may be silent; 0 is for ever."""
    session_dir: str | None = setting("sessionDir", text())
    """Where sessions are kept; relative to the working directory."""
    shell_path: str | None = setting("shellPath", text())
    """The shell that runs commands; `~` is the home directory."""
    shell_command_prefix: str | None = setting("shellCommandPrefix", text())
    """Put before every shell command, as a line of its own."""
    block_images: bool = setting("images.blockImages", flag(), False)
    """Send no images to any model."""
    default_project_trust: TrustDefault = setting(
        "defaultProjectTrust", choice("ask", "always", "never"), "ask", user_only=True
    )
    """Whether the files of a project without a saved decision are used; without a terminal, `ask` means no."""
