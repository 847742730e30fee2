"""Builds the command line and environment of a run in a process of its own. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from retinue.core.environment import AGENT_ID, RESULT
from retinue.core.tool import Effect, SharedTool
from retinue.core.tool_table import ASK
from retinue.engine.external.program import ProcessContext
from retinue.engine.run_config import RemoteRequest
from retinue.engine.setup import RunSetup

OURS = ("offline", "scripted", "bridge")
"""Model APIs that only this program has."""


@dataclass(frozen=True, slots=True)
class ProcessPurpose:
    """What a process is started for."""

    remote_request: RemoteRequest
    model: str = ""
    """The model to pass on, if the request or the definition names one."""
    thinking: str = ""
    """The thinking level to pass on, likewise."""

    @property
    def is_bare(self) -> bool:
        """Whether the command line holds only what the definition says."""
        return self.remote_request.is_bare

    def render_task(self, text: str) -> str:
        return f"Task: {text}" if self.is_bare and self.remote_request.definition.dialect != "sticky" else text

    def list_tools(self, setup: RunSetup, process_context: ProcessContext) -> tuple[list[str], list[str]]:
        """Return the tools that the child gets, and reasons for those that it cannot have."""
        given, missing, rights = list[str](), list[str](), self.remote_request.rights
        is_pi = self.remote_request.runner == "pi"
        for name, tool in setup.tools.items():
            target = rights.targets.get(name, name)
            if is_pi and target == ASK:
                continue  # pi has no such tool
            if target in process_context.private_tools:
                missing.append(f"tool {target} exists only in this process")
            elif rights.readonly and (tool.effect is Effect.WRITE or (is_pi and tool.effect is Effect.EXECUTE)):
                # A read-only sandbox can be requested from our own process by an environment variable, from pi not at
                # all.
                missing.append(f"tool {target} cannot be made read-only there")
            else:
                given.append(target)
        return list(dict.fromkeys(given)), missing

    def list_names(self, setup: RunSetup, tools: Collection[str]) -> dict[str, str]:
        """Return the original tool for each name that the model uses; empty if the names are the same."""
        targets = self.remote_request.rights.targets
        names = {name: targets.get(name, name) for name in setup.tools}
        given = {name: own for name, own in names.items() if own in tools}
        return given if any(name != own for name, own in given.items()) else {}

    def render_flags(self, setup: RunSetup, tools: list[str], prompt_file: str, *, trusted: bool | None) -> list[str]:
        remote_request, is_pi = self.remote_request, self.remote_request.runner == "pi"
        flags = ["--mode", "json", "-p"]
        flags += ["--session", remote_request.session_file] if remote_request.session_file else ["--no-session"]
        if model := self._choose_model(setup):
            flags += ["--model", model]
        if level := self.thinking if self.is_bare else setup.thinking:
            flags += ["--thinking", level]
        flags += ["--tools", ",".join(tools)] if tools else ["--no-tools"]
        # The prompt is complete, so context files and skills must not be added again.
        flags += ["--system-prompt", prompt_file, "--no-context-files", "--no-skills"]
        if trusted is False:
            flags.append("--no-approve")
        elif trusted and not is_pi:
            flags.append("--approve")
        is_isolated = (
            remote_request.request.isolated
            or remote_request.definition.isolated
            or not remote_request.definition.extensions
        )
        if is_pi and is_isolated:
            flags.append("--no-extensions")
        return flags

    def render_marks(self, setup: RunSetup) -> dict[str, str]:
        """Return environment variables for the child: its depth, and what it inherits and no option says."""
        info, limits = setup.model.info, setup.limits
        # pi may know a model that we do not.
        provider, _, id = self.model.partition("/") if self.model else (info.provider, "", info.id)
        marks = {**setup.environment, "PI_PROVIDER": provider, "PI_MODEL": id}
        marks["PI_REASONING_LEVEL"], marks[AGENT_ID] = setup.thinking, setup.run_id
        allowed = self.remote_request.definition.allowed_subagents
        # Always set: otherwise the child would inherit the variable of its parent.
        marks["RETINUE_AGENTS"] = "*" if allowed is None else ",".join(allowed)
        marks["RETINUE_EXTENSIONS"] = self._name_extensions()
        if self.remote_request.rights.readonly:
            marks["RETINUE_READONLY"] = "1"
        if setup.is_fork:
            marks["RETINUE_FORK"] = "1"
        for tool in setup.tools.values():
            if isinstance(tool, SharedTool):
                marks[RESULT] = tool.pack()
        if limits.max_turns is not None:
            marks["RETINUE_MAX_TURNS"] = str(limits.max_turns)
            marks["RETINUE_GRACE_TURNS"] = str(limits.grace_turns)
        return marks

    def _name_extensions(self) -> str:
        """Return the extensions of the child as JSON: the same as for a run in this process."""
        definition, request = self.remote_request.definition, self.remote_request.request
        asked = {
            "selection": definition.extensions,
            "excluded": definition.exclude_extensions,
            "isolated": bool(definition.isolated or request.isolated),
        }
        return msgspec.json.encode(asked).decode()

    def _choose_model(self, setup: RunSetup) -> str:
        # Our own process finds the model in its environment; pi without an option would choose any model.
        if self.model or (self.is_bare and self.remote_request.runner != "pi"):
            return self.model
        return setup.model.info.ref
